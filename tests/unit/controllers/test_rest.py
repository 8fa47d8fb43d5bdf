"""Jobs of every kind and their Workloads come to rest, whatever befalls them.

The controllers of jobs, of what serves and of Workloads decide in turn over values, and each plan is carried
out on them as the API server would. While nothing else happens that must end: two steps that undo each
other's writes would write for ever. The final state must hold no unused quota and run nothing without quota.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeVar

import pytest

from admitq.controllers.job import members, workload_slices
from admitq.controllers.job.case import Ancestor, JobCase, Lookups
from admitq.controllers.job.steps import decide_job
from admitq.controllers.plan import Action, ActionPlan, Create, Delete, Patch, RemoveFinalizer, has_finalizer
from admitq.controllers.settings import Settings
from admitq.controllers.workload.case import WorkloadInputs
from admitq.controllers.workload.steps import decide_workload
from admitq.core.model import Admission, PodSetAssignment
from admitq.integrations.base import CompositionOptions, Integration, RuleContext
from admitq.integrations.ownership import get_controller, is_group_workload
from admitq.integrations.registry import load_integrations
from admitq.workloads.admission_patches import reservation_patch
from admitq.workloads.job_workloads import workload_pod_sets
from admitq.workloads.transitions import StatusTransition, find_condition, is_condition_true, is_reserved
from admitq_api.conditions import SECOND, ConditionType
from admitq_api.json_objects import FieldPath, value_at, with_value
from tests.unit.controllers.builders import (
    KINDS,
    NAMES,
    SETTINGS,
    apply_patch,
    cluster_queue,
    instant,
    local_queue,
    settings_with,
    timestamp,
)
from tests.unit.integrations.examples import RUNTIME, STATUS, custom_kinds, examples_of

HISTORIES, LENGTH = 40, 12
"""How many histories there are of each kind, and of how many events."""

ENOUGH = 30
"""Rounds in which all must have come to rest."""

KINDS_OF_JOBS = [
    pytest.param(one, id=one.framework)
    for one in (*load_integrations(), *custom_kinds())
    if one.serving is None
]
FLAVOR: dict[str, Any] = {
    "metadata": {"name": "f"},
    "spec": {"nodeLabels": {"pool": "spot"}, "tolerations": [{"key": "spot", "operator": "Exists"}]},
}


def _in_words(patch: dict[str, Any]) -> Any:
    """A patch, with no more of conditions than what they say."""
    status = dict(patch.get("status") or {})
    if listed := status.get("conditions"):
        status["conditions"] = " ".join(
            f"{one['type']}={one['status']}:{one.get('reason')}" for one in listed
        )
    kept = {key: value for key, value in patch.items() if key not in {"status", "metadata"}}
    metadata = {
        key: value for key, value in (patch.get("metadata") or {}).items() if key != "resourceVersion"
    }
    return kept | {"metadata": metadata, "status": status}


@dataclass
class Place:
    """A namespace with one job, its Workloads and its queues."""

    kind: Integration
    settings: Settings
    objects: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Of the job's kind: the job, or its members."""
    workloads: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    local_queue: dict[str, Any] | None = field(default_factory=local_queue)
    cluster_queue: dict[str, Any] | None = field(default_factory=cluster_queue)
    flavor: dict[str, Any] | None = field(default_factory=lambda: FLAVOR)
    runtime: dict[str, Any] | None = field(default_factory=lambda: RUNTIME)
    ancestor: Ancestor | None = None
    seconds: float = 10
    version: int = 100
    told: list[str] = field(default_factory=list[str])

    # --- what is seen -----------------------------------------------------------------------------

    def job(self) -> Any:
        """The job, put together if it has to be."""
        composition = self.kind.composition
        if composition is None:
            return next(iter(self.objects.values()), None)
        present = [one for one in self.objects.values() if composition.is_member(one, NAMES)]
        if not present:
            return None
        moment = CompositionOptions(
            instant(self.seconds), deleted_pods_release_quota=self.settings.pods.fast_quota_release
        )
        return composition.compose(present, NAMES, moment)

    def case(self) -> JobCase:
        """The job as its controller sees it."""
        job = self.job()
        group = value_at(job, ("group",), "") if self.kind.composition else ""
        if group:
            mine = members.find_group_workload(job or {}, self.workloads.get(group), NAMES, validate=True)
            found = () if mine is None else (mine,)
        else:
            # The Workload of a group without members is found by its name.
            found = tuple(
                one
                for one in self.workloads.values()
                if get_controller(one) is not None or (job is None and is_group_workload(one, NAMES))
            )
        references = () if job is None or self.runtime is None else self.kind.templates.list_references(job)
        resolved = {one: self.runtime for one in references if self.runtime is not None}
        missing = (
            () if job is None or self.runtime is not None else tuple(self.kind.templates.list_references(job))
        )
        return JobCase(
            integration=self.kind,
            names=NAMES,
            kinds=KINDS,
            settings=self.settings,
            now=instant(self.seconds),
            job=None if job is None else self.kind.templates.resolve(job, resolved),
            workloads=found,
            lookups=self.lookups(),
            ancestor=self.ancestor,
            missing=missing,
        )

    def lookups(self) -> Lookups:
        classes = {name: {"metadata": {"name": name}, "value": 7} for name in ("high", "low")}
        return Lookups(
            flavor=lambda name: self.flavor if name == "f" else None,
            workload_priority_class=classes.get,
            priority_class=classes.get,
            priority_classes=lambda: (),
            workload=self.workloads.get,
        )

    def world(self) -> WorkloadInputs:
        """What surrounds a Workload."""
        queue = self.cluster_queue
        return WorkloadInputs(
            names=NAMES,
            kinds=KINDS,
            settings=self.settings,
            local_queue=self.local_queue,
            cluster_queue=queue,
            cluster_queue_name="cq",
            cluster_queue_active=queue is not None and queue["spec"]["stopPolicy"] == "None",
        )

    # --- what is done -----------------------------------------------------------------------------

    def settle(self) -> None:
        """Run all controllers until none writes any more."""
        for _ in range(ENOUGH):
            if not any([*map(self.carry_out, self.decisions())]):
                return
        raise AssertionError("there is no rest:\n" + "\n".join(self.told[-12:]))

    def decisions(self) -> Iterator[ActionPlan]:
        """What is decided by each in turn, upon what the one before wrote."""
        yield decide_job(self.case())
        for name in list(self.workloads):
            if (workload := self.workloads.get(name)) is not None:
                yield self.decided(workload)

    def decided(self, workload: dict[str, Any]) -> ActionPlan:
        """What the controller of Workloads decides."""
        world = self.world()
        annotation = value_at(workload, ("metadata", "annotations", NAMES.workload_slice_replacement_for), "")
        original = self.workloads.get(annotation.rpartition("/")[2])
        return decide_workload(workload, replace(world, original=original), instant(self.seconds))

    def carry_out(self, plan: ActionPlan) -> bool:
        """Do what is planned; returns whether anything was to be written."""
        written = [self.write(action) for action in plan.actions]
        return any(written)

    def write(self, action: Action) -> bool:
        match action:
            case Create(_, obj):
                metadata = {
                    "uid": f"uid-{len(self.told)}",
                    "creationTimestamp": timestamp(self.seconds),
                    "generation": 1,
                }
                assert obj["metadata"]["name"] not in self.workloads
                self.keep(self.workloads, {**obj, "metadata": {**obj["metadata"], **metadata}})
                self.told.append(f"create {obj['metadata']['name']}")
            case Patch(resource, obj, steps):
                kept = self.of(resource.kind)
                name = obj["metadata"]["name"]
                assert kept[name]["metadata"]["resourceVersion"] == obj["metadata"]["resourceVersion"]
                for step in steps:
                    self.keep(kept, apply_patch(kept[name], step.patch))
                    self.told.append(f"patch {resource.kind} {name} {_in_words(step.patch)}")
            case RemoveFinalizer(resource, obj, finalizer):
                kept, ours = self.of(resource.kind), finalizer or NAMES.finalizer
                if (found := kept.get(obj["metadata"]["name"])) is None or not has_finalizer(found, ours):
                    return False
                left = [one for one in found["metadata"]["finalizers"] if one != ours]
                self.keep(kept, with_value(found, ("metadata", "finalizers"), left))
                self.told.append(f"free {obj['metadata']['name']}")
            case Delete(resource, obj):
                kept = self.of(resource.kind)
                if (found := kept.get(obj["metadata"]["name"])) is not None:
                    self.delete(kept, found)
                self.told.append(f"delete {obj['metadata']['name']}")
            case _:
                return False
        return True

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        return self.workloads if kind == "Workload" else self.objects

    def delete(self, kept: dict[str, dict[str, Any]], obj: dict[str, Any]) -> None:
        self.keep(kept, with_value(obj, ("metadata", "deletionTimestamp"), timestamp(self.seconds)))

    def keep(self, kept: dict[str, dict[str, Any]], obj: Any) -> None:
        """Store an object; one that is deleted and held by nothing is gone."""
        metadata = obj["metadata"]
        self.version += 1
        before: dict[str, Any] = kept.get(metadata["name"]) or obj
        generation = metadata.get("generation", 1) + (before["spec"] != obj["spec"])
        obj = {
            **obj,
            "metadata": {**metadata, "resourceVersion": str(self.version), "generation": generation},
        }
        kept[metadata["name"]] = obj
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            del kept[metadata["name"]]
            self.collect()

    def stored(self) -> tuple[dict[str, dict[str, Any]], ...]:
        """All that owns, or is owned."""
        return (self.objects, self.workloads)

    def collect(self) -> None:
        """Delete objects without an existing owner, as the garbage collector does."""
        alive = {one["metadata"]["uid"] for kept in self.stored() for one in kept.values()}
        for kept in self.stored():
            for one in list(kept.values()):
                owners = value_at(one, ("metadata", "ownerReferences"), [])
                is_owned = not owners or any(owner["uid"] in alive for owner in owners)
                if not is_owned and "deletionTimestamp" not in one["metadata"]:
                    self.delete(kept, one)


