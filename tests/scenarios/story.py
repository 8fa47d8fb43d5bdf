"""Play the steps of a scenario in order."""

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from admitq.core import events
from admitq.core.events import Event
from admitq.core.instructions import (
    AssignTopology,
    EvictForNodeFailures,
    Instruction,
    Preempt,
    ReserveQuota,
)
from admitq.core.model import SECOND, Admission, CheckState, ObjectKey, ResourceProblem, Workload
from admitq.core.state import AdmissionState
from admitq.translate import messages
from admitq_api.json_objects import JsonObject
from tests.scenarios.objects import (
    START,
    Keys,
    StoryError,
    admission_check,
    cluster_queue,
    cohort,
    exact,
    flavor,
    instant,
    key_of,
    labels,
    levels,
    limit_range,
    local_queue,
    name_of,
    node,
    pod_of_others,
    pod_set,
)

_MAX_ROUNDS = 100
"""Maximum number of rounds of preemption until a story settles."""


@dataclass
class Story:
    """The state of a running scenario."""

    core: AdmissionState = field(default_factory=AdmissionState)
    now: int = START
    specs: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    workloads: dict[ObjectKey, Workload] = field(default_factory=dict[ObjectKey, Workload])
    decided: list[ReserveQuota] = field(default_factory=list[ReserveQuota])
    preempted: list[Preempt] = field(default_factory=list[Preempt])
    unwritten: list[ReserveQuota | Preempt] = field(default_factory=list["ReserveQuota | Preempt"])
    instructions: list[Instruction] = field(default_factory=list[Instruction])
    """All instructions since the last expectation. ``decided`` and ``preempted`` begin there, too."""
    considered: dict[ObjectKey, str] = field(default_factory=dict[ObjectKey, str])
    submitted: int = 0

    def send(self, event: Event) -> list[Instruction]:
        instructions = self._handle(event)
        self.core.validate()
        return instructions

    def _handle(self, event: Event) -> list[Instruction]:
        instructions = self.core.handle(event, now=self.now)
        self.instructions.extend(instructions)
        return instructions

    # --- objects ----------------------------------------------------------------------------------

    def put(self, kind: str, name: str, raw: Any) -> None:
        """Create an object, or change the named parts of one."""
        before = self.specs.setdefault(kind, {}).get(name)
        if isinstance(before, Mapping) and isinstance(raw, Mapping):
            raw = {**cast("JsonObject", before), **cast("JsonObject", raw)}
        self.specs[kind][name] = raw
        self.send(_CHANGED_EVENTS[kind](name, raw))

    def remove(self, kind: str, name: str) -> None:
        self.specs.get(kind, {}).pop(name, None)
        self.send(_DELETED_EVENTS[kind](name))

    def put_workload(self, workload: Workload) -> None:
        self.workloads[workload.key] = workload
        if workload.finished:
            self._take_unwritten({workload.key})
        self.send(events.WorkloadChanged(workload))

    def submit(self, raw: Any) -> None:
        for workload in raw if isinstance(raw, list) else [raw]:
            self._submit(Keys(workload, "submit"))

    def _submit(self, keys: Keys) -> None:
        self.submitted += 1
        name = keys.take("name")
        copies = keys.take("copies")
        workload_fields: dict[str, Any] = {
            "queue_name": keys.take("queue", "main"),
            "queued_at": instant(keys.take("at", self.submitted / 1000)),
            "priority": keys.take("priority", 0),
            "active": keys.take("active", True),
            "finished": keys.take("finished", False),
            "admission_gates": tuple(keys.take("gates", ())),
            "has_closed_preemption_gate": keys.take("preemptionGated", False),
            "replaces": None if (original := keys.take("replaces")) is None else key_of(original),
            "resource_problems": tuple(ResourceProblem(*problem) for problem in keys.take("problems", ())),
        }
        uid = keys.take("uid")
        parts = keys.take("podSets")
        rest = keys.rest()
        if parts is not None and rest:
            raise StoryError(f"submit: unknown keys {sorted(rest)}")
        pod_sets = tuple(pod_set(part, fields) for part, fields in (parts or {"main": rest}).items())
        for name_of_copy in [name] if copies is None else [f"{name}-{n}" for n in range(1, copies + 1)]:
            key = key_of(name_of_copy)
            self.put_workload(
                Workload(
                    key, uid or f"uid-of-{key.namespace}-{key.name}", pod_sets=pod_sets, **workload_fields
                )
            )

    def change(self, raw: Any) -> None:
        for name, fields in cast("JsonObject", raw).items():
            self.put_workload(self._changed(self.workloads[key_of(name)], Keys(fields, f"change {name}")))

    def _changed(self, workload: Workload, keys: Keys) -> Workload:
        fields: dict[str, Any] = {}
        if keys.has("openPlaces"):
            fields["admission"] = _with_open_places(workload.admission, keys.take("openPlaces"))
        for key, (field_name, read) in _WORKLOAD_FIELDS.items():
            if keys.has(key):
                fields[field_name] = read(keys.take(key))
        keys.end()
        return replace(workload, **fields)

    def names(self, raw: Any) -> Iterator[Workload]:
        for name in raw if isinstance(raw, list) else [raw]:
            yield self.workloads[key_of(cast("str", name))]

    # --- steps ------------------------------------------------------------------------------------

    def cycles(self, limit: int | None, *, written: bool) -> None:
        for instruction in self.send(events.CyclesRequested(limit)):
            match instruction:
                case ReserveQuota(key):
                    self.decided.append(instruction)
                    self.unwritten.append(instruction)
                    self.considered[key] = messages.flavors_considered(instruction.considered_flavors)
                case Preempt():
                    self.preempted.append(instruction)
                    self.unwritten.append(instruction)
                case AssignTopology(key, _, admission):
                    unhealthy = _still_unhealthy(self.workloads[key], admission)
                    self.put_workload(
                        replace(
                            self.workloads[key], admission=admission, admitted=True, unhealthy_nodes=unhealthy
                        )
                    )
                case EvictForNodeFailures(key):
                    self.put_workload(replace(self.workloads[key], evicted=True, unhealthy_nodes=()))
                case _:
                    pass
        if written:
            self.write(None)

    def _take_unwritten(self, keys: Container[ObjectKey]) -> list[ReserveQuota | Preempt]:
        """Remove and return the unwritten decisions for these workloads, in order."""
        decisions = [decision for decision in self.unwritten if decision.key in keys]
        self.unwritten = [decision for decision in self.unwritten if decision.key not in keys]
        return decisions

    def write(self, raw: Any) -> None:
        """Write decided reservations and preemptions, and observe them."""
        keys = self.workloads if raw is None else {workload.key for workload in self.names(raw)}
        for decision in self._take_unwritten(keys):
            match decision:
                case ReserveQuota(key=key, admission=admission, admit=admit):
                    self.put_workload(
                        replace(
                            self.workloads[key],
                            admission=admission,
                            reserved_at=self.now // SECOND * SECOND,
                            admitted=admit,
                            evicted=False,
                        )
                    )
                case Preempt(key=key):
                    self.put_workload(replace(self.workloads[key], evicted=True))

    def lose(self, raw: Any) -> None:
        """Fail to write the first decision. Later decisions for the workload are dropped."""
        for workload in self.names(raw):
            lost_decisions = self._take_unwritten({workload.key})
            failed = (
                events.PreemptionFailed
                if lost_decisions and isinstance(lost_decisions[0], Preempt)
                else events.ReservationFailed
            )
            self.send(failed(workload.key, workload.uid))

    def finish(self, raw: Any) -> None:
        for workload in self.names(raw):
            self.put_workload(replace(workload, finished=True))

    def evict(self, raw: Any) -> None:
        for workload in self.names(raw):
            self.put_workload(replace(workload, evicted=True))

    def stop(self, raw: Any) -> None:
        for workload in self.names(raw):
            self.put_workload(replace(workload, admission=None, admitted=False, pods_ready=False))

    def settle(self) -> None:
        """Run cycles and stop evicted workloads until nothing is decided.

        Raises:
            AssertionError: preemptions do not end.
        """
        for _ in range(_MAX_ROUNDS):
            self.cycles(None, written=True)
            leaving = [
                workload
                for workload in self.workloads.values()
                if workload.evicted and workload.admission is not None
            ]
            if not leaving:
                return
            for workload in leaving:
                self.stop(name_of(workload.key))
        raise AssertionError("preemptions do not end")

    def delete(self, raw: Any) -> None:
        for workload in list(self.names(raw)):
            del self.workloads[workload.key]
            self._take_unwritten({workload.key})
            self.send(events.WorkloadDeleted(workload.key, workload.uid))

    def restart(self) -> None:
        self.core = AdmissionState.from_dict(self.core.to_dict())

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)

    def observe_again(self) -> None:
        """Repeat all observations, as after a new list. The state is validated once: it should not change."""
        for kind, objects in self.specs.items():
            for name, raw in objects.items():
                self._handle(_CHANGED_EVENTS[kind](name, raw))
        for workload in self.workloads.values():
            self._handle(events.WorkloadChanged(workload))
        self.core.validate()

    def step(self, key: str, value: Any) -> None:
        """Play one step. A step without arguments has the value None."""
        _STEPS[key](self, value)


