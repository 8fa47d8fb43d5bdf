"""Job kinds as data: what admitq must know of a kind of job to queue, start and stop it."""
