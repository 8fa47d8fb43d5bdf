"""Maps what happens to workloads and queues to the metric series that it changes."""
