"""Admission webhooks: what is changed and what is refused when an object is written."""