# --- what may befall them -------------------------------------------------------------------------

Event = Callable[[Place, Random], None]


def _coin(random: Random) -> bool:
    return random.random() < 0.5


def _change(place: Place, obj: dict[str, Any], path: FieldPath, value: Any) -> None:
    """Another program's write of one field."""
    place.keep(
        place.objects if obj["kind"] == place.kind.kind else place.workloads, with_value(obj, path, value)
    )


def _any_workload(place: Place, random: Random) -> dict[str, Any] | None:
    names = sorted(place.workloads)
    return place.workloads[random.choice(names)] if names else None


def reserves(place: Place, random: Random) -> None:
    """Reserve quota for pending Workloads, perhaps for fewer pods, perhaps with outstanding checks."""
    workload = _any_workload(place, random)
    if workload is None or is_reserved(workload) or is_condition_true(workload, ConditionType.FINISHED):
        return
    said = [
        find_condition(workload, one) or {} for one in (ConditionType.QUOTA_RESERVED, ConditionType.REQUEUED)
    ]
    if said[0].get("reason") == "OnHold" or said[1].get("status") == "False":
        return
    if value_at(workload, ("spec", "active"), True) is False or "deletionTimestamp" in workload["metadata"]:
        return
    fewer = _coin(random)
    assignments = tuple(
        PodSetAssignment(
            one.get("name", "main"),
            (("cpu", "f"),),
            (("cpu", 1),),
            one.get("minCount", one.get("count", 1)) if fewer else one.get("count", 1),
        )
        for one in workload["spec"]["podSets"]
    )
    patch = reservation_patch(
        workload, Admission("cq", assignments), admit=_coin(random), now=instant(place.seconds)
    )
    place.keep(place.workloads, apply_patch(workload, patch))


