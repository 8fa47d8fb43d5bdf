"""Updates of metric series after events of workloads and queues."""
