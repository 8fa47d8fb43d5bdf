"""Plays stories in YAML on a stage: they create objects, and expect literal texts of conditions.

A case has a ``name``, the ``rows`` of the semantics that it shows (``rows.yaml`` describes them), and
``steps``. Each step is one word with its arguments. Names of cluster-scoped objects get the suffix of the
story. In texts, ``$name`` stands for such a name, ``$ns`` for the namespace, ``$uid(w)`` for the UID of a
Workload, and ``$key(name)`` for a label or annotation of the API group.

Workloads here have no job: the story finishes them, and releases the quota of evicted ones.
"""

import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from admitq.runtime.errors import ApiError
from admitq.runtime.resources import LIMIT_RANGES, NAMESPACES, RUNTIME_CLASSES, Resource
from admitq_api.conditions import SECOND, Reason, parse_time
from admitq_api.json_objects import value_at
from localcluster.waiting import eventually
from tests.controlplane.stage import EVENT_SECONDS, Stage, condition_of

FOLDER = Path(__file__).parent / "cases"
FLAVOR = "f"
"""The flavor of a quota without a flavor."""


@dataclass(frozen=True)
class Case:
    """One story."""

    name: str
    rows: tuple[str, ...]
    steps: tuple[Mapping[str, Any], ...]
    missing: tuple[str, ...] = ()
    """Flavors of quotas that are not created."""

    def __str__(self) -> str:
        return f"{'; '.join(self.rows)}: {self.name}"


def cases(file: str) -> list[Case]:
    """The stories of a file."""
    listed: list[dict[str, Any]] = yaml.load((FOLDER / file).read_text(), Loader=yaml.CSafeLoader)
    return [
        Case(one["name"], tuple(one["rows"]), tuple(one["steps"]), tuple(one.get("missing", ())))
        for one in listed
    ]


async def play(stage: Stage, case: Case) -> None:
    """Play a story to its end.

    Raises:
        AssertionError: an expectation failed; the message has the step and the observed state.
    """
    running = Play(stage, frozenset(case.missing))
    for number, step in enumerate(case.steps, start=1):
        for word, what in step.items():
            try:
                await running.words[word](what)
            except (AssertionError, ApiError) as error:
                raise AssertionError(f"{case}, step {number}, {word}: {error}") from error


