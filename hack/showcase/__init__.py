"""The tour of `hack/up`: a cluster, admitq beside it, sample Jobs, and what becomes of them."""
