"""Translation of API objects to values of the core and back; the only package that knows both.

There is one module for each kind of object, and one for each part that several kinds have. The parts of a
Workload have their own modules, too. Namespaces and Topologies only have a name and labels, which
`observations` reads.

The API server and the webhooks validate objects, but an object may be older than the validation. A function
that cannot read an object raises `MalformedField` with the field and the remedy. The caller quarantines the
object, and continues with other objects.
"""
