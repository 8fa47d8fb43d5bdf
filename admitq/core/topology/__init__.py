"""Topology-aware scheduling: which nodes, racks or blocks hold the pods of a workload.

Start with ``placement``. ``domains`` has the nodes of one flavor as a tree, ``capacities`` how many pods each
domain of the tree can hold.
"""
