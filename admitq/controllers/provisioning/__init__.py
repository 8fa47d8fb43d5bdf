"""The admission check that asks an autoscaler for nodes before a workload is admitted."""
