"""One module a kind of job; none knows another."""
