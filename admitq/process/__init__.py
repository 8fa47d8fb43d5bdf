"""What each process of admitq sets up for itself: logs, garbage collection, handling of unexpected errors."""
