"""Taking over a cluster that another manager is in charge of: what is there, and what to do about it.

Nothing here writes. ``reading`` asks the API server, ``cluster`` holds what it said, ``checks`` are a table
of what is looked for, and ``plan`` makes of both what is printed.
"""