def preempts(place: Place, random: Random) -> None:
    workload = _any_workload(place, random)
    if (
        workload is not None
        and is_reserved(workload)
        and not is_condition_true(workload, ConditionType.FINISHED)
    ):
        transition = StatusTransition(workload, instant(place.seconds))
        transition.preempt("InClusterQueue", "for another")
        if patch := transition.patch():
            place.keep(place.workloads, apply_patch(workload, patch))


def is_activated_or_not(place: Place, random: Random) -> None:
    if (workload := _any_workload(place, random)) is not None:
        _change(place, workload, ("spec", "active"), _coin(random))


def workload_is_deleted(place: Place, random: Random) -> None:
    if (workload := _any_workload(place, random)) is not None:
        place.delete(place.workloads, workload)


def check_is_answered(place: Place, random: Random) -> None:
    workload = _any_workload(place, random)
    checks = value_at(workload, ("status", "admissionChecks"), [])
    if workload is not None and checks:
        state = random.choice(["Ready", "Retry", "Rejected", "Pending"])
        answer: dict[str, Any] = {
            "state": state,
            "message": "m",
            "lastTransitionTime": timestamp(place.seconds),
        }
        if state == "Retry":
            answer["requeueAfterSeconds"] = random.choice([1, 500])
        _change(place, workload, ("status", "admissionChecks"), [{**one, **answer} for one in checks])


