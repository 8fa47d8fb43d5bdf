"""admitq: a job queue manager for Kubernetes."""
