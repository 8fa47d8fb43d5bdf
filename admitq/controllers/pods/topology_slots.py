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


class PodState(NamedTuple):
    """What decides on the domain of a pod, read once: a job may have ten thousand pods.

    ``is_leaving`` is true for a deleted pod that may still run. ``offset`` is the text of its annotation.
    """

    pod: JsonObject
    podset: str
    is_gated: bool
    is_leaving: bool
    age: tuple[str, str]
    labels: Mapping[str, Any]
    node_selector: Mapping[str, Any]
    offset: str

    def get_domain(self, levels: Sequence[str]) -> tuple[Any, ...]:
        """Return the values of these levels in the node selector; None for each that it lacks."""
        return tuple(map(self.node_selector.get, levels))


class PlacedPod(NamedTuple):
    """A gated pod, and its domain."""

    state: PodState
    levels: tuple[str, ...]
    values: Values

    @property
    def node_selector(self) -> dict[str, str]:
        """The node selector of the domain."""
        return dict(zip(self.levels, self.values, strict=True))

    @property
    def is_excluded(self) -> bool:
        """Whether the own node selector of the pod excludes its domain. It can then never be ungated."""
        own = self.state.node_selector
        return any(label in own and own[label] != value for label, value in self.node_selector.items())


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


def read_pod_state(pod: JsonObject, names: Names) -> PodState | None:
    """Return the state of a pod; None for a pod that neither has a domain nor gets one.

    Such a pod has ended, or was deleted at its gate. Or the gate of elastic jobs holds it, because the
    admission has no room for it.
    """
    metadata, spec = pods.get_mapping(pod, "metadata"), pods.get_mapping(pod, "spec")
    gates = {gate.get("name") for gate in spec.get("schedulingGates") or ()}
    is_gated, is_leaving = names.topology_gate in gates, "deletionTimestamp" in metadata
    if pods.has_ended(pod) or names.elastic_gate in gates or (is_gated and is_leaving):
        return None
    labels = metadata.get("labels") or {}
    return PodState(
        pod,
        labels.get(names.podset, ""),
        is_gated,
        is_leaving,
        pods.get_age_key(pod),
        labels,
        spec.get("nodeSelector") or {},
        (metadata.get("annotations") or {}).get(names.pod_index_offset, ""),
    )


def place_pods(
    slots: PodSetSlots, members: Iterable[PodState], unhealthy_nodes: AbstractSet[str] = frozenset()
) -> list[PlacedPod]:
    """Return the gated pods of a podset that may be ungated, each with its domain.

    Args:
        slots: the slots of the podset.
        members: the pods of the podset.
        unhealthy_nodes: pods with one of these nodes stay gated.

    Raises:
        InvalidIndexOffset: the annotation of the first index is not an integer.
    """
    domains = frozenset(values for values, _ in slots.domains)
    # A deleted pod with a domain of an earlier assignment takes no slot of this one.
    present = sorted(
        (pod for pod in members if not pod.is_leaving or pod.get_domain(slots.levels) in domains),
        key=lambda pod: pod.age,
    )
    ranks = _read_ranks(slots, present)
    targets = _assign_by_rank(slots, present, ranks)
    if targets is None:
        targets = _assign_in_order(slots, present, ranks)
    return [
        PlacedPod(pod, slots.levels, values)
        for pod, values in targets
        if pod.is_gated and values[-1] not in unhealthy_nodes
    ]


# --- ranks --------------------------------------------------------------------------------------------


def _read_ranks(slots: PodSetSlots, members: Sequence[PodState]) -> list[int | None]:
    """Return the rank of each pod; None for a pod without a valid one."""
    if slots.rule is None or not members:
        return [None] * len(members)
    shift = _read_index_offset(members[0])
    rule = slots.rule._replace(end=slots.rule.end + shift, offset=slots.rule.offset + shift)
    return [_read_rank(pod.labels, rule, slots.count) for pod in members]


def _read_index_offset(pod: PodState) -> int:
    try:
        return int(pod.offset) if pod.offset else 0
    except ValueError:
        name = pod.pod["metadata"]["name"]
        raise InvalidIndexOffset(f"pod {name}: its annotation pod-index-offset is not an integer") from None


def _read_rank(labels: Mapping[str, Any], rule: RankRule, count: int) -> int | None:
    index = _parse_number(labels.get(rule.index_label))
    if index is None or rule.group_label is None:
        return None if index is None or index >= rule.end else index - rule.offset
    group = _parse_number(labels.get(rule.group_label))
    size = count // rule.groups if rule.groups > 0 else 0
    if group is None or index >= size:
        return None
    return index + group * size - rule.offset


def _parse_number(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER
    return int(text) if text is not None and is_number else None


def _assign_by_rank(
    slots: PodSetSlots, members: Sequence[PodState], ranks: Sequence[int | None]
) -> list[tuple[PodState, Values]] | None:
    """Return the domain of each pod by its rank; None if the ranks do not give every pod its own slot."""
    by_rank = [values for values, count in slots.domains for _ in range(count)]
    end = min(slots.count, len(by_rank))
    used: set[int] = set()
    targets: list[tuple[PodState, Values]] = []
    for pod, rank in zip(members, ranks, strict=True):
        if rank is None or rank in used or not 0 <= rank < end:
            return None
        if not pod.is_gated and pod.get_domain(slots.levels) != by_rank[rank]:
            return None
        used.add(rank)
        targets.append((pod, by_rank[rank]))
    return targets


# --- without ranks ------------------------------------------------------------------------------------


def _assign_in_order(
    slots: PodSetSlots, members: Sequence[PodState], ranks: Sequence[int | None]
) -> Iterator[tuple[PodState, Values]]:
    """Yield domains of gated pods, as far as the domains have room beside the pods that are there already.

    Pods with a rank come first, by their ranks, and then the others by age.
    """
    there = Counter(pod.get_domain(slots.levels) for pod in members if not pod.is_gated)
    ranked = sorted(zip(members, ranks, strict=True), key=lambda item: (item[1] is None, item[1] or 0))
    waiting = (pod for pod, _ in ranked if pod.is_gated)
    for values, count in slots.domains:
        taken = min(count, there[values])
        there[values] -= taken
        for _ in range(count - taken):
            if (pod := next(waiting, None)) is None:
                return
            yield pod, values
