"""The wire API: kinds, names, quantities, configuration."""
