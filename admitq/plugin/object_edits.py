"""Options of ``whatif`` that change one field of an object, or delete an object. Pure.

Every error is a `CommandError` that names the option and shows a valid value.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from admitq.manifests.objects import ObjectId
from admitq.plugin.object_kinds import CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR, WORKLOAD
from admitq.plugin.remedies import CommandError
from admitq.plugin.stop_resume import stop_patch
from admitq_api.json_objects import JsonObject, apply_merge_patch, objects_at, text_at
from admitq_api.labels import Names
from admitq_api.quantity import parse_quantity

QUOTA: Final = "--quota"
COHORT: Final = "--cohort"
STOP: Final = "--stop"
PRIORITY: Final = "--priority"
DELETE: Final = "--delete"

_INT32: Final = range(-(2**31), 2**31)
_SERVER_FIELDS: Final = ("managedFields", "resourceVersion")
"""Fields of metadata that are no part of a manifest."""


class Edit(NamedTuple):
    """A change of one object: ``change`` returns the changed object."""

    target: ObjectId
    change: Callable[[JsonObject], JsonObject]


class Deletion(NamedTuple):
    """A kind that can be deleted: its names on the command line, and whether objects have a namespace."""

    words: tuple[str, ...]
    kind: str
    namespaced: bool = False
    api_version: str | None = None
    """None means that of admitq's own group."""


_DELETIONS: Final = (
    Deletion((CLUSTER_QUEUE.name, *CLUSTER_QUEUE.aliases), "ClusterQueue"),
    Deletion((LOCAL_QUEUE.name, *LOCAL_QUEUE.aliases), "LocalQueue", namespaced=True),
    Deletion((RESOURCE_FLAVOR.name, *RESOURCE_FLAVOR.aliases), "ResourceFlavor"),
    Deletion((WORKLOAD.name, *WORKLOAD.aliases), "Workload", namespaced=True),
    Deletion(("cohort", "cohorts"), "Cohort"),
    Deletion(("admissioncheck", "admissionchecks", "ac"), "AdmissionCheck"),
    Deletion(("workloadpriorityclass", "workloadpriorityclasses", "wpc"), "WorkloadPriorityClass"),
    Deletion(("namespace", "namespaces", "ns"), "Namespace", api_version="v1"),
)


def read_edits(
    namespace: str,
    *,
    quotas: Iterable[str] = (),
    cohorts: Iterable[str] = (),
    stops: Iterable[str] = (),
    priorities: Iterable[str] = (),
) -> list[Edit]:
    """Return the changes of the options, in this order.

    Args:
        namespace: the namespace of LocalQueues and Workloads.
        quotas: texts ``CQ:FLAVOR:RESOURCE=AMOUNT``.
        cohorts: texts ``CQ=COHORT``. Without a cohort, the ClusterQueue leaves its cohort.
        stops: texts ``cq/NAME`` or ``lq/NAME``.
        priorities: texts ``WORKLOAD=N``.

    Raises:
        CommandError: a text has another form, or an invalid amount or number.
    """
    return [
        *map(_quota, quotas),
        *map(_cohort, cohorts),
        *(_stop(text, namespace) for text in stops),
        *(_priority(text, namespace) for text in priorities),
    ]


def read_deletion(
    text: str, namespace: str, names: Names, jobs: Sequence[tuple[str, str, str]]
) -> JsonObject:
    """Return what a text ``TYPE[.GROUP]/NAME`` deletes, as the visibility API and hypotheses expect it.

    Args:
        text: the value of the option.
        namespace: the namespace of namespaced objects.
        names: the names of the API group.
        jobs: the kinds of jobs: API version, kind and plural.

    Raises:
        CommandError: the text has another form, or its type is not known.
    """
    type_, slash, name = text.partition("/")
    if not (slash and type_ and name) or "/" in name:
        raise CommandError(f"{DELETE}: {text!r} is not TYPE/NAME\nWrite, for example, {DELETE} job/train.")
    word, _, group = type_.lower().partition(".")
    for deletion in _DELETIONS:
        own_group = names.group if deletion.api_version is None else ""
        if word in deletion.words and group in {"", own_group}:
            version = deletion.api_version or names.api_version
            return _deletion(version, deletion.kind, namespace if deletion.namespaced else "", name)
    for api_version, kind, plural in jobs:
        if word in {kind.lower(), plural} and group in {"", api_version.rpartition("/")[0]}:
            return _deletion(api_version, kind, namespace, name)
    known = ", ".join(deletion.words[0] for deletion in _DELETIONS)
    raise CommandError(
        f"{DELETE}: {type_!r} is not a type on which decisions depend\nUse a kind of job, or one of {known}."
    )


def _deletion(api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any]:
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": api_version, "kind": kind, **place, "name": name}


