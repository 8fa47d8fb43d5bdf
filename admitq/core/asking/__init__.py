"""Hypothetical questions to the core: each function may change the state that it gets."""
