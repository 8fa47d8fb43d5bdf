"""The writes of the objects of a story: a line for each write, in the order in which they were stored.

Resource versions of one API server are ordered over all kinds (``tests.kills.chronicle``), so that lines of
several objects are in order, too. Writes of other components are left out: those about pods of a Job, and
counters.
"""

import re
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from admitq.runtime.resources import EVENTS, JOBS
from admitq_api.json_objects import value_at
from admitq_api.labels import Names
from localcluster.waiting import eventually
from tests.controlplane.stage import Stage, owner_of
from tests.kills.chronicle import Chronicle, Step

CONDITIONS = (
    "DeactivationTarget",
    "Evicted",
    "Preempted",
    "QuotaReserved",
    "Admitted",
    "PodsReady",
    "Requeued",
    "Finished",
    "Active",
)
"""The order of conditions within a line."""


ADMITTED = "Admitted=True Admitted The workload is admitted"
UNRESERVED = "Admitted=False NoReservation The workload has no reservation"
NOT_READY = "PodsReady=False WaitForStart Not all pods are ready or succeeded"
PODS_READY = "PodsReady=True Started All pods reached readiness and the workload is running"

REFRESHED = ": QuotaReserved=False PendingEvaluation Workload is pending evaluation in the scheduling queue"
"""A write that only reports that a Workload waits for a cycle. The cycle may come before it."""


UNOBSERVED_FLAVOR = "Active=False FlavorNotFound "
"""A write about a queue. Its flavor was created before the queue and observed after it."""


def queued(name: str) -> list[list[str]]:
    """The writes after the creation of a Job."""
    return [
        [f"Job {name}: created; suspend=true"],
        [f"Workload {name}: created; finalizer; owned by {name}; job-uid"],
    ]


def stopped(name: str, *, restored: str) -> list[list[str]]:
    """The writes of the stop of a Job with these injected fields; its status is reset in between."""
    changes = ("stopping=true; suspend=true", "startTime reset", f"stopping=None; {restored}")
    return [[f"Job {name}: {change}"] for change in changes]


def released(name: str, message: str, *, requeued: bool, reason: str, ready: bool) -> list[list[str]]:
    """The writes when an evicted Job, with ready pods or not, has stopped."""
    pods = f"{NOT_READY}; " if ready else ""
    change = (
        f"admission removed; QuotaReserved=False PendingEvaluation {message}; {UNRESERVED}; {pods}"
        f"Requeued={requeued} {reason} {message}"
    )
    return [[f"Workload {name}: {change}"]]


@dataclass(frozen=True)
class Story:
    """The expected writes and events.

    Each line is a write of the object that it begins with. The lines of one object are in this order. Lines
    of a later step come after those of an earlier one, also of other objects. Lines that begin with ``~`` are
    unordered relative to the others; for each object they are in order among themselves.
    """

    steps: Sequence[Sequence[str]]
    events: Mapping[str, list[str]] = field(default_factory=dict[str, list[str]])
    """By names of Jobs, all events about them and their Workloads, in order; repeated ones count once.

    Events that begin with ``~`` are unordered relative to the others.
    """
    goes_on: bool = False
    """Whether further writes may follow."""

    @property
    def lines(self) -> list[tuple[int, str]]:
        """All lines, with the numbers of their steps."""
        return [(step, line.removeprefix("~")) for step, lines in enumerate(self.steps) for line in lines]

    @property
    def unordered(self) -> list[str]:
        """The lines that are unordered relative to the others."""
        return [line[1:] for lines in self.steps for line in lines if line[0] == "~"]

    @property
    def ordered(self) -> list[tuple[int, tuple[str, int]]]:
        """Return the lines in a fixed order, each with how often it was written before."""
        free = [line.startswith("~") for lines in self.steps for line in lines]
        counted = _counted([line for _, line in self.lines])
        placed = zip(free, self.lines, counted, strict=True)
        return [(step, line) for beside, (step, _), line in placed if not beside]