def apply_edits(
    edits: Iterable[Edit], get: Callable[[ObjectId], JsonObject | None], names: Names
) -> list[dict[str, Any]]:
    """Return the changed objects as whole manifests.

    Args:
        edits: the changes. Several changes of an object are applied one after the other.
        get: returns an object before the changes; None if it does not exist.
        names: the names of the API group.

    Raises:
        CommandError: an object does not exist, or does not have the quota to change.
    """
    changed: dict[ObjectId, JsonObject] = {}
    for edit in edits:
        obj = changed.get(edit.target) or get(edit.target)
        if obj is None:
            raise CommandError(f"{edit.target} does not exist")
        changed[edit.target] = edit.change(obj)
    return [_manifest(target, obj, names) for target, obj in changed.items()]


def _manifest(target: ObjectId, obj: JsonObject, names: Names) -> dict[str, Any]:
    metadata: Mapping[str, Any] = obj["metadata"]
    kept = {key: value for key, value in metadata.items() if key not in _SERVER_FIELDS}
    return {
        "apiVersion": names.api_version,
        "kind": target.kind,
        "metadata": kept,
        "spec": obj.get("spec") or {},
    }


# --- the options --------------------------------------------------------------------------------------


def _quota(text: str) -> Edit:
    path, equals, amount = text.partition("=")
    queue, _, rest = path.partition(":")
    flavor, _, resource = rest.partition(":")
    if not (equals and queue and flavor and resource and amount):
        raise CommandError(
            f"{QUOTA}: {text!r} is not CQ:FLAVOR:RESOURCE=AMOUNT\n"
            f"Write, for example, {QUOTA} team-a:default:cpu=20."
        )
    try:
        is_valid = parse_quantity(amount) >= 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise CommandError(f"{QUOTA}: {amount!r} is not an amount\nAmounts look like 10, 500m or 64Gi.")

    def change(obj: JsonObject) -> JsonObject:
        known = list(_quotas_of(obj))
        if (flavor, resource) not in known:
            listed = ", ".join(f"{queue}:{flavor}:{resource}" for flavor, resource in known) or "none"
            raise CommandError(
                f"{QUOTA}: ClusterQueue {queue} has no quota of {resource} in flavor {flavor}\n"
                f"It has: {listed}. Change other fields with -f."
            )
        groups = [
            {
                **group,
                "flavors": [
                    _with_quota(entry, resource, amount) if text_at(entry, ("name",)) == flavor else entry
                    for entry in objects_at(group, ("flavors",))
                ],
            }
            for group in objects_at(obj, ("spec", "resourceGroups"))
        ]
        return apply_merge_patch(obj, {"spec": {"resourceGroups": groups}})

    return Edit(ObjectId("ClusterQueue", "", queue), change)


def _quotas_of(obj: JsonObject) -> Iterable[tuple[str, str]]:
    for group in objects_at(obj, ("spec", "resourceGroups")):
        for flavor in objects_at(group, ("flavors",)):
            for resource in objects_at(flavor, ("resources",)):
                yield text_at(flavor, ("name",)), text_at(resource, ("name",))


def _with_quota(flavor: JsonObject, resource: str, amount: str) -> JsonObject:
    return {
        **flavor,
        "resources": [
            {**entry, "nominalQuota": amount} if text_at(entry, ("name",)) == resource else entry
            for entry in objects_at(flavor, ("resources",))
        ],
    }


def _cohort(text: str) -> Edit:
    queue, equals, cohort = text.partition("=")
    if not (equals and queue):
        raise CommandError(
            f"{COHORT}: {text!r} is not CQ=COHORT\nWrite, for example, {COHORT} team-a=all; {COHORT} team-a= "
            "removes the ClusterQueue from its cohort."
        )
    patch = {"spec": {"cohortName": cohort or None}}
    return Edit(ObjectId("ClusterQueue", "", queue), partial(_patched, patch))


def _stop(text: str, namespace: str) -> Edit:
    type_, _, name = text.partition("/")
    for kind in (CLUSTER_QUEUE, LOCAL_QUEUE):
        if name and type_.lower() in {kind.name, *kind.aliases}:
            patch = stop_patch(kind)
            target = ObjectId(kind.title, namespace if kind is LOCAL_QUEUE else "", name)
            return Edit(target, partial(_patched, patch))
    raise CommandError(f"{STOP}: {text!r} is not cq/NAME or lq/NAME\nWrite, for example, {STOP} cq/team-a.")


def _priority(text: str, namespace: str) -> Edit:
    name, equals, number = text.rpartition("=")
    try:
        value = int(number)
    except ValueError:
        value = None
    if not (equals and name) or value is None or value not in _INT32:
        raise CommandError(
            f"{PRIORITY}: {text!r} is not WORKLOAD=N\nWrite, for example, {PRIORITY} job-train-4c2f1=100."
        )
    patch = {"spec": {"priority": value}}
    return Edit(ObjectId("Workload", namespace, name), partial(_patched, patch))


def _patched(patch: Mapping[str, Any], obj: JsonObject) -> JsonObject:
    return apply_merge_patch(obj, patch)
