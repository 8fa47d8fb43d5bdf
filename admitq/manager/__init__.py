"""The shell around the core on a cluster: reports observations to the core and carries out instructions."""
