"""Reads and plays the scenarios: a world, and a story of what happens in it and what must follow.

A story drives ``AdmissionState.handle`` and nothing else. README.md beside this file lists the words.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from admitq import explain
from admitq.core import events as happened
from admitq.core.amounts import Amounts, amounts
from admitq.core.events import Event
from admitq.core.instructions import (
    Instruction,
    RefreshClusterQueue,
    RefreshCohort,
    RefreshLocalQueue,
    ReportPending,
    ReserveQuota,
)
from admitq.core.model import (
    SECOND,
    AdmissionCheck,
    AdmissionCheckRule,
    ClusterQueue,
    Cohort,
    FlavorFungibility,
    FlavorQuotas,
    LabelSelector,
    LocalQueue,
    NodeSelectorTerm,
    ObjectKey,
    PodSet,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
    ResourceProblem,
    ResourceQuota,
    SelectorOperator,
    SelectorRequirement,
    StopPolicy,
    Taint,
    Toleration,
    Workload,
)
from admitq.core.settings import Settings
from admitq.core.state import AdmissionState
from admitq.core.statuses import FlavorTotals
from admitq_api.quantity import amount, format_amount

Raw = Mapping[str, Any]

BEGINNING = 1_000 * SECOND
EVERYONE = LabelSelector()


class StoryError(Exception):
    """The scenario itself is not well written."""


class Words:
    """A mapping of which every word must be read."""

    def __init__(self, raw: Any, where: str) -> None:
        if not isinstance(raw, Mapping):
            raise StoryError(f"{where}: {raw!r} must be a mapping")
        self._left: dict[str, Any] = dict(cast("Raw", raw))
        self._where = where

    def take(self, word: str, default: Any = None) -> Any:
        return self._left.pop(word, default)

    def has(self, word: str) -> bool:
        return word in self._left

    def rest(self) -> dict[str, Any]:
        rest, self._left = self._left, {}
        return rest

    def end(self) -> None:
        if self._left:
            raise StoryError(f"{self._where}: unknown words {sorted(self._left)}")


def key_of(name: str) -> ObjectKey:
    namespace, slash, rest = name.partition("/")
    return ObjectKey(namespace, rest) if slash else ObjectKey("default", name)


def name_of(key: ObjectKey) -> str:
    return key.name if key.namespace == "default" else str(key)


def instant(seconds: float) -> int:
    return BEGINNING + round(seconds * SECOND)


# --- values ---------------------------------------------------------------------------------------------


def requirements(raw: Any) -> tuple[SelectorRequirement, ...]:
    """``{zone: a}``, ``{zone: [a, b]}``, or ``{zone: {NotIn: [a]}}``."""

    def one(key: str, what: Any) -> SelectorRequirement:
        if isinstance(what, Mapping):
            ((operator, values),) = cast("Raw", what).items()
            return SelectorRequirement(key, SelectorOperator(operator), tuple(map(str, values or ())))
        values = what if isinstance(what, list) else [what]
        return SelectorRequirement(key, SelectorOperator.IN, tuple(map(str, cast("list[Any]", values))))

    return tuple(one(key, what) for key, what in cast("Raw", raw).items())


def labels(raw: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, str(value)) for key, value in cast("Raw", raw or {}).items()))


def quota(resource: str, raw: Any) -> ResourceQuota:
    if not isinstance(raw, Mapping):
        return ResourceQuota(amount(resource, raw))
    words = Words(raw, f"quota of {resource}")
    nominal, borrow, lend = (words.take(word) for word in ("nominal", "borrow", "lend"))
    words.end()
    return ResourceQuota(
        amount(resource, nominal or 0),
        None if borrow is None else amount(resource, borrow),
        None if lend is None else amount(resource, lend),
    )


def groups(raw: Any) -> tuple[ResourceGroup, ...]:
    """One group as ``{flavor: {resource: quota}}``, or a list of them."""
    result: list[ResourceGroup] = []
    for group in raw if isinstance(raw, list) else [raw or {}]:
        flavors = tuple(
            FlavorQuotas(flavor, tuple((resource, quota(resource, of)) for resource, of in resources.items()))
            for flavor, resources in cast("Raw", group).items()
        )
        if flavors:
            result.append(ResourceGroup(tuple(name for name, _ in flavors[0].resources), flavors))
    return tuple(result)


def cluster_queue(name: str, raw: Any) -> ClusterQueue:
    words = Words(raw, f"clusterQueue {name}")
    selector = words.take("namespaces", "all")
    queue = ClusterQueue(
        name,
        cohort=words.take("cohort"),
        resource_groups=groups(words.take("quota")),
        queueing_strategy=QueueingStrategy(words.take("strategy", "BestEffortFIFO")),
        namespace_selector=(
            EVERYONE
            if selector == "all"
            else None
            if selector == "none"
            else LabelSelector(requirements(selector))
        ),
        stop_policy=StopPolicy(words.take("stop", "None")),
        admission_checks=tuple(
            AdmissionCheckRule(check, tuple(flavors or ()))
            for check, flavors in words.take("checks", {}).items()
        ),
        flavor_fungibility=FlavorFungibility(
            when_can_borrow=words.take("whenCanBorrow", "MayStopSearch"),
            preference=words.take("preference"),
        ),
        terminating=words.take("terminating", False),
    )
    words.end()
    return queue


def cohort(name: str, raw: Any) -> Cohort:
    words = Words(raw or {}, f"cohort {name}")
    result = Cohort(name, words.take("parent"), groups(words.take("quota")))
    words.end()
    return result


def admission_check(name: str, raw: Any) -> AdmissionCheck:
    words = Words(raw or {}, f"check {name}")
    result = AdmissionCheck(name, words.take("controller", "example.com/check"), words.take("active", True))
    words.end()
    return result


def local_queue(name: str, raw: Any) -> LocalQueue:
    words = Words(raw if isinstance(raw, Mapping) else {"clusterQueue": raw}, f"localQueue {name}")
    queue = LocalQueue(
        key_of(name),
        words.take("clusterQueue"),
        stop_policy=StopPolicy(words.take("stop", "None")),
        terminating=words.take("terminating", False),
    )
    words.end()
    return queue


def flavor(name: str, raw: Any) -> ResourceFlavor:
    words = Words(raw or {}, f"flavor {name}")
    result = ResourceFlavor(
        name,
        labels(words.take("labels")),
        tuple(taint(each) for each in words.take("taints", [])),
        tuple(toleration(each) for each in words.take("tolerations", [])),
        words.take("topology"),
    )
    words.end()
    return result


def taint(text: str) -> Taint:
    """``key=value:Effect``."""
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return Taint(key, value, effect)


def toleration(text: str) -> Toleration:
    """``key=value``, ``key`` for Exists, ``*`` for all; with ``:Effect`` for one effect."""
    rest, _, effect = text.partition(":")
    key, equals, value = rest.partition("=")
    if key == "*":
        return Toleration(operator="Exists", effect=effect)
    return Toleration(key, "Equal" if equals else "Exists", value, effect)


def pod_set(name: str, raw: Any) -> PodSet:
    words = Words(raw, f"podset {name}")
    affinity = words.take("affinity")
    fixed: dict[str, Any] = {
        "count": words.take("count", 1),
        "node_selector": labels(words.take("nodeSelector")),
        "tolerations": tuple(toleration(each) for each in words.take("tolerates", [])),
        "required_node_affinity": (
            None if affinity is None else tuple(NodeSelectorTerm(requirements(term)) for term in affinity)
        ),
    }
    requests = amounts({resource: amount(resource, of) for resource, of in words.rest().items()})
    return PodSet(name, requests=requests, **fixed)


# --- the story ------------------------------------------------------------------------------------------


@dataclass
class Story:
    """A scenario being played."""

    core: AdmissionState = field(default_factory=AdmissionState)
    now: int = BEGINNING
    specs: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    workloads: dict[ObjectKey, Workload] = field(default_factory=dict[ObjectKey, Workload])
    decided: list[ReserveQuota] = field(default_factory=list[ReserveQuota])
    unwritten: dict[ObjectKey, ReserveQuota] = field(default_factory=dict[ObjectKey, ReserveQuota])
    told: list[Instruction] = field(default_factory=list[Instruction])
    """All instructions since the last expectation."""
    considered: dict[ObjectKey, str] = field(default_factory=dict[ObjectKey, str])
    submitted: int = 0

    def send(self, event: Event) -> list[Instruction]:
        instructions = self.core.handle(event, now=self.now)
        self.core.validate()
        self.told.extend(instructions)
        return instructions

    # --- objects ----------------------------------------------------------------------------------

    def put(self, kind: str, name: str, raw: Any) -> None:
        """Create an object, or change the named parts of one."""
        before = self.specs.setdefault(kind, {}).get(name)
        if isinstance(before, Mapping) and isinstance(raw, Mapping):
            raw = {**cast("Raw", before), **cast("Raw", raw)}
        self.specs[kind][name] = raw
        self.send(_MADE[kind](name, raw))

    def remove(self, kind: str, name: str) -> None:
        self.specs.get(kind, {}).pop(name, None)
        self.send(_REMOVED[kind](name))

    def put_workload(self, workload: Workload) -> None:
        self.workloads[workload.key] = workload
        if workload.admission is not None or workload.finished:
            self.unwritten.pop(workload.key, None)
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
        for name, what in cast("Raw", raw).items():
            self.put_workload(self._changed(self.workloads[key_of(name)], Words(what, f"change {name}")))

    def _changed(self, workload: Workload, words: Words) -> Workload:
        fields: dict[str, Any] = {}
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
            if isinstance(instruction, ReserveQuota):
                self.decided.append(instruction)
                self.unwritten[instruction.key] = instruction
                self.considered[instruction.key] = explain.flavors_considered(instruction.attempts)
        if written:
            self.write(None)

    def write(self, raw: Any) -> None:
        """Reservations that were decided become visible."""
        keys = list(self.unwritten) if raw is None else [each.key for each in self.names(raw)]
        for key in keys:
            done = self.unwritten.pop(key)
            self.put_workload(
                replace(self.workloads[key], admission=done.admission, admitted=done.admit, evicted=False)
            )

    def lose(self, raw: Any) -> None:
        for workload in self.names(raw):
            self.unwritten.pop(workload.key, None)
            self.send(happened.ReservationFailed(workload.key, workload.uid))

    def finish(self, raw: Any) -> None:
        for workload in self.names(raw):
            self.put_workload(replace(workload, finished=True))

    def evict(self, raw: Any) -> None:
        for workload in self.names(raw):
            self.put_workload(replace(workload, evicted=True))

    def stop(self, raw: Any) -> None:
        for workload in self.names(raw):
            self.put_workload(replace(workload, admission=None, admitted=False))

    def delete(self, raw: Any) -> None:
        for workload in list(self.names(raw)):
            del self.workloads[workload.key]
            self.unwritten.pop(workload.key, None)
            self.send(happened.WorkloadDeleted(workload.key, workload.uid))

    def restart(self) -> None:
        self.core = AdmissionState.from_dict(self.core.to_dict())

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)

    def again(self) -> None:
        """Everything is observed once more, as after a new list."""
        for kind, objects in self.specs.items():
            for name, raw in objects.items():
                self.send(_MADE[kind](name, raw))
        for workload in self.workloads.values():
            self.send(happened.WorkloadChanged(workload))

    def step(self, raw: Any) -> None:
        if isinstance(raw, str):
            _PLAIN_STEPS[raw](self)
            return
        ((word, what),) = cast("Raw", raw).items()
        _STEPS[word](self, what)

    # --- expectations -----------------------------------------------------------------------------

    def expect(self, raw: Any) -> None:
        for word, what in cast("Raw", raw).items():
            _EXPECTATIONS[word](self, what)
        self.told.clear()
        self.decided.clear()

    def explained(self, key: ObjectKey) -> str:
        refusal = self.core.parked_refusal(key)
        if refusal is None:
            return "not refused"
        if self.core.is_bypassed(key):
            reason, message = explain.bypassed_condition(refusal)
        else:
            reason, message = explain.pending_condition(refusal, product="admitq")
        return f"{reason}: {message}"

    def expect_reserved(self, names: list[str]) -> None:
        assert [name_of(each.key) for each in self.decided] == names

    def expect_waiting(self, expected: Raw) -> None:
        assert {name: self.explained(key_of(name)) for name in expected} == dict(expected)

    def expect_flavors(self, expected: Raw) -> None:
        for name, of in expected.items():
            (decided,) = (each for each in self.decided if each.key == key_of(name))
            parts = {part.name: dict(part.flavors) for part in decided.admission.pod_set_assignments}
            assert (parts if next(iter(of)) in parts else parts["main"]) == of

    def expect_usage(self, expected: Raw) -> None:
        """What was assigned, as ``{name: {podset: {resource: amount, count: n}}}``."""
        for name, of in expected.items():
            (decided,) = (each for each in self.decided if each.key == key_of(name))
            assert {
                part.name: {**printed(part.resource_usage), "count": part.count}
                for part in decided.admission.pod_set_assignments
            } == of

    def expect_admit(self, expected: Raw) -> None:
        assert {name_of(each.key): each.admit for each in self.decided} == dict(expected)

    def expect_reported(self, names: list[str]) -> None:
        assert [name_of(each.key) for each in self.told if isinstance(each, ReportPending)] == names

    def expect_requests(self, expected: Raw) -> None:
        reports = {name_of(each.key): each for each in self.told if isinstance(each, ReportPending)}
        for name, of in expected.items():
            assert {part: printed(totals) for part, totals in reports[name].resource_requests} == of

    def expect_considered(self, expected: Raw) -> None:
        assert {name: self.considered.get(key_of(name)) for name in expected} == dict(expected)

    def expect_phases(self, expected: Raw) -> None:
        assert {name: self.core.workload_phase(key_of(name)) for name in expected} == dict(expected)

    def expect_quiet(self, quiet: bool) -> None:
        assert (not self.told) == quiet, self.told

    def expect_refreshed(self, names: list[str]) -> None:
        """Exactly these ClusterQueues, LocalQueues and cohorts are to be refreshed, as ``Kind name``."""
        shown: set[str] = set()
        for each in self.told:
            match each:
                case RefreshClusterQueue(name):
                    shown.add(f"ClusterQueue {name}")
                case RefreshLocalQueue(key):
                    shown.add(f"LocalQueue {name_of(key)}")
                case RefreshCohort(name):
                    shown.add(f"Cohort {name}")
                case _:
                    pass
        assert sorted(shown) == sorted(names)

    def expect_wakeup(self, when: Any) -> None:
        due = self.core.next_wakeup(self.now)
        shown = "never" if due is None else "now" if due <= self.now else (due - self.now) / SECOND
        assert shown == when

    def expect_cluster_queues(self, expected: Raw) -> None:
        for name, of in expected.items():
            status = self.core.cluster_queue_status(name)
            if of is None or status is None:
                assert status is None
                assert of is None
                continue
            condition = explain.cluster_queue_active(status)
            shown: dict[str, Any] = {
                "pending": status.pending,
                "inadmissible": status.inadmissible,
                "reserving": status.reserving,
                "admitted": status.admitted,
                "active": status.active,
                "condition": f"{condition.reason}: {condition.message}",
                "reservation": totals(status.flavors_reservation, borrowed=False),
                "usage": totals(status.flavors_usage, borrowed=False),
                "borrowed": totals(status.flavors_reservation, borrowed=True),
            }
            assert {word: shown[word] for word in of} == of

    def expect_local_queues(self, expected: Raw) -> None:
        for name, of in expected.items():
            status = self.core.local_queue_status(key_of(name))
            if of is None or status is None:
                assert status is None
                assert of is None
                continue
            condition = explain.local_queue_active(status)
            shown: dict[str, Any] = {
                "pending": status.pending,
                "reserving": status.reserving,
                "admitted": status.admitted,
                "active": status.active,
                "condition": f"{condition.reason}: {condition.message}",
                "reservation": totals(status.flavors_reservation, borrowed=False),
                "usage": totals(status.flavors_usage, borrowed=False),
            }
            assert {word: shown[word] for word in of} == of

    def expect_cohorts(self, expected: Raw) -> None:
        for name, of in expected.items():
            status = self.core.cohort_status(name)
            if of is None or status is None:
                assert status is None
                assert of is None
                continue
            shown = {
                "quota": {f"{f}/{r}": format_amount(r, value) for (f, r), value in status.subtree_quota},
                "reservations": {
                    f"{f}/{r}": format_amount(r, value) for (f, r), value in status.subtree_reservations
                },
            }
            assert {word: shown[word] for word in of} == of

    def expect_in_use(self, expected: Raw) -> None:
        ask: dict[str, Callable[[str], bool]] = {
            "flavors": self.core.is_flavor_in_use,
            "checks": self.core.is_admission_check_in_use,
            "topologies": self.core.is_topology_in_use,
            "clusterQueues": self.core.cluster_queue_has_reservations,
        }
        for kind, of in expected.items():
            assert {name: ask[kind](name) for name in of} == of


def printed(of: Amounts) -> dict[str, str]:
    return {resource: format_amount(resource, value) for resource, value in of}


def totals(of: tuple[FlavorTotals, ...], *, borrowed: bool) -> dict[str, dict[str, str]]:
    return {
        flavor: {
            total.resource: format_amount(total.resource, total.borrowed if borrowed else total.total)
            for total in resources
        }
        for flavor, resources in of
    }


_MADE: Mapping[str, Callable[[str, Any], Event]] = {
    "namespaces": lambda name, raw: happened.NamespaceChanged(name, labels(raw)),
    "topologies": lambda name, _: happened.TopologyChanged(name),
    "flavors": lambda name, raw: happened.ResourceFlavorChanged(flavor(name, raw)),
    "checks": lambda name, raw: happened.AdmissionCheckChanged(admission_check(name, raw)),
    "cohorts": lambda name, raw: happened.CohortChanged(cohort(name, raw)),
    "clusterQueues": lambda name, raw: happened.ClusterQueueChanged(cluster_queue(name, raw)),
    "localQueues": lambda name, raw: happened.LocalQueueChanged(local_queue(name, raw)),
}

_REMOVED: Mapping[str, Callable[[str], Event]] = {
    "namespaces": happened.NamespaceDeleted,
    "topologies": happened.TopologyDeleted,
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
    "active": ("active", bool),
    "deleting": ("deleting", bool),
    "onHold": ("on_hold", bool),
    "waitingForReplacementPods": ("waiting_for_replacement_pods", bool),
    "gates": ("admission_gates", tuple),
    "requeueAt": ("requeue_at", lambda at: None if at is None else instant(at)),
    "requeueBlocked": ("requeue_blocked", bool),
    "checks": ("admission_checks", lambda of: tuple(sorted(of.items()))),
    "reclaimable": ("reclaimable_pods", lambda of: tuple(sorted(of.items()))),
    "admitted": ("admitted", bool),
    "problems": ("resource_problems", lambda of: tuple(ResourceProblem(*each) for each in of)),
    "podSets": ("pod_sets", lambda of: tuple(pod_set(name, raw) for name, raw in of.items())),
}

_PLAIN_STEPS: Mapping[str, Callable[[Story], None]] = {
    "decide": lambda story: story.cycles(None, written=True),
    "decide without writing": lambda story: story.cycles(None, written=False),
    "one cycle": lambda story: story.cycles(1, written=True),
    "observe everything again": lambda story: story.again(),
    "restart": lambda story: story.restart(),
}


def _each(act: Callable[[Story, str, str], None]) -> Callable[[Story, Any], None]:
    def step(story: Story, raw: Any) -> None:
        for kind, names in cast("Raw", raw).items():
            for name in names if isinstance(names, list) else [names]:
                act(story, kind, cast("str", name))

    return step


def _put(story: Story, raw: Any) -> None:
    for kind, objects in cast("Raw", raw).items():
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
    "expect": Story.expect,
}

_EXPECTATIONS: Mapping[str, Callable[[Story, Any], None]] = {
    "reserved": Story.expect_reserved,
    "waiting": Story.expect_waiting,
    "flavors": Story.expect_flavors,
    "usage": Story.expect_usage,
    "admit": Story.expect_admit,
    "reported": Story.expect_reported,
    "requests": Story.expect_requests,
    "considered": Story.expect_considered,
    "phases": Story.expect_phases,
    "quiet": Story.expect_quiet,
    "refreshed": Story.expect_refreshed,
    "wakeup": Story.expect_wakeup,
    "clusterQueues": Story.expect_cluster_queues,
    "localQueues": Story.expect_local_queues,
    "cohorts": Story.expect_cohorts,
    "inUse": Story.expect_in_use,
}


def play(scenario: Raw) -> None:
    """Play one scenario from its world to its end.

    Raises:
        StoryError: the scenario is not well written.
        AssertionError: something else happened than is told.
    """
    words = Words(scenario, "scenario")
    words.take("title")
    settings = Words(words.take("settings", {}), "settings")
    story = Story(
        AdmissionState(
            Settings(settings.take("multikueueController", ""), settings.take("provisioningController", ""))
        )
    )
    settings.end()
    world = {"namespaces": {"default": {}}, **words.take("world", {})}
    _put(story, {kind: world[kind] for kind in _MADE if kind in world})
    unknown = set(world) - set(_MADE)
    if unknown:
        raise StoryError(f"world: unknown words {sorted(unknown)}")
    story.told.clear()
    steps = words.take("story")
    words.end()
    for number, step in enumerate(steps, 1):
        try:
            story.step(step)
        except AssertionError as error:
            error.add_note(f"in step {number}: {step}")
            raise
        except (KeyError, ValueError, TypeError) as error:
            raise StoryError(f"step {number}: {step}: {error!r}") from error
