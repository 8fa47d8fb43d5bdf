"""Workload objects: how they are built for jobs, and what every change of their status writes (pure)."""
