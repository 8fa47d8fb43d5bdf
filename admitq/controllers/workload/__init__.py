"""The life of a Workload besides its admission: checks, eviction, requeuing, time limits, retention.

The manager reserves the quota. The controller of the job starts and stops the job.
"""
