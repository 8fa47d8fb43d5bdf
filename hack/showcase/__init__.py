"""The tour of `hack/up`: a cluster with admitq, sample Jobs, and their progress."""
