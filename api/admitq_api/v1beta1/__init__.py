"""The older version of the API, which is served besides the stored version to clients that use it.

``v1beta2`` is the hub version: it is stored, and all code works with it. `differences` lists the differences
of the versions, `conversion` converts objects, and `schemas` creates the older schema of a kind from the
newer one.
"""
