"""Job kinds as data: what admitq must know about a job kind to queue, start and stop its jobs."""
