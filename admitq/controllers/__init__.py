"""Controllers of jobs, Workloads, queues, admission checks and pods. Each owns its own status fields.

Packages hold the rules of one controller. Modules beside them are shared by all packages.
"""
