"""Manifests: read from files, checked as by the API server, and translated to events of the core."""