def gate_comes_or_goes(place: Place, random: Random) -> None:
    if (workload := _any_workload(place, random)) is not None:
        path = ("metadata", "annotations", NAMES.admission_gated_by)
        _change(place, workload, path, random.choice(["", "example.com/a", "a/b,c/d"]))


def queue_changes(place: Place, random: Random) -> None:
    stops = ["None", "None", "Hold", "HoldAndDrain"]
    checks = random.choice([[], [{"name": "c"}], [{"name": "c", "onFlavors": ["f"]}]])
    going = random.choice([{}, {}, {"deletionTimestamp": timestamp(0)}])
    place.local_queue = random.choice([None, *2 * [local_queue(random.choice(stops))]])
    found = cluster_queue(random.choice(stops), checks=checks, **going)
    place.cluster_queue = random.choice([None, found, found])


def flavor_or_runtime_changes(place: Place, random: Random) -> None:
    place.flavor = random.choice([None, FLAVOR])
    place.runtime = random.choice([None, RUNTIME])


def time_passes(place: Place, random: Random) -> None:
    place.seconds += random.choice([1, 60, 400, 4000])


def job_is_deleted(place: Place, random: Random) -> None:
    for obj in list(place.objects.values()):
        place.delete(place.objects, obj)


def _any_object(place: Place, random: Random) -> dict[str, Any] | None:
    names = sorted(place.objects)
    return place.objects[random.choice(names)] if names else None


def job_moves(place: Place, random: Random) -> None:
    """Its owner has it queue elsewhere, or nowhere, or with another priority or limit."""
    if (obj := _any_object(place, random)) is not None:
        key = random.choice([NAMES.queue_name, NAMES.priority_class, NAMES.max_exec_time])
        value = random.choice(["lq", "high", "30", None, "none-such"])
        _change(place, obj, ("metadata", "labels", key), value)


def job_is_flipped(place: Place, random: Random) -> None:
    if (obj := _any_object(place, random)) is not None and place.kind.lifecycle.is_suspended is None:
        _change(place, obj, place.kind.lifecycle.suspend_path, _coin(random))


def job_asks_for_more(place: Place, random: Random) -> None:
    """Its owner changes a number somewhere in it."""
    if (obj := _any_object(place, random)) is None or place.kind.composition is not None:
        return
    numbers = list(_numbers(obj["spec"]))
    if numbers:
        path = random.choice(numbers)
        _change(place, obj, ("spec", *path), random.choice([0, 1, 2, 5]))


