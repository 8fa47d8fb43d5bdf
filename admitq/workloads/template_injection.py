"""Injection of an admission into pod templates, and its removal. Pure functions on raw templates.

An admission injects the node selector and tolerations of the assigned flavors, labels and annotations that
name the Workload and its queues, a scheduling gate if it has a topology assignment, and the updates of
admission checks. An injection never overwrites a value
of the job: two values for one key are a conflict, and a retry cannot resolve it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

from admitq.workloads.pod_counts import assigned_pod_counts
from admitq_api.json_objects import JsonObject, select_fields, value_at, with_value, without_value_pruned
from admitq_api.labels import Names
from admitq_api.quantity import QuantityError, parse_quantity
from admitq_api.semantic_equality import are_equivalent
from admitq_api.syntax import check_dns_label

FlavorLookup = Callable[[str], JsonObject | None]
"""Returns a ResourceFlavor by name; None if it does not exist."""

_LABELS = ("metadata", "labels")
_ANNOTATIONS = ("metadata", "annotations")
_NODE_SELECTOR = ("spec", "nodeSelector")
_TOLERATIONS = ("spec", "tolerations")
_SCHEDULING_GATES = ("spec", "schedulingGates")

_INJECTED_PATHS = (_LABELS, _ANNOTATIONS, _NODE_SELECTOR, _TOLERATIONS, _SCHEDULING_GATES)
"""Paths of a template that an injection may change."""

_CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")

_MERGE_KEYS_OF_CONTAINERS = {"env": ("name",), "ports": ("containerPort", "protocol")}
_MERGE_KEYS_OF_PODS = {"hostAliases": ("ip",), "imagePullSecrets": ("name",)}
"""Lists and their merge keys. Pods may have several items with equal keys; custom resources may not."""


class InjectionConflict(ValueError):
    """An admission would overwrite a value of the job, or of another part of the admission."""


class FlavorMissing(LookupError):
    """An assigned flavor does not exist."""


@dataclass(frozen=True, slots=True)
class PodSetInfo:
    """The values that an admission injects into one podset."""

    name: str
    count: int
    node_selector: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerations: tuple[JsonObject, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    scheduling_gates: tuple[str, ...] = ()

    def merge(self, other: "PodSetInfo") -> "PodSetInfo":
        """Return the values of both; name and count are those of ``self``.

        Raises:
            InjectionConflict: the two have different values for one key.
        """
        return replace(
            self,
            node_selector=_union(self.node_selector, other.node_selector, f"nodeSelector of {self.name}"),
            labels=_union(self.labels, other.labels, f"labels of {self.name}"),
            annotations=_union(self.annotations, other.annotations, f"annotations of {self.name}"),
            tolerations=tuple(_with_tolerations(self.tolerations, other.tolerations)),
            scheduling_gates=tuple(dict.fromkeys((*self.scheduling_gates, *other.scheduling_gates))),
        )


# --- values of an admission -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InjectedMarks:
    """What is injected besides flavors; feature gates decide this at the start of the process."""

    queue_labels: bool = True
    workload_annotation: bool = True
    topology: bool = True
    """The scheduling gate of pods with a topology assignment, and the annotation of an implied request."""


def injected_labels(names: Names) -> frozenset[str]:
    """Return the keys of injected labels, besides those of admission checks."""
    return frozenset({names.podset, names.local_queue_name, names.cluster_queue_name})


def injected_annotations(names: Names) -> frozenset[str]:
    """Return the keys of injected annotations, besides those of admission checks."""
    return frozenset({names.workload, names.workload_slice_name})


def pod_set_infos(
    workload: JsonObject, flavors: FlavorLookup, names: Names, marks: InjectedMarks
) -> list[PodSetInfo]:
    """Return the values of the Workload's admission and of its admission checks, in this order, by podset.

    Raises:
        InjectionConflict: two parts of the admission have different values for one key.
        FlavorMissing: an assigned flavor does not exist.
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
    if not marks.topology or not assignment.get("topologyAssignment"):
        return replace(info, annotations=annotations)
    if not _requests_topology(workload, info.name, names):
        annotations[names.podset_unconstrained_topology] = "true"
    return replace(info, annotations=annotations, scheduling_gates=(names.topology_gate,))


_TOPOLOGY_REQUESTS: Final = frozenset(
    {
        "required",
        "preferred",
        "unconstrained",
        "podSetSliceRequiredTopology",
        "podsetSliceRequiredTopologyConstraints",
    }
)
"""Fields of ``topologyRequest`` that request a topology. Its other fields describe the pods."""


def topology_request_annotations(names: Names) -> frozenset[str]:
    """Return the annotations of pod templates that request a topology."""
    return frozenset(
        {
            names.podset_required_topology,
            names.podset_preferred_topology,
            names.podset_unconstrained_topology,
            names.podset_slice_required_topology,
            names.podset_slice_required_topology_constraints,
        }
    )


def _requests_topology(workload: JsonObject, name: str, names: Names) -> bool:
    """Whether a podset requests a topology, in its template or in a Workload that its user created."""
    for pod_set in value_at(workload, ("spec", "podSets"), []):
        if pod_set.get("name", "main") == name:
            request = value_at(pod_set, ("topologyRequest",), {})
            annotations = value_at(pod_set, ("template", *_ANNOTATIONS), {})
            return any(
                request.get(field) for field in _TOPOLOGY_REQUESTS
            ) or not annotations.keys().isdisjoint(topology_request_annotations(names))
    return False


