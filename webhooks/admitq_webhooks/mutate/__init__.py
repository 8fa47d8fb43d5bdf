"""Changes of the mutating webhooks."""