def _numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in items:
        if isinstance(item, int) and not isinstance(item, bool):
            yield (*path, step)
        yield from _numbers(item, (*path, step))


def job_goes_on(place: Place, random: Random) -> None:
    """Its own controller tells how it stands."""
    if (obj := _any_object(place, random)) is not None:
        status = random.choice(STATUSES)
        _change(place, obj, ("status",), status)


ENDED = {
    **STATUS,
    "conditions": [{"type": "Complete", "status": "True", "message": "done"}],
    "phase": "Succeeded",
}
UNENDED = {key: value for key, value in STATUS.items() if key not in {"conditions", "state", "phase"}}
STATUSES: list[dict[str, Any]] = [
    {},
    {},
    {},
    {},
    STATUS,
    ENDED,
    UNENDED,
    {"phase": "Failed"},
    {"phase": "Running"},
]
MARKS: list[dict[str, Any]] = [
    {},
    {},
    {NAMES.elastic_job: "true"},
    {NAMES.job_min_parallelism: "1"},
    {NAMES.prebuilt_workload_name: "pre"},
    {NAMES.admission_gated_by: "example.com/a"},
]


def job_comes(place: Place, random: Random) -> None:
    """A job is made, as our webhook leaves it; perhaps another of its name was there before."""
    if place.objects:
        return
    kind = place.kind
    first = random.choice(examples_of(kind.api_version, kind.kind))
    metadata: dict[str, Any] = first.get("metadata", {})
    annotations: dict[str, Any] = {**(metadata.get("annotations") or {}), **random.choice(MARKS)}
    is_group = kind.composition is not None and _coin(random)
    if is_group:
        annotations |= {NAMES.pod_group_name: "g", NAMES.pod_group_total_count: "2"}
    for name in ("j", "k") if is_group else ("j",):
        given: dict[str, Any] = {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}-{place.version}",
            "creationTimestamp": timestamp(place.seconds),
            "labels": {**(metadata.get("labels") or {}), NAMES.queue_name: "lq"},
            "annotations": annotations,
        }
        made = {"apiVersion": kind.api_version, "kind": kind.kind, **first, "metadata": given, "status": {}}
        held = (
            made
            if kind.lifecycle.is_suspended is not None
            else with_value(made, kind.lifecycle.suspend_path, True)
        )
        place.keep(place.objects, kind.webhook.mutate(held, RuleContext(NAMES)))


def prebuilt_comes(place: Place, random: Random) -> None:
    """A Workload that a job may adopt is made, of its pods or of others."""
    case = place.case()
    if case.job is None or "pre" in place.workloads:
        return
    listed = workload_pod_sets(case) if _coin(random) else [{"name": "main", "count": 1, "template": {}}]
    metadata = {
        "name": "pre",
        "namespace": "ns",
        "uid": f"uid-pre-{place.version}",
        "finalizers": [NAMES.finalizer],
    }
    metadata |= {"creationTimestamp": timestamp(place.seconds)}
    spec = {"podSets": listed, "queueName": "lq"}
    place.keep(place.workloads, {"kind": "Workload", "metadata": metadata, "spec": spec})


def ancestor_changes(place: Place, random: Random) -> None:
    if place.kind.composition is None:
        place.ancestor = random.choice(
            [None, None, Ancestor({}, admitted=True), Ancestor({}, admitted=False)]
        )


RARE: list[Event] = [
    preempts,
    is_activated_or_not,
    workload_is_deleted,
    gate_comes_or_goes,
    flavor_or_runtime_changes,
    job_is_deleted,
    job_moves,
    job_is_flipped,
    job_asks_for_more,
    ancestor_changes,
]
OFTEN: list[Event] = [
    reserves,
    reserves,
    check_is_answered,
    job_goes_on,
    job_comes,
    prebuilt_comes,
    queue_changes,
    time_passes,
]
EVENTS: list[Event] = [*RARE, *OFTEN, *OFTEN]