_CHANGED_EVENTS: Mapping[str, Callable[[str, Any], Event]] = {
    "namespaces": lambda name, raw: events.NamespaceChanged(name, labels(raw)),
    "topologies": lambda name, raw: events.TopologyChanged(name, levels(raw)),
    "limitRanges": lambda name, raw: events.LimitRangeChanged(key_of(name), limit_range(name, raw)),
    "runtimeClasses": lambda name, raw: events.RuntimeClassChanged(name, exact(raw)),
    "nodes": lambda name, raw: events.NodeChanged(node(name, raw)),
    "podsOfOthers": lambda name, raw: events.PodOfOthersChanged(key_of(name), pod_of_others(name, raw)),
    "flavors": lambda name, raw: events.ResourceFlavorChanged(flavor(name, raw)),
    "checks": lambda name, raw: events.AdmissionCheckChanged(admission_check(name, raw)),
    "cohorts": lambda name, raw: events.CohortChanged(cohort(name, raw)),
    "clusterQueues": lambda name, raw: events.ClusterQueueChanged(cluster_queue(name, raw)),
    "localQueues": lambda name, raw: events.LocalQueueChanged(local_queue(name, raw)),
}
"""The kinds of objects, in the order of their creation."""

_DELETED_EVENTS: Mapping[str, Callable[[str], Event]] = {
    "namespaces": events.NamespaceDeleted,
    "topologies": events.TopologyDeleted,
    "limitRanges": lambda name: events.LimitRangeDeleted(key_of(name)),
    "runtimeClasses": events.RuntimeClassDeleted,
    "nodes": events.NodeDeleted,
    "podsOfOthers": lambda name: events.PodOfOthersDeleted(key_of(name)),
    "flavors": events.ResourceFlavorDeleted,
    "checks": events.AdmissionCheckDeleted,
    "cohorts": events.CohortDeleted,
    "clusterQueues": events.ClusterQueueDeleted,
    "localQueues": lambda name: events.LocalQueueDeleted(key_of(name)),
}

