"""Which pods get which domain of a topology assignment. Pure functions on raw pods (semantics, Ungater).

An assignment has a slot for each pod: its domains in order, each as often as it has pods. The rank of a pod
is the number of its slot, from labels that number the pods of a job. If the labels do not give every pod a
slot of its own, the pods fill the domains in order.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from admitq.integrations.families import pods
from admitq.integrations.ownership import is_group_workload
from admitq.workloads.pod_counts import assigned_pod_counts
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names
from admitq_api.topology_assignments import Domain, decode

Values = tuple[str, ...]
"""The values of the levels of a domain."""

_LONGEST_NUMBER: Final = 10
"""The maximum number of digits of an index."""


class InvalidIndexOffset(ValueError):
    """The annotation of the first index of a podset is not an integer."""


class RankRule(NamedTuple):
    """How the labels of a pod number it.

    ``end`` is the first index beyond the podset, and ``offset`` the first index of the podset. With a
    ``group_label``, the index numbers the pods of each of ``groups`` equal groups.
    """

    index_label: str
    end: int
    offset: int = 0
    group_label: str | None = None
    groups: int = 0


@dataclass(frozen=True, slots=True)
class PodSetSlots:
    """The slots of one podset: the labels of the levels, and the domains with their numbers of pods.

    ``rule`` is None if no label numbers the pods.
    """

    name: str
    count: int
    levels: tuple[str, ...]
    domains: tuple[Domain, ...]
    rule: RankRule | None = None


class PlacedPod(NamedTuple):
    """A gated pod, and the node selector of its domain."""

    pod: JsonObject
    node_selector: Mapping[str, str]


# --- the podsets of a Workload ------------------------------------------------------------------------


def read_slots(workload: JsonObject, names: Names) -> list[PodSetSlots]:
    """Return the slots of the podsets that have a topology assignment.

    Raises:
        MalformedField: an assignment is malformed.
    """
    counts = assigned_pod_counts(workload)
    requests = {
        pod_set.get("name", "main"): value_at(pod_set, ("topologyRequest",), {})
        for pod_set in value_at(workload, ("spec", "podSets"), [])
    }
    slots: list[PodSetSlots] = []
    for place, item in enumerate(value_at(workload, ("status", "admission", "podSetAssignments"), [])):
        if assignment := item.get("topologyAssignment"):
            name = item.get("name", "main")
            path = f"status.admission.podSetAssignments[{place}].topologyAssignment"
            levels, domains = decode(assignment, path)
            rule = _read_rule(name, requests, counts, names if is_group_workload(workload, names) else None)
            slots.append(PodSetSlots(name, counts[name], levels, domains, rule))
    return slots


def _read_rule(
    name: str, requests: Mapping[str, JsonObject], counts: Mapping[str, int], group_names: Names | None
) -> RankRule | None:
    request = requests.get(name, {})
    # The webhook copies the index of a pod of a group to a label of its own.
    label = request.get("podIndexLabel") or (group_names and group_names.pod_group_pod_index)
    if not label:
        return None
    offset = _count_leaders(name, requests, counts)
    return RankRule(
        label,
        counts[name] + offset,
        offset,
        request.get("subGroupIndexLabel"),
        request.get("subGroupCount") or 0,
    )


def _count_leaders(name: str, requests: Mapping[str, JsonObject], counts: Mapping[str, int]) -> int:
    """Return the pods of the smaller podset of a group, for the larger one; of equal ones for the last.

    The pods of both are numbered together, and the smaller podset comes first.
    """
    group = requests.get(name, {}).get("podSetGroupName")
    members = [other for other, request in requests.items() if request.get("podSetGroupName") == group]
    if not group or len(members) != 2:
        return 0
    leader, worker = sorted(members, key=lambda member: counts.get(member, 0))
    return counts.get(leader, 0) if name == worker else 0


# --- the pods of a podset -----------------------------------------------------------------------------


def place_pods(
    slots: PodSetSlots,
    members: Iterable[JsonObject],
    names: Names,
    unhealthy_nodes: AbstractSet[str] = frozenset(),
) -> list[PlacedPod]:
    """Return the gated pods of a podset that may be ungated, each with its domain.

    Args:
        slots: the slots of the podset.
        members: the pods of the podset that have not ended.
        names: labels, annotations and gates.
        unhealthy_nodes: pods with one of these nodes stay gated.

    Raises:
        InvalidIndexOffset: the annotation of the first index is not an integer.
    """
    domains = frozenset(values for values, _ in slots.domains)
    present = sorted((pod for pod in members if _counts(pod, slots, domains, names)), key=pods.get_age_key)
    ranks = _read_ranks(slots, present, names)
    targets = _assign_by_rank(slots, present, ranks, names)
    if targets is None:
        targets = _assign_in_order(slots, present, ranks, names)
    return [
        PlacedPod(pod, dict(zip(slots.levels, values, strict=True)))
        for pod, values in targets
        if is_gated(pod, names) and values[-1] not in unhealthy_nodes
    ]


def is_gated(pod: JsonObject, names: Names) -> bool:
    """Whether the pod waits for its domain."""
    return pods.has_gate(pod, names.topology_gate)


def contradicts(placed: PlacedPod) -> bool:
    """Whether the node selector of the pod excludes its domain. Such a pod can never be ungated."""
    own = pods.get_mapping(placed.pod, "spec", "nodeSelector")
    return any(own.get(label, value) != value for label, value in placed.node_selector.items())


def _counts(pod: JsonObject, slots: PodSetSlots, domains: AbstractSet[Values], names: Names) -> bool:
    """Whether a pod has a slot, or needs one.

    A pod that was deleted at a gate never runs. A deleted pod that has a domain of an earlier assignment
    takes no slot of this one. A gate of elastic jobs holds pods for which the admission has no room.
    """
    if pods.has_ended(pod) or pods.has_gate(pod, names.elastic_gate):
        return False
    return not pods.is_being_deleted(pod) or (not is_gated(pod, names) and _domain_of(pod, slots) in domains)


def _domain_of(pod: JsonObject, slots: PodSetSlots) -> tuple[Any, ...]:
    selector = pods.get_mapping(pod, "spec", "nodeSelector")
    return tuple(selector.get(level) for level in slots.levels)


# --- ranks --------------------------------------------------------------------------------------------


def _read_ranks(slots: PodSetSlots, members: Sequence[JsonObject], names: Names) -> list[int | None]:
    """Return the rank of each pod; None for a pod without a valid one."""
    if slots.rule is None or not members:
        return [None] * len(members)
    shift = _read_index_offset(members[0], names)
    rule = slots.rule._replace(end=slots.rule.end + shift, offset=slots.rule.offset + shift)
    return [_read_rank(pod, rule, slots.count) for pod in members]


def _read_index_offset(pod: JsonObject, names: Names) -> int:
    text = pods.get_annotation(pod, names.pod_index_offset)
    try:
        return int(text) if text else 0
    except ValueError:
        raise InvalidIndexOffset(
            f"annotation {names.pod_index_offset} of the pods is not an integer"
        ) from None


def _read_rank(pod: JsonObject, rule: RankRule, count: int) -> int | None:
    index = _parse_number(pods.get_label(pod, rule.index_label))
    if index is None or rule.group_label is None:
        return None if index is None or index >= rule.end else index - rule.offset
    group = _parse_number(pods.get_label(pod, rule.group_label))
    size = count // rule.groups if rule.groups > 0 else 0
    if group is None or index >= size:
        return None
    return index + group * size - rule.offset


def _parse_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER else None


def _assign_by_rank(
    slots: PodSetSlots, members: Sequence[JsonObject], ranks: Sequence[int | None], names: Names
) -> list[tuple[JsonObject, Values]] | None:
    """Return the domain of each pod by its rank; None if the ranks do not give every pod its own slot."""
    by_rank = _list_slots(slots)
    used: set[int] = set()
    targets: list[tuple[JsonObject, Values]] = []
    for pod, rank in zip(members, ranks, strict=True):
        if rank is None or rank in used or not 0 <= rank < min(slots.count, len(by_rank)):
            return None
        if not is_gated(pod, names) and _domain_of(pod, slots) != by_rank[rank]:
            return None
        used.add(rank)
        targets.append((pod, by_rank[rank]))
    return targets


def _list_slots(slots: PodSetSlots) -> list[Values]:
    return [values for values, count in slots.domains for _ in range(count)]


# --- without ranks ------------------------------------------------------------------------------------


def _assign_in_order(
    slots: PodSetSlots, members: Sequence[JsonObject], ranks: Sequence[int | None], names: Names
) -> Iterator[tuple[JsonObject, Values]]:
    """Yield domains of gated pods, as far as the domains have room beside the pods that are there already.

    Pods with a rank come first, by their ranks, and then the others by age.
    """
    there = Counter(_domain_of(pod, slots) for pod in members if not is_gated(pod, names))
    ranked = sorted(zip(members, ranks, strict=True), key=lambda item: (item[1] is None, item[1] or 0))
    waiting = (pod for pod, _ in ranked if is_gated(pod, names))
    for values, count in slots.domains:
        taken = min(count, there[values])
        there[values] -= taken
        for _ in range(count - taken):
            if (pod := next(waiting, None)) is None:
                return
            yield pod, values
