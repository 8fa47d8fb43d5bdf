"""The Workload that a command names: directly, or by its job as TYPE[.GROUP]/NAME."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from admitq.core.model import ObjectKey
from admitq.plugin.job_objects import find_known_resource, find_named
from admitq.plugin.object_kinds import WORKLOAD
from admitq.plugin.remedies import CommandError
from admitq.plugin.rows import is_true, owners_of
from admitq_api.json_objects import JsonObject, text_at

if TYPE_CHECKING:
    from admitq.plugin.cluster_access import ClusterAccess


class Target(NamedTuple):
    """What a command names. ``type`` is TYPE[.GROUP] of a job; empty for a Workload."""

    name: str
    type: str = ""

    def __str__(self) -> str:
        return f"{self.type}/{self.name}" if self.type else f"workload {self.name}"


def read_target(words: Sequence[str]) -> Target:
    """Return the target of the words NAME, TYPE NAME or TYPE/NAME.

    Raises:
        CommandError: the words have another form.
    """
    type_, slash, name = words[0].rpartition("/") if len(words) == 1 else (words[0], "/", words[1])
    is_valid = len(words) <= 2 and "/" not in type_ and name not in {"", ".", ".."} and "/" not in name
    if not is_valid or (slash and not type_):
        raise CommandError(
            f"{' '.join(words)!r} is not a workload\n"
            "Write NAME, workload NAME, or TYPE/NAME, such as job/train."
        )
    return Target(name, "" if type_.lower() in {WORKLOAD.name, *WORKLOAD.aliases} else type_)


async def find_key(access: "ClusterAccess", target: Target) -> ObjectKey:
    """Return the key of a Workload in a cluster. A Workload that is named directly may not exist.

    Raises:
        CommandError: there is no such job, or it has no Workload.
        ApiError: a call failed.
    """
    if not target.type:
        return ObjectKey(access.namespace, target.name)
    named = await find_named(access, str(target), access.namespace, option="")
    workloads, _ = await access.client.list(access.kinds.workloads, access.namespace)
    found = [one for one in workloads if named.has_workload(one, access.names.job_uid)]
    return ObjectKey(access.namespace, text_at(_latest(found, target), ("metadata", "name")))


def find_key_of_stored(workloads: Iterable[JsonObject], target: Target, namespace: str | None) -> ObjectKey:
    """Return the key of a Workload among stored ones.

    Args:
        workloads: the stored Workloads.
        target: what the user names.
        namespace: its namespace; None if the user gives none. Then its name must be unique.

    Raises:
        CommandError: no Workload, or Workloads of several namespaces are meant.
    """
    found = [
        one
        for one in workloads
        if (namespace is None or text_at(one, ("metadata", "namespace")) == namespace)
        and _is_meant(one, target)
    ]
    namespaces = sorted({text_at(one, ("metadata", "namespace")) for one in found})
    if len(namespaces) > 1:
        raise CommandError(
            f"{target} exists in the namespaces {', '.join(namespaces)}\nSelect one with --namespace."
        )
    chosen = _latest(found, target)
    return ObjectKey(text_at(chosen, ("metadata", "namespace")), text_at(chosen, ("metadata", "name")))


def _is_meant(workload: JsonObject, target: Target) -> bool:
    if not target.type:
        return text_at(workload, ("metadata", "name")) == target.name
    type_, _, group = target.type.lower().partition(".")
    known = find_known_resource(type_, group)
    kinds = {type_, type_.removesuffix("s")} if known is None else {known.kind.lower()}
    group = group if known is None else known.group
    return any(
        text_at(owner, ("name",)) == target.name
        and text_at(owner, ("kind",)).lower() in kinds
        and text_at(owner, ("apiVersion",)).rpartition("/")[0] == group
        for owner in owners_of(workload)
    )


def _latest(workloads: Sequence[JsonObject], target: Target) -> JsonObject:
    """Return the Workload that a user means: the last one that has not finished, or else the last one."""
    if not workloads:
        reason = (
            "has no Workload\nkubectl describe shows events of a job." if target.type else "does not exist"
        )
        raise CommandError(f"{target} {reason}")
    return max(
        workloads,
        key=lambda one: (
            not is_true(one, "Finished"),
            text_at(one, ("metadata", "creationTimestamp")),
            text_at(one, ("metadata", "name")),
        ),
    )
