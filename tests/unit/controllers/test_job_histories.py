"""Random histories of jobs of every kind and their Workloads.

The controllers of jobs and Workloads decide in turn, and each plan is executed as by the API server.
After each event the controllers must stop writing: two steps that undo each other's writes would write
forever. In the final state, no Workload holds unused quota, and no job runs without quota.
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
from admitq.controllers.settings import ControllerSettings
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
"""The number of histories of each kind, and the number of events of each history."""

MAX_ROUNDS = 30
"""The number of rounds after which no controller may write."""

KINDS_OF_JOBS = [
    pytest.param(integration, id=integration.framework)
    for integration in (*load_integrations(), *custom_kinds())
    if integration.serving is None
]
FLAVOR: dict[str, Any] = {
    "metadata": {"name": "f"},
    "spec": {"nodeLabels": {"pool": "spot"}, "tolerations": [{"key": "spot", "operator": "Exists"}]},
}


def _describe_patch(patch: dict[str, Any]) -> Any:
    """Return a patch with its conditions in short form, and without its version."""
    status = dict(patch.get("status") or {})
    if listed := status.get("conditions"):
        status["conditions"] = " ".join(
            f"{item['type']}={item['status']}:{item.get('reason')}" for item in listed
        )
    others = {key: value for key, value in patch.items() if key not in {"status", "metadata"}}
    metadata = {
        key: value for key, value in (patch.get("metadata") or {}).items() if key != "resourceVersion"
    }
    return others | {"metadata": metadata, "status": status}


@dataclass
class Place:
    """A namespace with one job, its Workloads and its queues."""

    kind: Integration
    settings: ControllerSettings
    objects: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """The job, or its pods."""
    workloads: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    local_queue: dict[str, Any] | None = field(default_factory=local_queue)
    cluster_queue: dict[str, Any] | None = field(default_factory=cluster_queue)
    flavor: dict[str, Any] | None = field(default_factory=lambda: FLAVOR)
    runtime: dict[str, Any] | None = field(default_factory=lambda: RUNTIME)
    ancestor: Ancestor | None = None
    seconds: float = 10
    version: int = 100
    log: list[str] = field(default_factory=list[str])

    # --- inputs of decisions ----------------------------------------------------------------------

    def job(self) -> Any:
        """Return the job; a job that consists of pods is composed of them."""
        composition = self.kind.composition
        if composition is None:
            return next(iter(self.objects.values()), None)
        present = [obj for obj in self.objects.values() if composition.is_member(obj, NAMES)]
        if not present:
            return None
        moment = CompositionOptions(
            instant(self.seconds), deleted_pods_release_quota=self.settings.pods.fast_quota_release
        )
        return composition.compose(present, NAMES, moment)

    def case(self) -> JobCase:
        """Return the inputs of the job controller."""
        job = self.job()
        group = value_at(job, ("group",), "") if self.kind.composition else ""
        if group:
            group_workload = members.find_group_workload(
                job or {}, self.workloads.get(group), NAMES, validate=True
            )
            workloads = () if group_workload is None else (group_workload,)
        else:
            # The Workload of a group without pods is found by its name.
            workloads = tuple(
                obj
                for obj in self.workloads.values()
                if get_controller(obj) is not None or (job is None and is_group_workload(obj, NAMES))
            )
        references = () if job is None or self.runtime is None else self.kind.templates.list_references(job)
        resolved = {reference: self.runtime for reference in references if self.runtime is not None}
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
            workloads=workloads,
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

    def workload_inputs(self) -> WorkloadInputs:
        """Return the inputs of the Workload controller."""
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

    # --- execution of plans -----------------------------------------------------------------------

    def settle(self) -> None:
        """Run all controllers until none writes anything."""
        for _ in range(MAX_ROUNDS):
            if not any([*map(self.execute, self.decisions())]):
                return
        raise AssertionError("controllers do not stop writing:\n" + "\n".join(self.log[-12:]))

    def decisions(self) -> Iterator[ActionPlan]:
        """Return the plans of all controllers; each decides after the writes of the previous plan."""
        yield decide_job(self.case())
        for name in list(self.workloads):
            if (workload := self.workloads.get(name)) is not None:
                yield self.plan_for_workload(workload)

    def plan_for_workload(self, workload: dict[str, Any]) -> ActionPlan:
        """Return the plan of the Workload controller."""
        inputs = self.workload_inputs()
        annotation = value_at(workload, ("metadata", "annotations", NAMES.workload_slice_replacement_for), "")
        original = self.workloads.get(annotation.rpartition("/")[2])
        return decide_workload(workload, replace(inputs, original=original), instant(self.seconds))

    def execute(self, plan: ActionPlan) -> bool:
        """Execute a plan; return whether it wrote anything."""
        written = [self.write(action) for action in plan.actions]
        return any(written)

    def write(self, action: Action) -> bool:
        match action:
            case Create(_, obj):
                metadata = {
                    "uid": f"uid-{len(self.log)}",
                    "creationTimestamp": timestamp(self.seconds),
                    "generation": 1,
                }
                assert obj["metadata"]["name"] not in self.workloads
                self.store(self.workloads, {**obj, "metadata": {**obj["metadata"], **metadata}})
                self.log.append(f"create {obj['metadata']['name']}")
            case Patch(resource, obj, steps):
                collection = self.of(resource.kind)
                name = obj["metadata"]["name"]
                assert collection[name]["metadata"]["resourceVersion"] == obj["metadata"]["resourceVersion"]
                for step in steps:
                    self.store(collection, apply_patch(collection[name], step.patch))
                    self.log.append(f"patch {resource.kind} {name} {_describe_patch(step.patch)}")
            case RemoveFinalizer(resource, obj, finalizer):
                collection, own_finalizer = self.of(resource.kind), finalizer or NAMES.finalizer
                if (stored_object := collection.get(obj["metadata"]["name"])) is None or not has_finalizer(
                    stored_object, own_finalizer
                ):
                    return False
                left = [name for name in stored_object["metadata"]["finalizers"] if name != own_finalizer]
                self.store(collection, with_value(stored_object, ("metadata", "finalizers"), left))
                self.log.append(f"free {obj['metadata']['name']}")
            case Delete(resource, obj):
                collection = self.of(resource.kind)
                if (stored_object := collection.get(obj["metadata"]["name"])) is not None:
                    self.delete(collection, stored_object)
                self.log.append(f"delete {obj['metadata']['name']}")
            case _:
                return False
        return True

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        return self.workloads if kind == "Workload" else self.objects

    def delete(self, collection: dict[str, dict[str, Any]], obj: dict[str, Any]) -> None:
        self.store(collection, with_value(obj, ("metadata", "deletionTimestamp"), timestamp(self.seconds)))

    def store(self, collection: dict[str, dict[str, Any]], obj: Any) -> None:
        """Store an object; a deleted object without finalizers is removed."""
        metadata = obj["metadata"]
        self.version += 1
        before: dict[str, Any] = collection.get(metadata["name"]) or obj
        generation = metadata.get("generation", 1) + (before["spec"] != obj["spec"])
        obj = {
            **obj,
            "metadata": {**metadata, "resourceVersion": str(self.version), "generation": generation},
        }
        collection[metadata["name"]] = obj
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            del collection[metadata["name"]]
            self.collect()

    def stored(self) -> tuple[dict[str, dict[str, Any]], ...]:
        """Return all collections of objects."""
        return (self.objects, self.workloads)

    def collect(self) -> None:
        """Delete objects without an existing owner, as the garbage collector does."""
        alive = {obj["metadata"]["uid"] for collection in self.stored() for obj in collection.values()}
        for collection in self.stored():
            for obj in list(collection.values()):
                owners = value_at(obj, ("metadata", "ownerReferences"), [])
                is_owned = not owners or any(owner["uid"] in alive for owner in owners)
                if not is_owned and "deletionTimestamp" not in obj["metadata"]:
                    self.delete(collection, obj)


# --- events ---------------------------------------------------------------------------------------

Event = Callable[[Place, Random], None]


def _flip_coin(random: Random) -> bool:
    return random.random() < 0.5


def _change_field(place: Place, obj: dict[str, Any], path: FieldPath, value: Any) -> None:
    """Change one field as another program would."""
    place.store(
        place.objects if obj["kind"] == place.kind.kind else place.workloads, with_value(obj, path, value)
    )


def _choose_workload(place: Place, random: Random) -> dict[str, Any] | None:
    names = sorted(place.workloads)
    return place.workloads[random.choice(names)] if names else None


def quota_is_reserved(place: Place, random: Random) -> None:
    """Reserve quota for a pending Workload, for all or fewer pods, with or without admission."""
    workload = _choose_workload(place, random)
    if workload is None or is_reserved(workload) or is_condition_true(workload, ConditionType.FINISHED):
        return
    reserved, requeued = (
        find_condition(workload, type_) or {}
        for type_ in (ConditionType.QUOTA_RESERVED, ConditionType.REQUEUED)
    )
    if reserved.get("reason") == "OnHold" or requeued.get("status") == "False":
        return
    if value_at(workload, ("spec", "active"), True) is False or "deletionTimestamp" in workload["metadata"]:
        return
    fewer = _flip_coin(random)
    assignments = tuple(
        PodSetAssignment(
            pod_set.get("name", "main"),
            (("cpu", "f"),),
            (("cpu", 1),),
            pod_set.get("minCount", pod_set.get("count", 1)) if fewer else pod_set.get("count", 1),
        )
        for pod_set in workload["spec"]["podSets"]
    )
    patch = reservation_patch(
        workload, Admission("cq", assignments), admit=_flip_coin(random), now=instant(place.seconds)
    )
    place.store(place.workloads, apply_patch(workload, patch))


def workload_is_preempted(place: Place, random: Random) -> None:
    workload = _choose_workload(place, random)
    if (
        workload is not None
        and is_reserved(workload)
        and not is_condition_true(workload, ConditionType.FINISHED)
    ):
        transition = StatusTransition(workload, instant(place.seconds))
        transition.preempt("InClusterQueue", "for another")
        if patch := transition.patch():
            place.store(place.workloads, apply_patch(workload, patch))


def workload_activity_changes(place: Place, random: Random) -> None:
    if (workload := _choose_workload(place, random)) is not None:
        _change_field(place, workload, ("spec", "active"), _flip_coin(random))


def workload_is_deleted(place: Place, random: Random) -> None:
    if (workload := _choose_workload(place, random)) is not None:
        place.delete(place.workloads, workload)


def check_state_changes(place: Place, random: Random) -> None:
    workload = _choose_workload(place, random)
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
        _change_field(place, workload, ("status", "admissionChecks"), [{**item, **answer} for item in checks])


def admission_gates_change(place: Place, random: Random) -> None:
    if (workload := _choose_workload(place, random)) is not None:
        path = ("metadata", "annotations", NAMES.admission_gated_by)
        _change_field(place, workload, path, random.choice(["", "example.com/a", "a/b,c/d"]))


def queues_change(place: Place, random: Random) -> None:
    stops = ["None", "None", "Hold", "HoldAndDrain"]
    checks = random.choice([[], [{"name": "c"}], [{"name": "c", "onFlavors": ["f"]}]])
    deletion = random.choice([{}, {}, {"deletionTimestamp": timestamp(0)}])
    place.local_queue = random.choice([None, *2 * [local_queue(random.choice(stops))]])
    changed = cluster_queue(random.choice(stops), checks=checks, **deletion)
    place.cluster_queue = random.choice([None, changed, changed])


def flavor_or_runtime_changes(place: Place, random: Random) -> None:
    place.flavor = random.choice([None, FLAVOR])
    place.runtime = random.choice([None, RUNTIME])


def time_passes(place: Place, random: Random) -> None:
    place.seconds += random.choice([1, 60, 400, 4000])


def job_is_deleted(place: Place, random: Random) -> None:
    for obj in list(place.objects.values()):
        place.delete(place.objects, obj)


def _choose_object(place: Place, random: Random) -> dict[str, Any] | None:
    names = sorted(place.objects)
    return place.objects[random.choice(names)] if names else None


def queue_or_priority_of_job_changes(place: Place, random: Random) -> None:
    """Change or remove the queue, priority class or execution limit of the job."""
    if (obj := _choose_object(place, random)) is not None:
        key = random.choice([NAMES.queue_name, NAMES.priority_class, NAMES.max_exec_time])
        value = random.choice(["lq", "high", "30", None, "none-such"])
        _change_field(place, obj, ("metadata", "labels", key), value)


def job_suspension_changes(place: Place, random: Random) -> None:
    if (obj := _choose_object(place, random)) is not None and place.kind.lifecycle.is_suspended is None:
        _change_field(place, obj, place.kind.lifecycle.suspend_path, _flip_coin(random))


def number_in_job_changes(place: Place, random: Random) -> None:
    """Change one number in the spec of the job."""
    if (obj := _choose_object(place, random)) is None or place.kind.composition is not None:
        return
    numbers = list(_find_numbers(obj["spec"]))
    if numbers:
        path = random.choice(numbers)
        _change_field(place, obj, ("spec", *path), random.choice([0, 1, 2, 5]))


def _find_numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in items:
        if isinstance(item, int) and not isinstance(item, bool):
            yield (*path, step)
        yield from _find_numbers(item, (*path, step))


def job_status_changes(place: Place, random: Random) -> None:
    """Change the status of the job, as its own controller would."""
    if (obj := _choose_object(place, random)) is not None:
        status = random.choice(STATUSES)
        _change_field(place, obj, ("status",), status)


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


def job_is_created(place: Place, random: Random) -> None:
    """Create a job, as the webhook mutates it."""
    if place.objects:
        return
    kind = place.kind
    first = random.choice(examples_of(kind.api_version, kind.kind))
    metadata: dict[str, Any] = first.get("metadata", {})
    annotations: dict[str, Any] = {**(metadata.get("annotations") or {}), **random.choice(MARKS)}
    is_group = kind.composition is not None and _flip_coin(random)
    if is_group:
        annotations |= {NAMES.pod_group_name: "g", NAMES.pod_group_total_count: "2"}
    for name in ("j", "k") if is_group else ("j",):
        identity: dict[str, Any] = {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}-{place.version}",
            "creationTimestamp": timestamp(place.seconds),
            "labels": {**(metadata.get("labels") or {}), NAMES.queue_name: "lq"},
            "annotations": annotations,
        }
        created = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            **first,
            "metadata": identity,
            "status": {},
        }
        held = (
            created
            if kind.lifecycle.is_suspended is not None
            else with_value(created, kind.lifecycle.suspend_path, True)
        )
        place.store(place.objects, kind.webhook.mutate(held, RuleContext(NAMES)))


def prebuilt_workload_is_created(place: Place, random: Random) -> None:
    """Create a prebuilt Workload with podsets that equal or differ from those of the job."""
    case = place.case()
    if case.job is None or "pre" in place.workloads:
        return
    listed = workload_pod_sets(case) if _flip_coin(random) else [{"name": "main", "count": 1, "template": {}}]
    metadata = {
        "name": "pre",
        "namespace": "ns",
        "uid": f"uid-pre-{place.version}",
        "finalizers": [NAMES.finalizer],
    }
    metadata |= {"creationTimestamp": timestamp(place.seconds)}
    spec = {"podSets": listed, "queueName": "lq"}
    place.store(place.workloads, {"kind": "Workload", "metadata": metadata, "spec": spec})


def ancestor_changes(place: Place, random: Random) -> None:
    if place.kind.composition is None:
        place.ancestor = random.choice(
            [None, None, Ancestor({}, admitted=True), Ancestor({}, admitted=False)]
        )


RARE: list[Event] = [
    workload_is_preempted,
    workload_activity_changes,
    workload_is_deleted,
    admission_gates_change,
    flavor_or_runtime_changes,
    job_is_deleted,
    queue_or_priority_of_job_changes,
    job_suspension_changes,
    number_in_job_changes,
    ancestor_changes,
]
OFTEN: list[Event] = [
    quota_is_reserved,
    quota_is_reserved,
    check_state_changes,
    job_status_changes,
    job_is_created,
    prebuilt_workload_is_created,
    queues_change,
    time_passes,
]
EVENTS: list[Event] = [*RARE, *OFTEN, *OFTEN]


# --- forbidden final states -----------------------------------------------------------------------


def may_run(workload: dict[str, Any]) -> bool:
    admitted, evicted = (
        is_condition_true(workload, type_) for type_ in (ConditionType.ADMITTED, ConditionType.EVICTED)
    )
    return admitted and not evicted


def find_violations(place: Place) -> Iterator[str]:
    """Return the violations of the final state, once no controller writes anything."""
    case, kind = place.case(), place.kind
    if place.ancestor is not None:
        if case.job is not None and any(
            not is_condition_true(obj, ConditionType.FINISHED) for obj in case.owned
        ):
            yield "the job is queued although its ancestor is"
        return
    alive = [obj for obj in place.workloads.values() if not is_condition_true(obj, ConditionType.FINISHED)]
    if case.job is None or "deletionTimestamp" in case.job["metadata"]:
        for obj in place.workloads.values():
            metadata = obj["metadata"]
            if metadata.get("ownerReferences") and NAMES.finalizer in metadata.get("finalizers", ()):
                yield f"{obj['metadata']['name']} keeps its finalizer without a job"
        return
    job = case.job
    for obj in alive:
        owned = obj["metadata"].get("ownerReferences")
        if (
            owned
            and is_reserved(obj)
            and is_condition_true(obj, ConditionType.EVICTED)
            and not kind.is_active(job)
        ):
            yield f"{obj['metadata']['name']} is evicted and keeps its quota without pods"
    if (
        case.missing
        or kind.find_outcome(job) is not None
        or kind.is_active(job)
        or kind.lifecycle.is_ignored(job)
    ):
        return
    admitted = [obj for obj in alive if may_run(obj) and obj in case.owned]
    held = any(is_reserved(obj) for obj in alive) or workload_slices.is_elastic(case)
    if not kind.is_suspended(job, NAMES) and not held and case.queue_name:
        yield "the job runs without an admission"
    if admitted and members.awaits_start(case) and place.flavor is not None and kind.composition is None:
        yield "the job is admitted and not started"


def random_settings(kind: Integration, random: Random) -> ControllerSettings:
    """Return random settings."""
    return settings_with(
        integrations=(kind,),
        pods_ready=random.choice([None, SETTINGS.pods_ready]),
        after_finished=random.choice([None, None, 500 * SECOND]),
        after_deactivated=random.choice([None, None, 500 * SECOND]),
        **{name: _flip_coin(random) for name in GATES},
    )


def create_place(kind: Integration, random: Random) -> Place:
    """Return a namespace with a new job of the kind, under random settings."""
    place = Place(kind, random_settings(kind, random))
    job_is_created(place, random)
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


def run_history(
    place: PlaceT,
    random: Random,
    events: Sequence[Callable[[PlaceT, Random], None]],
    length: int,
    find_violations: Callable[[PlaceT], Iterable[str]],
    name: str,
) -> None:
    """Run random events; after each, the controllers must settle without violations."""
    place.settle()
    for _ in range(length):
        event = random.choice(events)
        place.log.append(f"--- {event.__name__}")
        event(place, random)
        place.settle()
        violations = [*find_violations(place)]
        assert not violations, "\n".join([name, *violations, *place.log])


@pytest.mark.parametrize("kind", KINDS_OF_JOBS)
def test_controllers_of_jobs_settle_after_every_event_of_history(kind: Integration) -> None:
    for seed in range(HISTORIES):
        random = Random(seed)  # noqa: S311 the same histories in each run
        run_history(create_place(kind, random), random, EVENTS, LENGTH, find_violations, f"seed {seed}")
