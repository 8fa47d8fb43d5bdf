"""What ``hold``, ``release`` and ``move`` write, and what they refuse.

A decision about a Workload is written only to the version that was read. If the Workload has changed, it is
read and decided again.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from admitq.plugin.remedies import CommandError
from admitq.plugin.rows import condition_at, controller_of, is_true, job_owners_of, owners_of
from admitq.runtime.errors import ApiError
from admitq_api.json_objects import JsonObject, text_at, value_at

if TYPE_CHECKING:
    from admitq.plugin.cluster_access import ClusterAccess
    from admitq.runtime.resources import Resource
    from admitq_api.labels import Names

MOST_ATTEMPTS: Final = 5
"""How often a Workload that others change is read again."""
PATIENCE_S: Final = 10.0
"""How long the Workload of a moved job may take to follow."""
INTERVAL_S: Final = 0.1


def refuse_finished(workload: JsonObject) -> None:
    """Check that a Workload can still be admitted.

    Raises:
        CommandError: it has finished.
    """
    if is_true(workload, "Finished"):
        raise CommandError(
            f"workload {_name(workload)} has finished\nNothing can change this. Create a new job."
        )


def hold_patch(workload: JsonObject) -> dict[str, Any]:
    """Return the patch that holds a Workload; empty if it is held already.

    Raises:
        CommandError: it has finished, or it has quota.
    """
    refuse_finished(workload)
    if is_true(workload, "QuotaReserved"):
        queue = text_at(workload, ("status", "admission", "clusterQueue"))
        raise CommandError(
            f"workload {_name(workload)} has quota of ClusterQueue {queue}\n"
            f"kubectl admitq stop workload {_name(workload)} stops its job."
        )
    return {} if value_at(workload, ("spec", "active")) is False else {"spec": {"active": False}}


def gates_of(obj: JsonObject, names: "Names") -> list[str]:
    """Return the admission gates of a job or a Workload."""
    listed = text_at(obj, ("metadata", "annotations", names.admission_gated_by))
    return [gate.strip() for gate in listed.split(",") if gate.strip()]


def gate_patch(obj: JsonObject, removed: Sequence[str], names: "Names") -> dict[str, Any]:
    """Return the patch that removes admission gates from a job or a Workload."""
    remaining = [gate for gate in gates_of(obj, names) if gate not in removed]
    return {"metadata": {"annotations": {names.admission_gated_by: ",".join(remaining) or None}}}


def check_gates(workload: JsonObject, removed: Sequence[str], names: "Names") -> None:
    """Check that a Workload has the gates that are to be removed.

    Raises:
        CommandError: it does not have one of them.
    """
    gates = gates_of(workload, names)
    for gate in removed:
        if gate not in gates:
            has = f"It has {', '.join(gates)}." if gates else "It has none: leave out --gate."
            raise CommandError(f"--gate: workload {_name(workload)} has no gate {gate!r}\n{has}")


def refuse_move(workload: JsonObject) -> None:
    """Check that a Workload may wait in another queue.

    Raises:
        CommandError: it has finished or has quota, or several objects would have to change at the same time.
    """
    refuse_finished(workload)
    name = _name(workload)
    if is_true(workload, "QuotaReserved"):
        queue = text_at(workload, ("status", "admission", "clusterQueue"))
        raise CommandError(
            f"workload {name} has quota of ClusterQueue {queue}, so its queue cannot change\n"
            f"Stop it first: kubectl admitq stop workload {name}. Then move and resume it."
        )
    if not controller_of(workload) and len(owners_of(workload)) > 1:
        raise CommandError(
            f"workload {name} belongs to {len(owners_of(workload))} objects, which cannot change together\n"
            "Delete them, and create them with the label of the other queue."
        )


async def hold(access: "ClusterAccess", name: str) -> str:
    """Let a Workload that waits not be admitted, and return what was done.

    Raises:
        CommandError: it has finished, or it has quota.
        ApiError: a call failed.
    """
    changed = await _change(access, name, hold_patch)
    return f"{_full(access, name)} {'held' if changed else 'is held already'}"


async def release(access: "ClusterAccess", name: str, gates: Sequence[str]) -> str:
    """Let a held Workload be admitted, remove admission gates, and return what was done.

    Raises:
        CommandError: it has finished, or does not have one of the gates.
        ApiError: a call failed.
    """

    def activate(workload: JsonObject) -> dict[str, Any]:
        refuse_finished(workload)
        check_gates(workload, gates, access.names)
        return {"spec": {"active": True}} if value_at(workload, ("spec", "active")) is False else {}

    is_held = await _change(access, name, activate)
    workload = await access.client.get(access.kinds.workloads, name, access.namespace)
    if gates:
        for resource, job in await _jobs_of(access, workload):
            # A patch without a version could add gates again that others have removed.
            version = {"resourceVersion": text_at(job, ("metadata", "resourceVersion"))}
            patch = gate_patch(job, gates, access.names)
            patch["metadata"] |= version
            await _patch(access, resource, text_at(job, ("metadata", "name")), patch)
    if remaining := [gate for gate in gates_of(workload, access.names) if gate not in gates]:
        options = "".join(f" --gate {gate}" for gate in remaining)
        text = f"workload {name} has the gates {', '.join(remaining)}"
        remedy = f"kubectl admitq release workload {name}{options} removes them."
        if not is_held and not gates:
            raise CommandError(f"{text}\n{remedy}")
        print(f"warning: {text}\n{remedy}", file=sys.stderr)
    return f"{_full(access, name)} {'released' if is_held or gates else 'is not held'}"


async def move(access: "ClusterAccess", name: str, queue: str) -> str:
    """Let a Workload wait in another LocalQueue, and return what was done.

    Raises:
        CommandError: the queue does not exist, the Workload may not move, or it has not followed its job.
        ApiError: a call failed.
    """
    await _check_queue(access, queue)
    workload = await access.client.get(access.kinds.workloads, name, access.namespace)
    refuse_move(workload)
    if text_at(workload, ("spec", "queueName")) == queue:
        return f"{_full(access, name)} is in localqueue {queue} already"
    if not owners_of(workload):
        await _change(access, name, lambda one: _queue_patch(one, queue))
        return f"{_full(access, name)} moved to localqueue {queue}"
    ((resource, job),) = await _jobs_of(access, workload)
    patch = {"metadata": {"labels": {access.names.queue_name: queue}}}
    await _patch(access, resource, text_at(job, ("metadata", "name")), patch)
    await _wait_for_queue(access, name, queue)
    return f"{_full(access, name)} moved to localqueue {queue}"


def _queue_patch(workload: JsonObject, queue: str) -> dict[str, Any]:
    refuse_move(workload)
    return {"spec": {"queueName": queue}}


async def _check_queue(access: "ClusterAccess", queue: str) -> None:
    queues = access.kinds.local_queues
    try:
        found = await access.client.get(queues, queue, access.namespace)
    except ApiError as error:
        if not error.is_not_found:
            raise
        raise CommandError(
            f"--to: {error.message}\nkubectl get {queues} -n {access.namespace} lists what exists."
        ) from error
    if is_inactive(found):
        print(f"warning: localqueue {queue} is not active, and admits nothing", file=sys.stderr)


def is_inactive(queue: JsonObject) -> bool:
    """Return whether a queue's status says that it is not active.

    A new queue has no conditions until the manager has seen it.
    """
    return condition_at(queue, "Active").get("status") == "False"


async def _wait_for_queue(access: "ClusterAccess", name: str, queue: str) -> None:
    """Wait until the job controller has changed the Workload.

    Raises:
        CommandError: it has not within the deadline.
        ApiError: a call failed.
    """
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                workload = await access.client.get(access.kinds.workloads, name, access.namespace)
                if text_at(workload, ("spec", "queueName")) == queue:
                    return
                await asyncio.sleep(INTERVAL_S)
    except TimeoutError as error:
        raise CommandError(
            f"the job has the label of localqueue {queue}, but workload {name} has not followed\n"
            "kubectl admitq doctor shows whether a manager runs."
        ) from error


async def _change(access: "ClusterAccess", name: str, decide: Callable[[JsonObject], dict[str, Any]]) -> bool:
    """Patch a Workload as a function decides, and return whether there was anything to change.

    Raises:
        CommandError: the function refused, or others change the Workload all the time.
        ApiError: a call failed.
    """
    for _ in range(MOST_ATTEMPTS):
        workload = await access.client.get(access.kinds.workloads, name, access.namespace)
        patch = decide(workload)
        if not patch:
            return False
        version = {"resourceVersion": text_at(workload, ("metadata", "resourceVersion"))}
        try:
            await _patch(access, access.kinds.workloads, name, {**patch, "metadata": version})
        except ApiError as error:
            if error.is_conflict:
                continue
            raise
        return True
    raise CommandError(f"workload {name} changes all the time\nRetry later.")


async def _patch(access: "ClusterAccess", resource: "Resource", name: str, patch: dict[str, Any]) -> None:
    from admitq.plugin.cluster_access import FIELD_MANAGER

    namespace = access.namespace if resource.namespaced else None
    await access.client.merge_patch(resource, name, patch, namespace, field_manager=FIELD_MANAGER)


async def _jobs_of(access: "ClusterAccess", workload: JsonObject) -> list[tuple["Resource", dict[str, Any]]]:
    """Return the jobs of a Workload with their resources; the Workload itself if it has none.

    Raises:
        CommandError: the kind of a job is not served.
        ApiError: a call failed.
    """
    from admitq.plugin.job_objects import find_owner_resource

    owners = job_owners_of(workload)
    if not owners:
        return [(access.kinds.workloads, dict(workload))]
    jobs: list[tuple[Resource, dict[str, Any]]] = []
    for owner in owners:
        resource = await find_owner_resource(access, owner)
        jobs.append(
            (resource, await access.client.get(resource, text_at(owner, ("name",)), access.namespace))
        )
    return jobs


def _name(workload: JsonObject) -> str:
    return text_at(workload, ("metadata", "name"))


def _full(access: "ClusterAccess", name: str) -> str:
    return f"workload.{access.names.group}/{name}"
