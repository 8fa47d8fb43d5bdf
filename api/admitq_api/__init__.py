"""The wire API: kinds, names, quantities and the configuration file."""
