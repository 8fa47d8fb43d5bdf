"""A shell of the core that compares its decisions with those of the manager in charge.

``comparison`` is pure: it takes events with instants, and returns findings. ``log_fields`` renders them.
"""
