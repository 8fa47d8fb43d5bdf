"""The admission check that requests nodes from an autoscaler before a workload is admitted."""
