"""Statuses of ClusterQueues, LocalQueues and cohorts."""
