"""The visibility API: an aggregated API that answers questions about queues. It only reads.

``routes`` has the table of its subresources. ``handler`` serves them, with discovery and OpenAPI documents,
to callers that the API server authorizes. ``admitq.app.visibility`` has the watches and the server.
"""