@dataclass
class StoryNames:
    """The real names of the objects of a story."""

    stage: Stage
    uids: dict[str, str] = field(default_factory=dict[str, str])
    """The UIDs of Workloads that the story created."""

    def with_real_names(self, value: Any) -> Any:
        """A value with the real names in its texts."""
        if isinstance(value, Mapping):
            return {self.with_real_names(key): self.with_real_names(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.with_real_names(item) for item in value]
        if not isinstance(value, str):
            return value
        with_uids = re.sub(r"\$uid\((\w+)\)", lambda found: self.uids[found[1]], value)
        with_uids = re.sub(r"\$key\((\w+)\)", lambda found: getattr(self.stage.names, found[1]), with_uids)
        return re.sub(
            r"\$(\w+)",
            lambda found: self.stage.namespace if found[1] == "ns" else self.stage.own(found[1]),
            with_uids,
        )

    def resource_and_name(self, what: str) -> tuple[Resource, str]:
        """The resource and the real name of ``Kind name``."""
        kind, name = what.split()
        kinds = self.stage.kinds
        found = {
            one.kind: one
            for one in (
                kinds.cluster_queues,
                kinds.local_queues,
                kinds.cohorts,
                kinds.resource_flavors,
                kinds.admission_checks,
                kinds.topologies,
                kinds.workloads,
                LIMIT_RANGES,
                RUNTIME_CLASSES,
            )
        }[kind]
        return found, name if found.namespaced else self.stage.own(name)


def _each(word: Callable[[str, Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    async def do(what: Mapping[str, Any]) -> None:
        for name, value in what.items():
            await word(name, value)

    return do


def _listed(word: Callable[[str], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    async def do(what: Iterable[str]) -> None:
        for name in what:
            await word(name)

    return do


@dataclass
class Play:
    """One story being played."""

    stage: Stage
    missing: frozenset[str]
    _flavors: set[str] = field(default_factory=set[str])
    _names: StoryNames = field(init=False)

    def __post_init__(self) -> None:
        self._names = StoryNames(self.stage)

    @property
    def words(self) -> Mapping[str, Callable[[Any], Awaitable[None]]]:
        """The words of steps, and their functions."""
        return {
            "flavor": _each(self._flavor),
            "cohort": _each(self._cohort),
            "queue": _each(self._queue),
            "local_queue": _each(self._local_queue),
            "workload": _each(self._workload),
            "check": _each(self._check),
            "topology": _each(self._topology),
            "limit_range": _each(self._limit_range),
            "runtime_class": _each(self._runtime_class),
            "change": _each(self._change),
            "status": _each(self._status),
            "label_namespace": self._label_namespace,
            "delete": _listed(self._delete),
            "finish": _listed(self._finish),
            "release": _listed(self._release),
            "pods_ready": _listed(self._pods_ready),
            "later_than": _listed(self._later_than),
            "admitted": _listed(self._is_admitted),
            "pending": _each(self._is_pending),
            "evicted": _each(self._is_evicted),
            "see": _each(self._sees),
            "assigned": _each(self._is_assigned),
            "count": _each(self._has_count),
            "events": _each(self._has_events),
            "field": _each(self._has_field),
        }

    # --- creation ---------------------------------------------------------------------------------

    async def _flavor(self, name: str, spec: dict[str, Any] | None) -> None:
        self._flavors.add(name)
        await self.stage.flavor(name, **self._names.with_real_names(spec or {}))

    async def _cohort(self, name: str, given: dict[str, Any] | None) -> None:
        spec = await self._quotas(dict(given or {}))
        await self.stage.create(self.stage.kinds.cohorts, self.stage.own(name), {"spec": spec})

    async def _queue(self, name: str, given: dict[str, Any]) -> None:
        """A ClusterQueue, and a LocalQueue of the same name."""
        spec = {"namespaceSelector": {}, **await self._quotas(dict(given))}
        await self.stage.create(self.stage.kinds.cluster_queues, self.stage.own(name), {"spec": spec})
        try:
            await self.stage.local_queue(name, cluster_queue=name)
        except ApiError as error:
            # A queue that is made once more finds what leads to it.
            if not error.is_already_exists:
                raise

    async def _local_queue(self, name: str, spec: dict[str, Any]) -> None:
        await self.stage.create(
            self.stage.kinds.local_queues, name, {"spec": self._names.with_real_names(spec)}
        )

    async def _quotas(self, given: dict[str, Any]) -> dict[str, Any]:
        """The spec of a quota in short form, with its flavors."""
        if "cpu" in given:
            given["quota"] = [{FLAVOR: {"cpu": given.pop("cpu")}}]
        groups: list[dict[str, Any]] = []
        for group in given.pop("quota", ()):
            flavors: list[dict[str, Any]] = []
            for flavor, quotas in group.items():
                if flavor not in self._flavors and flavor not in self.missing:
                    await self._flavor(flavor, None)
                resources = [_quota(name, quota) for name, quota in quotas.items()]
                flavors.append({"name": self.stage.own(flavor), "resources": resources})
            covered = [one["name"] for one in flavors[0]["resources"]]
            groups.append({"coveredResources": covered, "flavors": flavors})
        for short, name in (("cohort", "cohortName"), ("parent", "parentName")):
            if short in given:
                given[name] = f"${given.pop(short)}"
        if "weight" in given:
            given["fairSharing"] = {"weight": given.pop("weight")}
        if "checks" in given:
            listed = [{"name": f"${name}"} for name in given.pop("checks")]
            given["admissionChecksStrategy"] = {"admissionChecks": listed}
        return {**self._names.with_real_names(given), **({"resourceGroups": groups} if groups else {})}

    async def _workload(self, name: str, given: dict[str, Any]) -> None:
        given = dict(given)
        pod_sets = given.pop("pod_sets", None)
        shape_of = {key: given.pop(key) for key in tuple(given) if key in _OF_POD_SETS or "/" in key}
        spec = {
            "queueName": given.pop("queue"),
            "podSets": [_pod_set(**one) for one in pod_sets or [shape_of]],
            **({"priority": given.pop("priority")} if "priority" in given else {}),
        }
        metadata = {"metadata": {"annotations": given.pop("annotations")}} if "annotations" in given else {}
        obj = {**metadata, "spec": {**spec, **given}}
        made = await self.stage.create(self.stage.kinds.workloads, name, self._names.with_real_names(obj))
        self._names.uids[name] = made["metadata"]["uid"]

    async def _check(self, name: str, active: bool | str) -> None:
        """Create a check that is active or not; "multikueue": an active one of MultiKueue."""
        checks, own = self.stage.kinds.admission_checks, self.stage.own(name)
        is_multikueue = active == "multikueue"
        controller = self.stage.names.multikueue_controller if is_multikueue else "example.com/c"
        await self.stage.create(checks, own, {"spec": {"controllerName": controller}})
        await self.stage.change(checks, own, {"status": {"conditions": [_active(bool(active))]}}, "status")

    async def _topology(self, name: str, levels: list[str]) -> None:
        spec = {"levels": [{"nodeLabel": level} for level in levels]}
        await self.stage.create(self.stage.kinds.topologies, self.stage.own(name), {"spec": spec})

    async def _limit_range(self, name: str, limits: list[dict[str, Any]]) -> None:
        await self.stage.create(LIMIT_RANGES, name, {"spec": {"limits": limits}})

    async def _runtime_class(self, name: str, overhead: dict[str, Any] | None) -> None:
        fixed = {} if overhead is None else {"overhead": {"podFixed": overhead}}
        await self.stage.create(RUNTIME_CLASSES, self.stage.own(name), {"handler": "h", **fixed})

    # --- what happens -----------------------------------------------------------------------------

    async def _change(self, what: str, patch: dict[str, Any]) -> None:
        resource, name = self._names.resource_and_name(what)
        if "active" in patch:
            status = {"status": {"conditions": [_active(patch["active"])]}}
            await self.stage.change(resource, name, status, "status")
            return
        await self.stage.change(resource, name, self._names.with_real_names(patch))

    async def _status(self, name: str, status: dict[str, Any]) -> None:
        await self.stage.change(
            self.stage.kinds.workloads, name, {"status": self._names.with_real_names(status)}, "status"
        )

    async def _label_namespace(self, labels: dict[str, Any]) -> None:
        """Label the namespace, and wait until admitq has observed it.

        A Workload made at once may reach admitq before the labels: watches have no common order. So a
        Workload waits, in a queue of its own that selects these labels, until it lacks nothing but quota.
        """
        stage, kinds, name = self.stage, self.stage.kinds, "labels-seen"
        labelled = {"metadata": {"labels": labels}}
        await stage.client.merge_patch(NAMESPACES, stage.namespace, labelled, None, None)
        no_quota = [{name: {"cpu": 0}}]
        await self._queue(name, {"quota": no_quota, "namespaceSelector": {"matchLabels": labels}})
        await self._workload(name, {"queue": name, "cpu": 1})

        async def seen() -> bool:
            reserved = condition_of(await self._read(name), "QuotaReserved")
            return reserved is not None and reserved[1] != Reason.MISCONFIGURED

        await eventually(seen, what=f"labels {labels} of the namespace to be seen")
        for resource, own in (
            (kinds.workloads, name),
            (kinds.local_queues, name),
            (kinds.cluster_queues, stage.own(name)),
        ):
            await stage.client.delete(resource, own, stage.namespace if resource.namespaced else None)
            await stage.until_gone(resource, own)

    async def _delete(self, what: str) -> None:
        resource, name = self._names.resource_and_name(what)
        namespace = self.stage.namespace if resource.namespaced else None
        await self.stage.client.delete(resource, name, namespace)

    async def _finish(self, name: str) -> None:
        await self.stage.apply_transition(name, lambda change: change.finish("Succeeded", "done"))

    async def _pods_ready(self, name: str) -> None:
        await self.stage.apply_transition(
            name, lambda change: change.update_pods_ready(admitted=True, ready=True)
        )

    async def _release(self, name: str) -> None:
        """Release an evicted Workload, as its job controller does when no pod runs any more."""
        await self._is_evicted(name, None)
        await self.stage.apply_transition(name, lambda change: change.requeue("PendingEvaluation"))

    async def _later_than(self, name: str) -> None:
        """Wait until new objects are newer than this Workload and its reservation.

        The API counts whole seconds.
        """
        workload = await self._read(name)
        times = [one["lastTransitionTime"] for one in value_at(workload, ("status", "conditions"), [])]
        latest = max(map(parse_time, (workload["metadata"]["creationTimestamp"], *times)))
        await eventually(lambda: time.time_ns() >= latest + SECOND, interval=0.02)

    # --- what is seen -----------------------------------------------------------------------------

    async def _read(self, name: str) -> dict[str, Any]:
        return await self.stage.get(self.stage.kinds.workloads, name)

    async def _is_admitted(self, name: str) -> None:
        await self._sees(f"Workload {name}", {"Admitted": "True Admitted The workload is admitted"})

    async def _is_pending(self, name: str, text: str) -> None:
        await self._sees(f"Workload {name}", {"QuotaReserved": f"False {text}"})

    async def _is_evicted(self, name: str, text: str | None) -> None:
        if text is not None:
            await self._sees(f"Workload {name}", {"Evicted": f"True {text}"})
            return

        async def seen() -> bool:
            return (condition_of(await self._read(name), "Evicted") or ("",))[0] == "True"

        await eventually(seen, what=f"{name} to be evicted")

    async def _sees(self, what: str, conditions: Mapping[str, str]) -> None:
        resource, name = self._names.resource_and_name(what if " " in what else f"Workload {what}")

        async def seen() -> bool:
            obj = await self.stage.get(resource, name)
            for type_, text in conditions.items():
                found = " ".join(condition_of(obj, type_) or ())
                wanted = self._names.with_real_names(text)
                assert found == wanted, f"{type_} of {what} is\n  {found!r}, not\n  {wanted!r}"
            return True

        await eventually(seen, what=f"conditions of {what}")

    async def _is_assigned(self, name: str, flavors: dict[str, Any]) -> None:
        """The flavor of each resource of a Workload's first podset."""

        async def seen() -> bool:
            assigned = (await self._read(name))["status"]["admission"]["podSetAssignments"][0]
            wanted = {resource: self.stage.own(flavor) for resource, flavor in flavors.items()}
            assert assigned["flavors"] == wanted, assigned
            return True

        await eventually(seen, what=f"flavors of {name}")

    async def _has_count(self, name: str, count: int) -> None:
        async def seen() -> bool:
            assigned = (await self._read(name))["status"]["admission"]["podSetAssignments"][0]
            assert assigned["count"] == count, assigned
            return True

        await eventually(seen, what=f"count of {name}")

    async def _has_events(self, name: str, events: Mapping[str, str]) -> None:
        """Events about a Workload; durations are written as ``Ns``."""

        async def seen() -> bool:
            found = [
                (reason, re.sub(r"was \d+s", "was Ns", note))
                for reason, note in await self.stage.events("Workload", name)
            ]
            for reason, note in events.items():
                assert (reason, self._names.with_real_names(note)) in found, found
            return True

        await eventually(seen, timeout=EVENT_SECONDS, what=f"events about {name}")

    async def _has_field(self, what: str, fields: Mapping[str, Any]) -> None:
        """Fields of an object by their paths, with dots between the names."""
        resource, name = self._names.resource_and_name(what)

        async def seen() -> bool:
            obj = await self.stage.get(resource, name)
            for path, value in fields.items():
                found, wanted = _at(obj, path), self._names.with_real_names(value)
                assert found == wanted, f"{path} of {what} is {found!r}, not {wanted!r}"
            return True

        await eventually(seen, what=f"fields of {what}")


def _at(obj: Any, path: str) -> Any:
    """The value at a path; a number in the path is an index of a list."""
    for name in path.split("."):
        obj = cast("list[Any]", obj)[int(name)] if isinstance(obj, list) else (obj or {}).get(name)
    return obj


_OF_POD_SETS = frozenset(
    {
        "pods",
        "min",
        "name",
        "cpu",
        "memory",
        "gpu",
        "limits",
        "pod",
        "group",
    }
)


def _pod_set(
    name: str = "main",
    pods: int = 1,
    min: int | None = None,  # noqa: A002 as in the cases
    limits: dict[str, Any] | None = None,
    pod: dict[str, Any] | None = None,
    group: str | None = None,
    **requests: Any,
) -> dict[str, Any]:
    """A podset of pods with one container."""
    asked = {_RESOURCES.get(resource, resource): amount for resource, amount in requests.items()}
    resources = {"requests": asked, **({"limits": limits} if limits else {})}
    template = {
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "example.com/c:1", "resources": resources}],
            **(pod or {}),
        }
    }
    grouped = {} if group is None else {"topologyRequest": {"podSetGroupName": group}}
    least = {} if min is None else {"minCount": min}
    return {"name": name, "count": pods, "template": template, **least, **grouped}


_RESOURCES = {"gpu": "example.com/gpu"}


def _quota(name: str, quota: Any) -> dict[str, Any]:
    """A quota: an amount, optionally with borrowing and lending limits."""
    amounts = quota if isinstance(quota, Mapping) else {"nominal": quota}
    names = {"nominal": "nominalQuota", "borrow": "borrowingLimit", "lend": "lendingLimit"}
    return {"name": _RESOURCES.get(name, name), **{names[key]: amount for key, amount in amounts.items()}}


def _active(active: bool) -> dict[str, Any]:
    return {
        "type": "Active",
        "status": str(active),
        "reason": "Active" if active else "Broken",
        "message": "",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }
