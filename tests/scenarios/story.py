"""Play the steps of a scenario in order."""

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from admitq.core import events as happened
from admitq.core.events import Event
from admitq.core.instructions import Instruction, Preempt, ReserveQuota
from admitq.core.model import SECOND, Admission, AdmissionCheckState, ObjectKey, ResourceProblem, Workload
from admitq.core.state import AdmissionState
from admitq.translate import messages
from admitq_api.json_objects import JsonObject
from tests.scenarios.objects import (
    BEGINNING,
    StoryError,
    Words,
    admission_check,
    cluster_queue,
    cohort,
    exact,
    flavor,
    instant,
    key_of,
    labels,
    limit_range,
    local_queue,
    name_of,
    pod_set,
)

_PATIENCE = 100
"""If a story does not settle within so many rounds of preemption, it fails."""


@dataclass
class Story:
    """The state of a scenario that is played."""

    core: AdmissionState = field(default_factory=AdmissionState)
    now: int = BEGINNING
    specs: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    workloads: dict[ObjectKey, Workload] = field(default_factory=dict[ObjectKey, Workload])
    decided: list[ReserveQuota] = field(default_factory=list[ReserveQuota])
    preempted: list[Preempt] = field(default_factory=list[Preempt])
    unwritten: list[ReserveQuota | Preempt] = field(default_factory=list["ReserveQuota | Preempt"])
    instructions: list[Instruction] = field(default_factory=list[Instruction])
    """All instructions since the last expectation; so are ``decided`` and ``preempted``."""
    considered: dict[ObjectKey, str] = field(default_factory=dict[ObjectKey, str])
    submitted: int = 0

    def send(self, event: Event) -> list[Instruction]:
        instructions = self.core.handle(event, now=self.now)
        self.core.validate()
        self.instructions.extend(instructions)
        return instructions

    # --- objects ----------------------------------------------------------------------------------

    def put(self, kind: str, name: str, raw: Any) -> None:
        """Create an object, or change the named parts of one."""
        before = self.specs.setdefault(kind, {}).get(name)
        if isinstance(before, Mapping) and isinstance(raw, Mapping):
            raw = {**cast("JsonObject", before), **cast("JsonObject", raw)}
        self.specs[kind][name] = raw
        self.send(_MADE[kind](name, raw))

    def remove(self, kind: str, name: str) -> None:
        self.specs.get(kind, {}).pop(name, None)
        self.send(_REMOVED[kind](name))

    def put_workload(self, workload: Workload) -> None:
        self.workloads[workload.key] = workload
        if workload.finished:
            self._taken({workload.key})
        self.send(happened.WorkloadChanged(workload))

    def submit(self, raw: Any) -> None:
        for each in raw if isinstance(raw, list) else [raw]:
            self._submit(Words(each, "submit"))

    def _submit(self, words: Words) -> None:
        self.submitted += 1
        name = words.take("name")
        copies = words.take("copies")
        fixed: dict[str, Any] = {
            "queue_name": words.take("queue", "main"),
            "queued_at": instant(words.take("at", self.submitted / 1000)),
            "priority": words.take("priority", 0),
            "active": words.take("active", True),
            "finished": words.take("finished", False),
            "admission_gates": tuple(words.take("gates", ())),
            "has_closed_preemption_gate": words.take("preemptionGated", False),
            "replaces": None if (original := words.take("replaces")) is None else key_of(original),
            "resource_problems": tuple(ResourceProblem(*each) for each in words.take("problems", ())),
        }
        uid = words.take("uid")
        parts = words.take("podSets")
        rest = words.rest()
        if parts is not None and rest:
            raise StoryError(f"submit: unknown words {sorted(rest)}")
        pod_sets = tuple(pod_set(part, of) for part, of in (parts or {"main": rest}).items())
        for name_of_copy in [name] if copies is None else [f"{name}-{n}" for n in range(1, copies + 1)]:
            key = key_of(name_of_copy)
            self.put_workload(
                Workload(key, uid or f"uid-of-{key.namespace}-{key.name}", pod_sets=pod_sets, **fixed)
            )

    def change(self, raw: Any) -> None:
        for name, what in cast("JsonObject", raw).items():
            self.put_workload(self._changed(self.workloads[key_of(name)], Words(what, f"change {name}")))

    def _changed(self, workload: Workload, words: Words) -> Workload:
        fields: dict[str, Any] = {}
        if words.has("openPlaces"):
            fields["admission"] = _with_open_places(workload.admission, words.take("openPlaces"))
        for word, (field_name, read) in _CHANGES.items():
            if words.has(word):
                fields[field_name] = read(words.take(word))
        words.end()
        return replace(workload, **fields)

    def names(self, raw: Any) -> Iterator[Workload]:
        for name in raw if isinstance(raw, list) else [raw]:
            yield self.workloads[key_of(cast("str", name))]

    # --- steps ------------------------------------------------------------------------------------

    def cycles(self, limit: int | None, *, written: bool) -> None:
        for instruction in self.send(happened.CyclesRequested(limit)):
            match instruction:
                case ReserveQuota(key):
                    self.decided.append(instruction)
                    self.unwritten.append(instruction)
                    self.considered[key] = messages.flavors_considered(instruction.attempts)
                case Preempt():
                    self.preempted.append(instruction)
                    self.unwritten.append(instruction)
                case _:
                    pass
        if written:
            self.write(None)

    def _taken(self, keys: Container[ObjectKey]) -> list[ReserveQuota | Preempt]:
        """Remove and return the unwritten decisions over these workloads, in order."""
        taken = [each for each in self.unwritten if each.key in keys]
        self.unwritten = [each for each in self.unwritten if each.key not in keys]
        return taken

    def write(self, raw: Any) -> None:
        """Write decided reservations and preemptions, and observe them."""
        for each in self._taken(self.workloads if raw is None else {each.key for each in self.names(raw)}):
            match each:
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
        """Fail to write the first decision, on which the later ones were built."""
        for workload in self.names(raw):
            lost = self._taken({workload.key})
            failed = (
                happened.PreemptionFailed
                if lost and isinstance(lost[0], Preempt)
                else happened.ReservationFailed
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
            AssertionError: there is no end to it.
        """
        for _ in range(_PATIENCE):
            self.cycles(None, written=True)
            leaving = [of for of in self.workloads.values() if of.evicted and of.admission is not None]
            if not leaving:
                return
            for workload in leaving:
                self.stop(name_of(workload.key))
        raise AssertionError("preemptions do not come to an end")

    def delete(self, raw: Any) -> None:
        for workload in list(self.names(raw)):
            del self.workloads[workload.key]
            self._taken({workload.key})
            self.send(happened.WorkloadDeleted(workload.key, workload.uid))

    def restart(self) -> None:
        self.core = AdmissionState.from_dict(self.core.to_dict())

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)

    def again(self) -> None:
        """Repeat all observations, as after a new list."""
        for kind, objects in self.specs.items():
            for name, raw in objects.items():
                self.send(_MADE[kind](name, raw))
        for workload in self.workloads.values():
            self.send(happened.WorkloadChanged(workload))

    def step(self, word: str, what: Any) -> None:
        """Take one step; a step without arguments is a single word."""
        _STEPS[word](self, what)


_MADE: Mapping[str, Callable[[str, Any], Event]] = {
    "namespaces": lambda name, raw: happened.NamespaceChanged(name, labels(raw)),
    "topologies": lambda name, _: happened.TopologyChanged(name),
    "limitRanges": lambda name, raw: happened.LimitRangeChanged(key_of(name), limit_range(name, raw)),
    "runtimeClasses": lambda name, raw: happened.RuntimeClassChanged(name, exact(raw)),
    "flavors": lambda name, raw: happened.ResourceFlavorChanged(flavor(name, raw)),
    "checks": lambda name, raw: happened.AdmissionCheckChanged(admission_check(name, raw)),
    "cohorts": lambda name, raw: happened.CohortChanged(cohort(name, raw)),
    "clusterQueues": lambda name, raw: happened.ClusterQueueChanged(cluster_queue(name, raw)),
    "localQueues": lambda name, raw: happened.LocalQueueChanged(local_queue(name, raw)),
}
"""The kinds of objects, in the order of their creation."""

_REMOVED: Mapping[str, Callable[[str], Event]] = {
    "namespaces": happened.NamespaceDeleted,
    "topologies": happened.TopologyDeleted,
    "limitRanges": lambda name: happened.LimitRangeDeleted(key_of(name)),
    "runtimeClasses": happened.RuntimeClassDeleted,
    "flavors": happened.ResourceFlavorDeleted,
    "checks": happened.AdmissionCheckDeleted,
    "cohorts": happened.CohortDeleted,
    "clusterQueues": happened.ClusterQueueDeleted,
    "localQueues": lambda name: happened.LocalQueueDeleted(key_of(name)),
}

_CHANGES: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
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
        lambda of: tuple((name, AdmissionCheckState(state)) for name, state in sorted(of.items())),
    ),
    "reclaimable": ("reclaimable_pods", lambda of: tuple(sorted(of.items()))),
    "admitted": ("admitted", bool),
    "ready": ("pods_ready", bool),
    "problems": ("resource_problems", lambda of: tuple(ResourceProblem(*each) for each in of)),
    "podSets": ("pod_sets", lambda of: tuple(pod_set(name, raw) for name, raw in of.items())),
}


def _with_open_places(admission: Admission | None, names: list[str]) -> Admission:
    """Return a reservation without places for the pods of these podsets."""
    if admission is None:
        raise StoryError("openPlaces: there is no reservation")
    parts = admission.pod_set_assignments
    return replace(
        admission,
        pod_set_assignments=tuple(replace(part, is_place_open=part.name in names) for part in parts),
    )


def _each(act: Callable[[Story, str, str], None]) -> Callable[[Story, Any], None]:
    def step(story: Story, raw: Any) -> None:
        for kind, names in cast("JsonObject", raw).items():
            for name in names if isinstance(names, list) else [names]:
                act(story, kind, cast("str", name))

    return step


def _put(story: Story, raw: Any) -> None:
    for kind, objects in cast("JsonObject", raw).items():
        for name, of in (dict.fromkeys(objects) if isinstance(objects, list) else objects).items():
            story.put(kind, name, of)


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
    "observe everything again": lambda story, _: story.again(),
    "restart": lambda story, _: story.restart(),
}


def make_world(story: Story, raw: Any) -> None:
    """Create the objects of a world, each after those that it may refer to."""
    world = dict(cast("JsonObject", raw))
    world["namespaces"] = {"default": {}, **world.get("namespaces", {})}
    unknown = set(world) - set(_MADE)
    if unknown:
        raise StoryError(f"world: unknown words {sorted(unknown)}")
    _put(story, {kind: world[kind] for kind in _MADE if kind in world})
    story.instructions.clear()
