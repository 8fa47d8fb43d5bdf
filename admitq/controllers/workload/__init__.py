"""The lifecycle of a Workload apart from its admission: checks, eviction, requeuing, time limits, retention.

The manager reserves the quota. The controller of the job starts and stops the job.
"""
