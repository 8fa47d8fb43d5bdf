"""API objects become values of the core, and the reverse: the only package that knows both.

There is a module for each kind of object. The API server and the webhooks validate objects, but an object may
be older than the validation. A function that cannot read an object raises `MalformedField` with the field and
the remedy. The caller reports it on the object and continues with other objects.
"""
