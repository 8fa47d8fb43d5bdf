"""The older version of the API, served beside the stored one to those who come from there.

``v1beta2`` is the hub: it is what is stored and what every part works with. `table` says how the versions
differ, `conversion` carries objects across, and `schemas` makes the older schema of a kind from the newer.
"""
