"""Random events of the histories of jobs: changes by users and other programs."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from admitq.controllers.job.case import Ancestor
from admitq.core.model import Admission, PodSetAssignment
from admitq.integrations.base import RuleContext
from admitq.workloads.admission_patches import reservation_patch
from admitq.workloads.job_workloads import workload_pod_sets
from admitq.workloads.transitions import StatusTransition, find_condition, is_condition_true, is_reserved
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import FieldPath, value_at, with_value
from tests.unit.controllers.builders import NAMES, apply_patch, cluster_queue, instant, local_queue, timestamp
from tests.unit.controllers.job_history_place import FLAVOR, Place
from tests.unit.integrations.examples import RUNTIME, STATUS, examples_of

Event = Callable[[Place, Random], None]


def flip_coin(random: Random) -> bool:
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
    fewer = flip_coin(random)
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
        workload, Admission("cq", assignments), admit=flip_coin(random), now=instant(place.seconds)
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
        _change_field(place, workload, ("spec", "active"), flip_coin(random))


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
        _change_field(place, obj, place.kind.lifecycle.suspend_path, flip_coin(random))


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
    is_group = kind.composition is not None and flip_coin(random)
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
    listed = workload_pod_sets(case) if flip_coin(random) else [{"name": "main", "count": 1, "template": {}}]
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