class Writes:
    """The writes of a stage's Jobs, Workloads, ClusterQueues and LocalQueues.

    Args:
        stage: the stage of the objects.
        chronicle: records them.
    """

    def __init__(self, stage: Stage, chronicle: Chronicle) -> None:
        self._stage = stage
        self._chronicle = chronicle

    def of(self, *names: str) -> list[str]:
        """The writes of Jobs and queues of these names, and of the Workloads of these Jobs."""
        before: dict[str, dict[str, Any]] = {}
        owners: dict[str, str] = {}
        lines: list[str] = []
        for step in self._chronicle.steps:
            name = self._name(step, owners)
            if name in names:
                place = f"{step.place[0]} {name}"
                lines += [f"{place}: {changes}" for changes in self._describe(before.get(place), step.obj)]
                before.pop(place, None)
                if step.obj is not None:
                    before[place] = step.obj
        return [line for line in lines if not line.endswith(REFRESHED) and UNOBSERVED_FLAVOR not in line]

    async def events(self, *jobs: str) -> list[str]:
        """The events about Jobs and their Workloads, in the order in which they first happened."""
        owners: dict[str, str] = {}
        for step in self._chronicle.steps:
            self._name(step, owners)
        items, _ = await self._stage.client.list(EVENTS, self._stage.namespace)
        lines: list[str] = []
        for one in sorted(items, key=lambda item: item.get("eventTime") or ""):
            kind, name = one["regarding"]["kind"], one["regarding"]["name"]
            job = owners.get(name, "") if kind == "Workload" else name
            if job in jobs and one.get("reportingController", "").startswith(self._stage.names.group):
                note = re.sub(r"was \d+s", "was Ns", one["note"])
                lines.append(f"{kind} {job}: {one['type']} {one['reason']} {note}")
        return list(dict.fromkeys(lines))

    async def until(self, story: Story) -> None:
        """Wait until the writes and events equal the story.

        Raises:
            AssertionError: they differ.
        """

        async def equals_story() -> bool:
            names = {line.split(": ")[0].split()[1] for _, line in story.lines}
            found = self.of(*names)
            for of in sorted({_object(line) for _, line in story.lines}):
                beside = [line for line in story.unordered if _object(line) == of]
                wanted = [line for _, line in story.lines if _object(line) == of]
                is_now = [line for line in found if _object(line) == of]
                if story.goes_on:
                    del is_now[len(wanted) :]
                _assert_in_order(is_now, wanted, beside)
            at = {line: number for number, line in enumerate(_counted(found))}
            for (step, line), (other_step, other) in combinations(story.ordered, 2):
                assert step == other_step or at[line] < at[other], f"{other} came before {line}"
            for jobs, events in story.events.items():
                beside = [line[1:] for line in events if line[0] == "~"]
                wanted = [line.removeprefix("~") for line in events]
                _assert_in_order(await self.events(*jobs.split()), wanted, beside)
            return True

        await eventually(equals_story, what="the story to have been written", timeout=30)

    def _name(self, step: Step, owners: dict[str, str]) -> str:
        """The name of an object in a story: the Job of a Workload, or a queue without namespace suffix."""
        kind, name = step.place
        if kind != "Workload":
            return name.removesuffix(f"-{self._stage.namespace}")
        if step.obj is not None and (owner := owner_of(step.obj)):
            owners[name] = owner
        return owners.get(name, name)

    def _describe(self, before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[str]:
        """The changes of one write as a line; none if stories do not contain them."""
        if after is None:
            return ["deleted"]
        changes = list(_changes(self._stage.names, before or {}, after))
        if before is None:
            changes.insert(0, "created")
        return ["; ".join(changes)] if changes else []


@asynccontextmanager
async def written(stage: Stage) -> AsyncGenerator[Writes]:
    """Record the writes within a block."""
    kinds = stage.kinds
    followed = (JOBS, kinds.workloads, kinds.cluster_queues, kinds.local_queues)
    chronicle = Chronicle(stage.client, followed, stage.namespace)
    await chronicle.open()
    try:
        yield Writes(stage, chronicle)
    finally:
        await chronicle.close()


def _changes(names: Names, before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """The changes between two versions of an object."""
    yield from _metadata(names, before, after)
    if after["kind"] == "Job":
        yield from _job(names, before, after)
        return
    active = value_at(after, ("spec", "active"))
    if before and active is not None and active != value_at(before, ("spec", "active")):
        yield f"active={active}"
    had, has = value_at(before, ("status", "admission")), value_at(after, ("status", "admission"))
    if had != has:
        yield "admission" if has else "admission removed"
    yield from _conditions(before, after)
    yield from _checks(before, after)
    yield from _requeue_state(before, after)
    for reason in value_at(after, ("status", "schedulingStats", "evictions"), []):
        if reason not in value_at(before, ("status", "schedulingStats", "evictions"), []):
            cause = f" {reason['underlyingCause']}" if reason["underlyingCause"] else ""
            yield f"evictions {reason['reason']}{cause} {reason['count']}"


def _assert_in_order(lines: Sequence[str], wanted: Sequence[str], beside: Sequence[str]) -> None:
    """Assert that these lines are in order; unordered ones are in order only among themselves.

    Raises:
        AssertionError: other lines, or another order.
    """
    parts = (
        ([line for line in lines if line not in beside], [line for line in wanted if line not in beside]),
        ([line for line in lines if line in beside], list(beside)),
    )
    assert all(are == should_be for are, should_be in parts), "\n".join(["is:", *lines, "is not:", *wanted])


def _counted(lines: Sequence[str]) -> list[tuple[str, int]]:
    """Lines, each with how often it was written before."""
    before = Counter[str]()
    counted: list[tuple[str, int]] = []
    for line in lines:
        counted.append((line, before[line]))
        before[line] += 1
    return counted


def _object(line: str) -> str:
    """The object of a line."""
    return line.partition(":")[0]


def _metadata(names: Names, before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    had, has = (names.finalizer in value_at(one, ("metadata", "finalizers"), []) for one in (before, after))
    if had != has:
        yield "finalizer" if has else "finalizer removed"
    if not before and after["metadata"].get("ownerReferences"):
        yield f"owned by {owner_of(after)}"
    uid = value_at(after, ("metadata", "labels", names.job_uid))
    if not before and uid is not None:
        yield "job-uid" if uid == after["metadata"]["ownerReferences"][0]["uid"] else "foreign job-uid"
    if "deletionTimestamp" in after["metadata"] and "deletionTimestamp" not in before.get("metadata", {}):
        yield "deletion begins"


def _job(names: Names, before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    def at(obj: dict[str, Any], *path: str) -> Any:
        return value_at(obj, path)

    if (stopping := at(after, "metadata", "annotations", names.stopping)) != at(
        before, "metadata", "annotations", names.stopping
    ):
        yield f"stopping={stopping}"
    pod = ("spec", "template", "spec")
    for part in ("nodeSelector", "tolerations"):
        if (value := at(after, *pod, part)) != at(before, *pod, part):
            yield f"{part} {'injected' if value else 'restored'}"
    keys = {names.podset, names.local_queue_name, names.cluster_queue_name}
    had, has = (
        keys & set(at(one, "spec", "template", "metadata", "labels") or {}) for one in (before, after)
    )
    if had != has:
        yield "labels injected" if has else "labels restored"
    if at(before, "status", "startTime") and not at(after, "status", "startTime"):
        yield "startTime reset"
    if (suspend := at(after, "spec", "suspend")) != at(before, "spec", "suspend"):
        yield f"suspend={str(suspend).lower()}"


def _conditions(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    def stated(obj: dict[str, Any]) -> dict[str, str]:
        listed = value_at(obj, ("status", "conditions"), [])
        return {one["type"]: f"{one['status']} {one['reason']} {one['message']}" for one in listed}

    had, has = stated(before), stated(after)
    for type_ in CONDITIONS:
        if had.get(type_) != has.get(type_):
            yield f"{type_}={has[type_]}" if type_ in has else f"{type_} removed"


def _checks(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    def stated(obj: dict[str, Any]) -> list[str]:
        listed = value_at(obj, ("status", "admissionChecks"), [])
        return [f"check {one['state']} {one.get('message', '')}".rstrip() for one in listed]

    if (has := stated(after)) != stated(before):
        yield from has or ["no checks"]


def _requeue_state(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    had, has = (value_at(one, ("status", "requeueState")) for one in (before, after))
    if had == has:
        return
    if has is None:
        yield "requeueState removed"
        return
    at = "with" if has.get("requeueAt") else "without"
    yield f"requeueState count {has.get('count')} {at} requeueAt"
