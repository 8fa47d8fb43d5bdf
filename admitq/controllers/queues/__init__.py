"""Statuses and metrics of ClusterQueues, LocalQueues and cohorts."""
