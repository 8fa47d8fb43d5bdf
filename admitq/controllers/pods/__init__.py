"""Pods that controllers start, count and delete themselves: rules and controllers."""
