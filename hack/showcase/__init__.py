"""The tour of `hack/up`: a cluster with admitq, the Jobs of a sample, and their progress."""
