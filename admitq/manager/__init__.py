"""The shell around the core on a cluster: observations go in, instructions are carried out."""
