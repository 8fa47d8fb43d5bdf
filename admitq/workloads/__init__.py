"""Workload objects: how they are built for jobs, and the patches of their status.

All modules are pure, except that ``admission_status`` sends its writes to the API server.
"""
