"""Match conditions of the webhooks of Workloads.

The mutating webhook is called before the schema is checked, so that fields may have values of any type. The
validating webhook is called afterwards.
"""

from typing import Final

from admitq_api.labels import Names
from admitq_api.syntax import LABEL_VALUE_PATTERN, QUALIFIED_NAME_PATTERN
from admitq_webhooks.match_conditions.expressions import LONGEST_LABEL_VALUE, MOST_ENTRIES

_RESTRICTED_STATUS_FIELDS: Final = ("admissionChecks", "clusterName")
"""Fields of the status of a Workload of which rules restrict every change."""

_SLICE_FIELDS: Final = (
    "podSetSliceRequiredTopology",
    "podSetSliceSize",
    "podsetSliceRequiredTopologyConstraints",
)
_LONGEST_ANNOTATION: Final = 4096

_HAS_MINIMUM_COUNT: Final = (
    "has(object.spec) && has(object.spec.podSets) && type(object.spec.podSets) == list"
    " && object.spec.podSets.exists(p, type(p) == map && has(p.minCount))"
)
_ASSIGNMENTS: Final = "object.status.admission.podSetAssignments"
_IS_PODSET: Final = "object.spec.podSets.exists(p, has(p.name) && p.name == a.name)"
_UNITS: Final = (
    "(v.endsWith('i') ? 1024 : v.endsWith('m') ? 1 : r == 'cpu' || v.matches('[kMGTPE]$') ? 1000 : 1)"
)
"""A divisor of the unit of a quantity ``v`` of a resource ``r``, counted in milli-CPU or whole units."""
_IS_MULTIPLE: Final = (
    "type(v) == int ? v % a.count == 0"
    " : v.matches('^[0-9]{1,15}([kMGTPE]|[KMGTPE]i)?$|^[0-9]{1,15}m$') && (!v.endsWith('m') || r == 'cpu')"
    f" && int(v.find('^[0-9]+')) * {_UNITS} % a.count == 0"
)
"""Whether a quantity is certainly a multiple of the number of pods."""
_HAS_EVEN_ADMISSION: Final = (
    f"has(object.status.admission) && has({_ASSIGNMENTS}) && {_ASSIGNMENTS}.all(a,"
    f" has(a.name) && {_IS_PODSET} && has(a.count) && a.count > 0 && (a.count == 1 || !has(a.resourceUsage)"
    f" || (a.resourceUsage.size() <= {MOST_ENTRIES}"
    f" && a.resourceUsage.all(r, [a.resourceUsage[r]].all(v, {_IS_MULTIPLE})))))"
)
"""Whether an admission only assigns existing podsets, and amounts that are multiples of their pods."""

_RECLAIMABLE_FIELD: Final = "status.reclaimablePods"
_RECLAIMABLE: Final = f"object.{_RECLAIMABLE_FIELD}"
_HAS_GROWN_RECLAIMABLE_PODS: Final = (
    f"has({_RECLAIMABLE}) && {_RECLAIMABLE}.all(r, object.spec.podSets.exists(p,"
    " has(p.name) && p.name == r.name && r.count <= (has(p.count) ? p.count : 1)))"
    f" && (!has(oldObject.{_RECLAIMABLE_FIELD}) || oldObject.{_RECLAIMABLE_FIELD}.all(o,"
    f" {_RECLAIMABLE}.exists(r, r.name == o.name && r.count >= o.count)))"
)
"""Whether each podset has at least as many reclaimable pods as before, and at most its pods."""


def has_field_to_change(names: Names) -> str:
    """Return the CEL expression that is true if the webhook may change a new Workload.

    It only removes minimum counts and the label of finished Workloads.
    """
    labels = "object.metadata.labels"
    return f"({_HAS_MINIMUM_COUNT}) || (has({labels}) && '{names.finished}' in {labels})"


