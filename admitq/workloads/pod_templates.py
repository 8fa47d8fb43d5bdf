"""What an admission does to pod templates, and how it is undone. Pure functions on raw templates.

Injected are a selector of the assigned flavors' nodes, their tolerations, labels and annotations that tell
whose pods they are, and what admission checks add. Whatever the job says itself is never overwritten: two
values for one key are a conflict, which no retry can mend.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from admitq.workloads.pod_counts import assigned_pod_counts
from admitq_api.json_objects import JsonObject, select_fields, value_at, with_value, without_value_pruned
from admitq_api.labels import Names
from admitq_api.quantity import QuantityError, parse_quantity
from admitq_api.semantic_equality import are_equivalent
from admitq_api.syntax import check_dns_label

FlavorLookup = Callable[[str], JsonObject | None]
"""Finds a ResourceFlavor by name."""

_LABELS = ("metadata", "labels")
_ANNOTATIONS = ("metadata", "annotations")
_NODE_SELECTOR = ("spec", "nodeSelector")
_TOLERATIONS = ("spec", "tolerations")
_SCHEDULING_GATES = ("spec", "schedulingGates")

_INJECTED_PATHS = (_LABELS, _ANNOTATIONS, _NODE_SELECTOR, _TOLERATIONS, _SCHEDULING_GATES)
"""All that an injection may change in a template."""

_CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")

_MERGE_KEYS_OF_CONTAINERS = {"env": ("name",), "ports": ("containerPort", "protocol")}
_MERGE_KEYS_OF_PODS = {"hostAliases": ("ip",), "imagePullSecrets": ("name",)}
"""Lists that Kubernetes stores with equal keys but that a Workload, a custom resource, may not repeat."""


class InjectionConflict(ValueError):
    """An admission would overwrite what the job, or another part of the admission, says."""


class FlavorMissing(LookupError):
    """An assigned flavor is not known (any more)."""


@dataclass(frozen=True, slots=True)
class PodSetInfo:
    """What an admission gives one podset."""

    name: str
    count: int
    node_selector: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerations: tuple[JsonObject, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    scheduling_gates: tuple[str, ...] = ()

    def merge(self, other: "PodSetInfo") -> "PodSetInfo":
        """Both together; name and count are this one's.

        Raises:
            InjectionConflict: they give one key two values.
        """
        return replace(
            self,
            node_selector=_union(self.node_selector, other.node_selector, f"nodeSelector of {self.name}"),
            labels=_union(self.labels, other.labels, f"labels of {self.name}"),
            annotations=_union(self.annotations, other.annotations, f"annotations of {self.name}"),
            tolerations=tuple(_with_tolerations(self.tolerations, other.tolerations)),
            scheduling_gates=tuple(dict.fromkeys((*self.scheduling_gates, *other.scheduling_gates))),
        )


# --- what an admission gives -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InjectedMarks:
    """Which marks of the admission pods carry, by feature gates read at the start."""

    queue_labels: bool = True
    workload_annotation: bool = True


def injected_labels(names: Names) -> frozenset[str]:
    """The labels that an admission gives pods, beside those of admission checks."""
    return frozenset({names.podset, names.local_queue_name, names.cluster_queue_name})


def injected_annotations(names: Names) -> frozenset[str]:
    """The annotations that an admission gives pods, beside those of admission checks."""
    return frozenset({names.workload, names.workload_slice_name})


def pod_set_infos(
    workload: JsonObject, flavors: FlavorLookup, names: Names, marks: InjectedMarks
) -> list[PodSetInfo]:
    """What the Workload's admission, and then its admission checks in their order, give each podset.

    Raises:
        InjectionConflict: two parts of the admission contradict each other.
        FlavorMissing: an assigned flavor is not known.
    """
    assignments = value_at(workload, ("status", "admission", "podSetAssignments"), [])
    infos = [_assignment_info(workload, assignment, flavors, names, marks) for assignment in assignments]
    for check in value_at(workload, ("status", "admissionChecks"), []):
        for update in check.get("podSetUpdates") or ():
            infos = [
                info.merge(_check_update_info(update)) if info.name == update.get("name") else info
                for info in infos
            ]
    return infos


def _assignment_info(
    workload: JsonObject, assignment: JsonObject, flavors: FlavorLookup, names: Names, marks: InjectedMarks
) -> PodSetInfo:
    info = _flavor_info(workload, assignment, flavors)
    info = replace(info, labels=_queue_labels(workload, info.name, names, marks))
    annotations = {names.workload: workload["metadata"]["name"]} if marks.workload_annotation else {}
    chain = value_at(workload, ("metadata", "annotations", names.workload_slice_name))
    if chain:
        annotations[names.workload_slice_name] = chain
    return replace(info, annotations=annotations)


def flavor_infos(workload: JsonObject, flavors: FlavorLookup) -> list[PodSetInfo]:
    """What the assigned flavors alone give each podset: a selector of their nodes, and their tolerations.

    Raises:
        InjectionConflict: the flavors of one podset contradict each other.
        FlavorMissing: an assigned flavor is not known.
    """
    assignments = value_at(workload, ("status", "admission", "podSetAssignments"), [])
    return [_flavor_info(workload, assignment, flavors) for assignment in assignments]


def _flavor_info(workload: JsonObject, assignment: JsonObject, flavors: FlavorLookup) -> PodSetInfo:
    name = assignment.get("name", "main")
    info = PodSetInfo(name, assigned_pod_counts(workload)[name])
    for flavor_name in dict.fromkeys((assignment.get("flavors") or {}).values()):
        flavor = flavors(flavor_name)
        if flavor is None:
            raise FlavorMissing(f"ResourceFlavor {flavor_name} not found")
        spec = flavor.get("spec") or {}
        info = info.merge(
            replace(
                info,
                node_selector=spec.get("nodeLabels") or {},
                tolerations=tuple(spec.get("tolerations") or ()),
            )
        )
    return info


def _queue_labels(workload: JsonObject, pod_set: str, names: Names, marks: InjectedMarks) -> dict[str, str]:
    labels = {names.podset: pod_set}
    if marks.queue_labels:
        queues = {
            names.local_queue_name: value_at(workload, ("spec", "queueName"), ""),
            names.cluster_queue_name: value_at(workload, ("status", "admission", "clusterQueue"), ""),
        }
        # A queue's name may be longer than a label's value.
        labels |= {key: queue for key, queue in queues.items() if check_dns_label(queue) is None}
    return labels


def _check_update_info(update: JsonObject) -> PodSetInfo:
    return PodSetInfo(
        update.get("name", ""),
        0,
        node_selector=update.get("nodeSelector") or {},
        tolerations=tuple(update.get("tolerations") or ()),
        labels=update.get("labels") or {},
        annotations=update.get("annotations") or {},
    )


# --- into templates and back -------------------------------------------------------------------------


def inject_into_template(template: JsonObject, info: PodSetInfo) -> JsonObject:
    """The template with what the admission gives it.

    Raises:
        InjectionConflict: the template has another value for a label, an annotation or a node selector.
    """
    result = template
    for path, added in (
        (_LABELS, info.labels),
        (_ANNOTATIONS, info.annotations),
        (_NODE_SELECTOR, info.node_selector),
    ):
        if added:
            own = value_at(result, path, {})
            result = with_value(result, path, _union(own, added, f"{path[-1]} of {info.name}"))
    if info.tolerations:
        own = value_at(result, _TOLERATIONS, [])
        result = with_value(result, _TOLERATIONS, _with_tolerations(own, info.tolerations))
    if info.scheduling_gates:
        own = value_at(result, _SCHEDULING_GATES, [])
        present = {gate.get("name") for gate in own}
        added = [{"name": gate} for gate in info.scheduling_gates if gate not in present]
        result = with_value(result, _SCHEDULING_GATES, [*own, *added])
    return result


def restore_template(
    template: JsonObject, original: JsonObject, keep_labels: Iterable[str] = ()
) -> JsonObject:
    """The template with all that injections change taken from the original.

    ``keep_labels`` are labels that the template has by nature and that the original may lack.
    """
    result = template
    for path in _INJECTED_PATHS:
        wanted = value_at(original, path)
        if path == _LABELS:
            own = value_at(template, path, {})
            kept = select_fields(own, keep_labels)
            wanted = ({**(wanted or {}), **kept}) or None
        if wanted is None:
            # Not null: in a list of templates a merge patch would write that as it is.
            result = without_value_pruned(result, path)
        elif value_at(result, path) != wanted:
            result = with_value(result, path, wanted)
    return result


def _union(own: Mapping[str, str], added: Mapping[str, str], what: str) -> dict[str, str]:
    for key, value in added.items():
        if own.get(key, value) != value:
            raise InjectionConflict(f"{what}: {key} is {own[key]!r} already and cannot become {value!r}")
    return {**own, **added}


def _toleration_key(toleration: JsonObject) -> tuple[Any, ...]:
    """What makes two tolerations one: an absent operator means Equal, an absent value the empty one."""
    return (
        toleration.get("key") or "",
        toleration.get("operator") or "Equal",
        toleration.get("value") or "",
        toleration.get("effect") or "",
        toleration.get("tolerationSeconds"),
    )


def _with_tolerations(own: Sequence[JsonObject], added: Iterable[JsonObject]) -> list[JsonObject]:
    present = {_toleration_key(toleration) for toleration in own}
    return [*own, *(toleration for toleration in added if _toleration_key(toleration) not in present)]


# --- templates of Workloads --------------------------------------------------------------------------


def sanitise_template(template: JsonObject, drop_labels: Iterable[str] = ()) -> JsonObject:
    """The template as a Workload keeps it.

    Of its metadata only labels and annotations stay. Where Kubernetes accepts entries that repeat a merge
    key, the last one counts, as it does when the pod starts. What the definition of Workloads fills in is
    filled in here, for not every kind's own does, and a stored template must still be that of its job.
    """
    dropped = set(drop_labels)
    labels = {key: value for key, value in value_at(template, _LABELS, {}).items() if key not in dropped}
    metadata = {"labels": labels, "annotations": dict(value_at(template, _ANNOTATIONS, {}))}
    spec: dict[str, Any] = dict(template.get("spec") or {})
    for name in _CONTAINER_LISTS:
        if spec.get(name):
            spec[name] = [
                _drop_repeated_items(_set_default_protocols(one), _MERGE_KEYS_OF_CONTAINERS)
                for one in spec[name]
            ]
    kept = {key: value for key, value in metadata.items() if value}
    return {
        **({"metadata": kept} if kept else {}),
        "spec": _drop_repeated_items(spec, _MERGE_KEYS_OF_PODS),
    }


def _set_default_protocols(container: JsonObject) -> JsonObject:
    ports = container.get("ports") or []
    if all(port.get("protocol") for port in ports):
        return container
    return with_value(
        container, ("ports",), [{**port, "protocol": port.get("protocol") or "TCP"} for port in ports]
    )


def _drop_repeated_items(owner: JsonObject, merge_keys: Mapping[str, tuple[str, ...]]) -> JsonObject:
    result = owner
    for name, keys in merge_keys.items():
        items = owner.get(name) or []
        last = {tuple(item.get(key) for key in keys): item for item in items}
        if len(last) < len(items):
            result = with_value(result, (name,), [item for item in items if item is _last(last, item, keys)])
    return result


def _last(last: Mapping[tuple[Any, ...], Any], item: JsonObject, keys: tuple[str, ...]) -> Any:
    return last[tuple(item.get(key) for key in keys)]


# --- comparing ---------------------------------------------------------------------------------------


def has_same_charges(left: JsonObject, right: JsonObject, *, tolerations: bool = True) -> bool:
    """Whether two templates ask for the same.

    Compares all that is charged: containers, init containers and sidecars, requests of the pod as a whole,
    its overhead and RuntimeClass, and its resource claims. Compares tolerations, if wanted. Node selectors,
    affinity, labels and annotations are not compared.

    Fields are compared by meaning, and tolerations and claims as sets, so that another notation of the same
    is the same: an operator that writes its job back by a typed client drops what is empty.
    """
    one, other = left.get("spec") or {}, right.get("spec") or {}
    if not _has_same_pod_level_charges(one, other):
        return False
    if any(
        not _same_containers(one.get(name) or [], other.get(name) or [])
        for name in ("initContainers", "containers")
    ):
        return False
    return not tolerations or {*map(_toleration_key, one.get("tolerations") or ())} == {
        *map(_toleration_key, other.get("tolerations") or ())
    }


def _has_same_pod_level_charges(one: JsonObject, other: JsonObject) -> bool:
    """Whether what is charged apart from containers is the same.

    The API server gives pods the overhead of their RuntimeClass, which a template need not state.
    """
    overheads = [spec.get("overhead") or {} for spec in (one, other)]
    of_class = bool(one.get("runtimeClassName")) and not all(overheads)
    return (
        (one.get("runtimeClassName") or "") == (other.get("runtimeClassName") or "")
        and (of_class or are_equivalent(*({"overhead": overhead} for overhead in overheads)))
        and are_equivalent(*({"resources": spec.get("resources")} for spec in (one, other)))
        and are_equivalent(*(_claims_by_name(spec) for spec in (one, other)))
    )


def _claims_by_name(spec: JsonObject) -> dict[str, JsonObject]:
    return {str(claim.get("name")): claim for claim in spec.get("resourceClaims") or ()}


def _same_containers(left: Sequence[JsonObject], right: Sequence[JsonObject]) -> bool:
    return left == right or are_equivalent(left, right)


def exact_quantity(quantity: Any) -> Fraction | Any:
    """A quantity by value, so that notations of the same are the same; as it is where it cannot be read."""
    try:
        return parse_quantity(quantity)
    except QuantityError:
        return quantity
