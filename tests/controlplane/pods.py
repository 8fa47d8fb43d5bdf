"""Pods and pod groups of stories, and their states."""

from collections.abc import Iterable
from typing import Any

from admitq.runtime.errors import ApiError
from admitq.runtime.resources import PODS, Resource
from admitq_api.json_objects import value_at
from tests.controlplane.stage import RUN_SECONDS, Stage, condition_of

EXIT_CODE = "kwok.admitq.dev/exit-code"


async def pod(
    stage: Stage,
    name: str,
    *,
    queue: str | None = "lq",
    cpu: Any = 1,
    seconds: float | None = None,
    group: str | None = None,
    total: int | None = None,
    labels: Any = None,
    annotations: Any = None,
    **spec: Any,
) -> dict[str, Any]:
    """Create a pod, alone or in a group."""
    names = stage.names
    marks = {**({names.queue_name: queue} if queue else {}), **(labels or {})}
    notes = {} if seconds is None else {RUN_SECONDS: str(seconds)}
    if group is not None:
        marks[names.pod_group_name] = group
    if total is not None:
        notes[names.pod_group_total_count] = str(total)
    container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": cpu}}}
    return await stage.create(
        PODS,
        name,
        {
            "metadata": {"labels": marks, "annotations": {**notes, **(annotations or {})}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [container],
                "terminationGracePeriodSeconds": 1,
                **spec,
            },
        },
    )


async def group(stage: Stage, name: str, size: int, *, total: int | None = None, **fields: Any) -> None:
    """Create the pods ``<name>-0`` and so on, of a group."""
    for number in range(size):
        await pod(stage, f"{name}-{number}", group=name, total=total or size, **fields)


def gates(one: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in value_at(one, ("spec", "schedulingGates"), [])]


async def get_workload(stage: Stage, name: str) -> dict[str, Any]:
    """The Workload of this name."""
    return await stage.get(stage.kinds.workloads, name)


async def phases(stage: Stage, names: Iterable[str]) -> list[str]:
    """The state of each pod: ``gone``, ``going`` (terminating), ``held`` (gated) or its phase."""
    states: list[str] = []
    for name in names:
        try:
            one = await stage.get(PODS, name)
        except ApiError as error:
            if not error.is_not_found:
                raise
            states.append("gone")
            continue
        if "deletionTimestamp" in one["metadata"]:
            states.append("going")
        elif stage.names.admission_gate in gates(one):
            states.append("held")
        else:
            states.append(one["status"]["phase"])
    return states


async def until_phases(stage: Stage, **wanted: str) -> None:
    """Wait until pods have these states (see ``phases``); names have ``_`` for ``-``."""
    names = [name.replace("_", "-") for name in wanted]

    async def current() -> list[str]:
        return await phases(stage, names)

    await stage.until(current, list(wanted.values()), what=f"{wanted}")


async def until_workload(stage: Stage, name: str, type_: str, reason: str, status: str | None = None) -> None:
    """Wait until a Workload has a condition of this reason."""

    async def current() -> Any:
        condition = condition_of(await get_workload(stage, name), type_)
        return condition and (condition[0] if status else "", condition[1])

    await stage.until(current, (status or "", reason), what=f"{type_} {reason} of {name}")


async def until_released(stage: Stage, resource: Resource, *names: str) -> None:
    """Wait until these objects have no finalizers."""

    async def with_finalizers() -> list[str]:
        objects = [await stage.get(resource, name) for name in names]
        return [one["metadata"]["name"] for one in objects if one["metadata"].get("finalizers")]

    await stage.until(with_finalizers, [], what=f"{names} to be released")
