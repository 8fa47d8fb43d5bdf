"""Admission webhooks: they change or reject objects when these are written."""
