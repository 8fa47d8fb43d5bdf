"""Rules of the validating webhooks."""