_WORKLOAD_FIELDS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "queue": ("queue_name", str),
    "priority": ("priority", int),
    "uid": ("uid", str),
    "replaces": ("replaces", key_of),
    "generation": ("generation", int),
    "active": ("active", bool),
    "deleting": ("deleting", bool),
    "onHold": ("on_hold", bool),
    "waitingForReplacementPods": ("waiting_for_replacement_pods", bool),
    "gates": ("admission_gates", tuple),
    "preemptionGated": ("has_closed_preemption_gate", bool),
    "at": ("queued_at", instant),
    "requeueAt": ("requeue_at", lambda at: None if at is None else instant(at)),
    "requeueBlocked": ("requeue_blocked", bool),
    "checks": (
        "admission_checks",
        lambda states: tuple((name, CheckState(state)) for name, state in sorted(states.items())),
    ),
    "reclaimable": ("reclaimable_pods", lambda counts: tuple(sorted(counts.items()))),
    "admitted": ("admitted", bool),
    "ready": ("pods_ready", bool),
    "unhealthy": ("unhealthy_nodes", tuple),
    "singlePod": ("is_single_pod", bool),
    "problems": (
        "resource_problems",
        lambda problems: tuple(ResourceProblem(*problem) for problem in problems),
    ),
    "podSets": ("pod_sets", lambda parts: tuple(pod_set(name, raw) for name, raw in parts.items())),
}


def _still_unhealthy(workload: Workload, admission: Admission) -> tuple[str, ...]:
    """Return the unhealthy nodes that still have pods of an admission."""
    parts = (part.topology for part in admission.pod_set_assignments)
    hosts = {values[-1] for topology in parts if topology is not None for values, _ in topology.domains}
    return tuple(name for name in workload.unhealthy_nodes if name in hosts)


def _with_open_places(admission: Admission | None, names: list[str]) -> Admission:
    """Return a reservation without places for the pods of these podsets."""
    if admission is None:
        raise StoryError("openPlaces: there is no reservation")
    parts = admission.pod_set_assignments
    return replace(
        admission,
        pod_set_assignments=tuple(
            replace(part, lacks_topology_assignment=part.name in names) for part in parts
        ),
    )


def _each(act: Callable[[Story, str, str], None]) -> Callable[[Story, Any], None]:
    def step(story: Story, raw: Any) -> None:
        for kind, names in cast("JsonObject", raw).items():
            for name in names if isinstance(names, list) else [names]:
                act(story, kind, cast("str", name))

    return step


def _put(story: Story, raw: Any) -> None:
    for kind, objects in cast("JsonObject", raw).items():
        for name, fields in (dict.fromkeys(objects) if isinstance(objects, list) else objects).items():
            story.put(kind, name, fields)


_STEPS: Mapping[str, Callable[[Story, Any], None]] = {
    "submit": Story.submit,
    "change": Story.change,
    "finish": Story.finish,
    "evict": Story.evict,
    "stop": Story.stop,
    "delete": Story.delete,
    "write": Story.write,
    "lose": Story.lose,
    "wait": Story.wait,
    "put": _put,
    "remove": _each(Story.remove),
    "decide": lambda story, _: story.cycles(None, written=True),
    "decide without writing": lambda story, _: story.cycles(None, written=False),
    "settle": lambda story, _: story.settle(),
    "one cycle": lambda story, _: story.cycles(1, written=True),
    "observe everything again": lambda story, _: story.observe_again(),
    "restart": lambda story, _: story.restart(),
}


def make_world(story: Story, raw: Any) -> None:
    """Create the objects of a world, each after those that it may refer to."""
    world = dict(cast("JsonObject", raw))
    world["namespaces"] = {"default": {}, **world.get("namespaces", {})}
    unknown = set(world) - set(_CHANGED_EVENTS)
    if unknown:
        raise StoryError(f"world: unknown keys {sorted(unknown)}")
    _put(story, {kind: world[kind] for kind in _CHANGED_EVENTS if kind in world})
    story.instructions.clear()
