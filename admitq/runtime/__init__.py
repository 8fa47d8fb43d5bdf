"""A small controller runtime: client, watches, stores, work queues, leases, events."""
