"""The job controller: creates and updates the Workloads of jobs, and starts, stops and finishes jobs."""