def may_break_rule(names: Names) -> str:
    """Return the CEL expression that is true if the rules of Workloads may reject a request.

    They never reject a new Workload of simple podsets without labels and annotations to check. They never
    reject an update of the status that leaves ``_RESTRICTED_STATUS_FIELDS`` as they are, if its reclaimable
    pods are the same or more, and if it does not reserve quota, or reserves it for existing podsets and
    multiples of their pods. Such an update changes no spec and no metadata.
    """
    begins = f"({_is_reserved('object')}) && !({_is_reserved('oldObject')})"
    is_admission_changed = f"({_is_status_field_changed('admission')}) || ({begins})"
    is_restricted = " || ".join(
        (
            "!has(request.subResource)",
            "request.subResource != 'status'",
            *map(_is_status_field_changed, _RESTRICTED_STATUS_FIELDS),
            f"(({_is_status_field_changed('reclaimablePods')}) && !({_HAS_GROWN_RECLAIMABLE_PODS}))",
            f"(({is_admission_changed}) && !({begins} && {_HAS_EVEN_ADMISSION}) && !({_releases()}))",
        )
    )
    return f"request.operation == 'CREATE' ? !({_is_new_and_simple(names)}) : ({is_restricted})"


def _is_status_field_changed(field: str) -> str:
    now, before = (f"has({each}.status) && has({each}.status.{field})" for each in ("object", "oldObject"))
    return f"({now}) != ({before}) || ({now} && object.status.{field} != oldObject.status.{field})"


def _is_reserved(obj: str) -> str:
    reserved = "c.type == 'QuotaReserved' && c.status == 'True'"
    conditions = f"{obj}.status.conditions"
    return f"has({obj}.status) && has({conditions}) && {conditions}.exists(c, {reserved})"


def _releases() -> str:
    return f"!({_is_reserved('object')}) && !(has(object.status) && has(object.status.admission))"


def _is_new_and_simple(names: Names) -> str:
    annotations, labels = "object.metadata.annotations", "object.metadata.labels"
    is_restricted = f"k.startsWith('{names.group}/')"
    return (
        f"(!has({annotations}) || ({annotations}.size() <= {MOST_ENTRIES}"
        f" && !{annotations}.exists(k, {is_restricted})))"
        f" && (!has({labels}) || !('{names.finished}' in {labels}))"
        f" && !has(object.status) && has(object.spec.podSets)"
        f" && object.spec.podSets.all(p, {_is_simple_podset('p')})"
    )


def _is_simple_podset(podset: str) -> str:
    template = f"{podset}.template"
    spec = f"{template}.spec"
    has_slices = " || ".join(f"has({podset}.topologyRequest.{field})" for field in _SLICE_FIELDS)
    return " && ".join(
        (
            f"!has({podset}.minCount)",
            f"(!has({podset}.topologyRequest) || !({has_slices}))",
            f"(!has({template}.metadata) || ({_has_valid_metadata(f'{template}.metadata')}))",
            f"has({template}.spec)",
            f"!has({spec}.resources)",
            *(_has_simple_containers(f"{spec}.{field}") for field in ("containers", "initContainers")),
        )
    )


def _has_valid_metadata(metadata: str) -> str:
    labels, annotations = f"{metadata}.labels", f"{metadata}.annotations"
    key = f"k.size() <= {LONGEST_LABEL_VALUE} && k.matches(r'{QUALIFIED_NAME_PATTERN}')"
    value = f"{labels}[k].size() <= {LONGEST_LABEL_VALUE} && {labels}[k].matches(r'{LABEL_VALUE_PATTERN}')"
    return (
        f"(!has({labels}) || ({labels}.size() <= {MOST_ENTRIES} && {labels}.all(k, {key} && {value})))"
        f" && (!has({annotations}) || ({annotations}.size() <= {MOST_ENTRIES}"
        f" && {annotations}.all(k, {key} && {annotations}[k].size() <= {_LONGEST_ANNOTATION})))"
    )


def _has_simple_containers(containers: str) -> str:
    is_positive = "type(q[r]) == int ? q[r] >= 0 : type(q[r]) == string && !q[r].startsWith('-')"
    amounts = f"q.size() <= {MOST_ENTRIES} && q.all(r, r != 'pods' && ({is_positive}))"
    of_container = " && ".join(
        f"(!has(c.resources.{kind}) || [c.resources.{kind}].all(q, {amounts}))"
        for kind in ("requests", "limits")
    )
    return (
        f"(!has({containers}) || ({containers}.size() <= {MOST_ENTRIES}"
        f" && {containers}.all(c, !has(c.resources) || ({of_container}))))"
    )
