"""The assignment of a podset to domains (semantics, Workload, TopologyAssignment)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopologyAssignment:
    """The leaves that a podset was assigned, in the order of all of their values.

    ``levels`` are the labels that identify a leaf: that of host names alone, or else all of the topology.
    ``domains`` has the values of these labels, and the number of pods.
    """

    levels: tuple[str, ...]
    domains: tuple[tuple[tuple[str, ...], int], ...]
