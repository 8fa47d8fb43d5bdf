"""HTTPS serving with deadlines, certificates, and authorisation of callers."""