def flavor_infos(workload: JsonObject, flavors: FlavorLookup) -> list[PodSetInfo]:
    """Return the node selector and the tolerations of the assigned flavors for each podset.

    Raises:
        InjectionConflict: two flavors of one podset have different values for one key.
        FlavorMissing: an assigned flavor does not exist.
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
        # The name of a queue may be longer than the value of a label.
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


# --- injection and restoration --------------------------------------------------------------------------


def inject_into_template(template: JsonObject, info: PodSetInfo) -> JsonObject:
    """Return the template with the injected values.

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


def without_scheduling_gate(template: JsonObject, gate: str) -> JsonObject:
    """Return the template without one scheduling gate."""
    gates = value_at(template, _SCHEDULING_GATES, [])
    others = [item for item in gates if item.get("name") != gate]
    if len(others) == len(gates):
        return template
    if not others:
        return without_value_pruned(template, _SCHEDULING_GATES)
    return with_value(template, _SCHEDULING_GATES, others)


def restore_template(
    template: JsonObject, original: JsonObject, keep_labels: Iterable[str] = ()
) -> JsonObject:
    """Return the template with the original values of all paths that an injection may change.

    Labels with a key in ``keep_labels`` stay: the API server or a controller adds them to the template.
    """
    result = template
    for path in _INJECTED_PATHS:
        value = value_at(original, path)
        if path == _LABELS:
            own = value_at(template, path, {})
            labels = select_fields(own, keep_labels)
            value = ({**(value or {}), **labels}) or None
        if value is None:
            # The field is removed and not set to null, because a merge patch does not merge lists of
            # templates.
            result = without_value_pruned(result, path)
        elif value_at(result, path) != value:
            result = with_value(result, path, value)
    return result


def _union(own: Mapping[str, str], added: Mapping[str, str], what: str) -> dict[str, str]:
    for key, value in added.items():
        if own.get(key, value) != value:
            raise InjectionConflict(f"{what}: {key} is {own[key]!r} already and cannot become {value!r}")
    return {**own, **added}


def _toleration_key(toleration: JsonObject) -> tuple[Any, ...]:
    """Return the key by which tolerations are compared, with defaults for absent fields."""
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
    """Return the template as a Workload stores it.

    Its metadata has only labels and annotations. If items of a list repeat a merge key, the last item stays,
    as in a starting pod. Defaults of the CRD of Workloads are set here, because CRDs of some job kinds do not
    set them: the stored template must be equal to the template of the job.
    """
    dropped = set(drop_labels)
    labels = {key: value for key, value in value_at(template, _LABELS, {}).items() if key not in dropped}
    metadata = {"labels": labels, "annotations": dict(value_at(template, _ANNOTATIONS, {}))}
    spec: dict[str, Any] = dict(template.get("spec") or {})
    for name in _CONTAINER_LISTS:
        if spec.get(name):
            spec[name] = [
                _drop_repeated_items(_set_default_protocols(container), _MERGE_KEYS_OF_CONTAINERS)
                for container in spec[name]
            ]
    fields = {key: value for key, value in metadata.items() if value}
    return {
        **({"metadata": fields} if fields else {}),
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
    """Whether the pods of two templates are charged alike.

    This compares containers, init containers and sidecars, the requests of the pod as a whole, its overhead,
    RuntimeClass and resource claims, and optionally its tolerations. It does not compare node selectors,
    affinity, labels and annotations.

    Fields are compared by meaning, and tolerations and claims as sets. So different notations are equal: an
    operator with a typed client drops empty fields when it writes its job.
    """
    first, other = left.get("spec") or {}, right.get("spec") or {}
    if not _has_same_pod_level_charges(first, other):
        return False
    if any(
        not _same_containers(first.get(name) or [], other.get(name) or [])
        for name in ("initContainers", "containers")
    ):
        return False
    return not tolerations or {*map(_toleration_key, first.get("tolerations") or ())} == {
        *map(_toleration_key, other.get("tolerations") or ())
    }


def _has_same_pod_level_charges(first: JsonObject, other: JsonObject) -> bool:
    """Whether the charges apart from containers are equal.

    The API server adds the overhead of the RuntimeClass to pods, so a template need not contain it.
    """
    overheads = [spec.get("overhead") or {} for spec in (first, other)]
    of_class = bool(first.get("runtimeClassName")) and not all(overheads)
    return (
        (first.get("runtimeClassName") or "") == (other.get("runtimeClassName") or "")
        and (of_class or are_equivalent(*({"overhead": overhead} for overhead in overheads)))
        and are_equivalent(*({"resources": spec.get("resources")} for spec in (first, other)))
        and are_equivalent(*(_claims_by_name(spec) for spec in (first, other)))
    )


def _claims_by_name(spec: JsonObject) -> dict[str, JsonObject]:
    return {str(claim.get("name")): claim for claim in spec.get("resourceClaims") or ()}


def _same_containers(left: Sequence[JsonObject], right: Sequence[JsonObject]) -> bool:
    return left == right or are_equivalent(left, right)


def exact_quantity(quantity: Any) -> Fraction | Any:
    """Return the value of a quantity, so that all its notations are equal; an invalid quantity unchanged."""
    try:
        return parse_quantity(quantity)
    except QuantityError:
        return quantity
