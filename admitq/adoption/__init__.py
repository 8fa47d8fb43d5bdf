"""The plan for taking over a cluster that another manager is in charge of.

Nothing here writes. ``cluster_reader`` reads from the API server, ``cluster`` holds the objects, ``checks``
is the table of checks, and ``plan`` combines them.
"""