# --- what must be so ------------------------------------------------------------------------------


def may_run(workload: dict[str, Any]) -> bool:
    admitted, evicted = (
        is_condition_true(workload, one) for one in (ConditionType.ADMITTED, ConditionType.EVICTED)
    )
    return admitted and not evicted


def problems(place: Place) -> Iterator[str]:
    """States that must not exist once no controller has anything to do."""
    case, kind = place.case(), place.kind
    if place.ancestor is not None:
        if case.job is not None and any(
            not is_condition_true(one, ConditionType.FINISHED) for one in case.owned
        ):
            yield "it is queued beside the job that it is inside of"
        return
    alive = [one for one in place.workloads.values() if not is_condition_true(one, ConditionType.FINISHED)]
    if case.job is None or "deletionTimestamp" in case.job["metadata"]:
        for one in place.workloads.values():
            metadata = one["metadata"]
            if metadata.get("ownerReferences") and NAMES.finalizer in metadata.get("finalizers", ()):
                yield f"{one['metadata']['name']} is held for no job"
        return
    job = case.job
    for one in alive:
        owned = one["metadata"].get("ownerReferences")
        if (
            owned
            and is_reserved(one)
            and is_condition_true(one, ConditionType.EVICTED)
            and not kind.is_active(job)
        ):
            yield f"{one['metadata']['name']} keeps quota of which it was evicted"
    if (
        case.missing
        or kind.find_outcome(job) is not None
        or kind.is_active(job)
        or kind.lifecycle.is_ignored(job)
    ):
        return
    admitted = [one for one in alive if may_run(one) and one in case.owned]
    held = any(is_reserved(one) for one in alive) or workload_slices.is_elastic(case)
    if not kind.is_suspended(job, NAMES) and not held and case.queue_name:
        yield "it runs, and nothing is admitted"
    if admitted and members.awaits_start(case) and place.flavor is not None and kind.composition is None:
        yield "it is admitted, and waits"


def settings_for(kind: Integration, random: Random) -> Settings:
    """Any settings."""
    return settings_with(
        integrations=(kind,),
        pods_ready=random.choice([None, SETTINGS.pods_ready]),
        after_finished=random.choice([None, None, 500 * SECOND]),
        after_deactivated=random.choice([None, None, 500 * SECOND]),
        **{name: _coin(random) for name in GATES},
    )


def placed(kind: Integration, random: Random) -> Place:
    """A namespace with a new job of the kind, under any settings."""
    place = Place(kind, settings_for(kind, random))
    job_comes(place, random)
    return place


GATES = (
    "elastic_jobs",
    "explicit_pending",
    "finish_orphaned",
    "partial_admission",
    "reclaimable_pods",
    "detailed_reasons",
    "fast_quota_release",
    "skip_reassignment",
    "strict_finalizers",
)


PlaceT = TypeVar("PlaceT", bound=Place)


def live(
    place: PlaceT,
    random: Random,
    events: Sequence[Callable[[PlaceT, Random], None]],
    length: int,
    problems: Callable[[PlaceT], Iterable[str]],
    which: str,
) -> None:
    """Have so many things befall a place, each when it has come to rest from the one before."""
    place.settle()
    for _ in range(length):
        event = random.choice(events)
        place.told.append(f"--- {event.__name__}")
        event(place, random)
        place.settle()
        found = [*problems(place)]
        assert not found, "\n".join([which, *found, *place.told])


@pytest.mark.parametrize("kind", KINDS_OF_JOBS)
def test_controllers_of_jobs_settle_after_every_event_of_history(kind: Integration) -> None:
    for seed in range(HISTORIES):
        random = Random(seed)  # noqa: S311 the same histories in each run
        live(placed(kind, random), random, EVENTS, LENGTH, problems, f"seed {seed}")
