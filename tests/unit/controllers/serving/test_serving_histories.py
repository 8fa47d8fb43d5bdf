"""Random histories of serving objects, their pods and their Workloads.

The controllers of serving objects, pods and Workloads decide in turn, until none writes anything.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from admitq.controllers.job import members
from admitq.controllers.job.case import JobCase
from admitq.controllers.job.steps import decide_job
from admitq.controllers.plan import ActionPlan
from admitq.controllers.serving.decision import ServingCase, decide_serving
from admitq.integrations.base import CompositionOptions, Integration, RuleContext
from admitq.integrations.families.pods import has_ended, has_gate
from admitq.integrations.kinds.leaderworkerset import LEADER_WORKER_SET
from admitq.integrations.kinds.pod import POD
from admitq.integrations.kinds.statefulset import STATEFUL_SET
from admitq.integrations.ownership import is_controlled_by
from admitq.workloads.transitions import is_condition_true, is_reserved
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import value_at, with_value
from tests.unit.controllers import job_history_events as events
from tests.unit.controllers import test_job_histories as histories
from tests.unit.controllers.builders import KINDS, NAMES, instant, timestamp
from tests.unit.controllers.job_history_place import Place
from tests.unit.controllers.serving.objects import lws, lws_pod, pod, stateful_set

HISTORIES, LENGTH = 25, 25
"""The number of histories of each kind, and the number of events of each history."""


@dataclass(frozen=True)
class Kind:
    """A serving kind, an example object, and the pods that its own controllers create for it."""

    integration: Integration
    create: Callable[[], dict[str, Any]]
    pod: Callable[[int], dict[str, Any]]
    """Return the n-th pod of the object."""
    size: int
    """Pods for each replica."""


STATEFUL = Kind(STATEFUL_SET, lambda: stateful_set(2), lambda index: pod(f"s-{index}"), 1)
LEADER_WORKER = Kind(LEADER_WORKER_SET, lws, lambda index: lws_pod(index // 3, index % 3), 3)


@dataclass
class ServingPlace(Place):
    """A namespace with one serving object, its pods and its Workloads."""

    serves: Kind = STATEFUL
    serving: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    current_job: str = ""
    """The group, or the pod without group, that the pod controller reconciles."""

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        return self.serving if kind == self.serves.integration.kind else super().of(kind)

    def stored(self) -> tuple[dict[str, dict[str, Any]], ...]:
        return (self.serving, *super().stored())

    def serving_object(self) -> dict[str, Any] | None:
        """Return the serving object."""
        return next(iter(self.serving.values()), None)

    def wanted_pods(self) -> int:
        """Return the number of pods that the serving object should have."""
        return value_at(self.serving_object(), ("spec", "replicas"), 0) * self.serves.size

    def job(self) -> Any:
        composition = POD.composition
        assert composition is not None
        mine = [
            obj
            for obj in self.objects.values()
            if composition.is_member(obj, NAMES) and self._job_of(obj) == self.current_job
        ]
        return composition.compose(mine, NAMES, CompositionOptions(instant(self.seconds))) if mine else None

    def _job_of(self, obj: dict[str, Any]) -> str:
        assert POD.composition is not None
        group = POD.composition.get_group(obj, NAMES)
        return f"group {group}" if group else f"pod {obj['metadata']['name']}"

    def case(self) -> JobCase:
        case = super().case()
        if case.job is None:
            # The controller of the serving object handles a Workload without pods.
            return replace(case, workloads=())
        if case.group:
            group_workload = members.find_group_workload(
                case.job, self.workloads.get(case.group), NAMES, validate=True
            )
            return replace(case, workloads=() if group_workload is None else (group_workload,))
        return replace(
            case, workloads=tuple(obj for obj in case.workloads if is_controlled_by(obj, case.objects[0]))
        )

    def decisions(self) -> Iterator[ActionPlan]:
        integration, serving_object = self.serves.integration, self.serving_object()
        assert integration.serving is not None
        yield decide_serving(
            ServingCase(
                integration=integration,
                serving=integration.serving,
                names=NAMES,
                kinds=KINDS,
                settings=self.settings,
                now=instant(self.seconds),
                job=serving_object,
                pods=tuple(self.objects.values()),
                workloads=tuple(self.workloads.values()),
                lookups=self.lookups(),
            )
        )
        for job in sorted({self._job_of(obj) for obj in self.objects.values()}):
            self.current_job = job
            yield decide_job(self.case())
        for name in list(self.workloads):
            if (workload := self.workloads.get(name)) is not None:
                yield self.plan_for_workload(workload)


# --- events ---------------------------------------------------------------------------------------

Event = Callable[[ServingPlace, Random], None]


def object_is_created(place: ServingPlace, _random: Random) -> None:
    if not place.serving:
        obj = place.serves.create()
        metadata = {"uid": f"uid-{place.version}", "creationTimestamp": timestamp(place.seconds)}
        place.store(place.serving, {**obj, "metadata": {**obj["metadata"], **metadata}})


def object_is_deleted(place: ServingPlace, random: Random) -> None:
    serving_object = place.serving_object()
    if serving_object is not None and random.random() < 0.3:
        place.delete(place.serving, serving_object)


def object_is_scaled(place: ServingPlace, random: Random) -> None:
    if (serving_object := place.serving_object()) is not None:
        place.store(place.serving, with_value(serving_object, ("spec", "replicas"), random.choice([0, 2])))


def queue_or_priority_of_object_changes(place: ServingPlace, random: Random) -> None:
    if (serving_object := place.serving_object()) is not None:
        key = random.choice([NAMES.queue_name, NAMES.priority_class])
        value = random.choice(["lq", "high", "none-such", None])
        place.store(place.serving, with_value(serving_object, ("metadata", "labels", key), value))


def pod_is_created(place: ServingPlace, _random: Random) -> None:
    """Create the next missing pod, as the webhook mutates it."""
    serving_object = place.serving_object()
    for index in range(place.wanted_pods()):
        obj = place.serves.pod(index)
        metadata = obj["metadata"]
        if serving_object is not None and metadata["name"] not in place.objects:
            owner = {**metadata["ownerReferences"][0], "uid": serving_object["metadata"]["uid"]}
            given = {
                "uid": f"{metadata['uid']}-{place.version}",
                "creationTimestamp": timestamp(place.seconds),
                "ownerReferences": [owner],
            }
            place.store(
                place.objects,
                POD.webhook.mutate({**obj, "metadata": {**metadata, **given}}, RuleContext(NAMES)),
            )
            return


def pods_are_scaled_down(place: ServingPlace, _random: Random) -> None:
    if place.wanted_pods() == 0:
        events.job_is_deleted(place, _random)


def pod_is_deleted(place: ServingPlace, random: Random) -> None:
    if place.objects:
        place.delete(place.objects, place.objects[random.choice(sorted(place.objects))])


def kubelet_reports_pods(place: ServingPlace, random: Random) -> None:
    """Change the status of one or all ungated pods."""
    status = random.choice(STATUSES)
    for obj in [*place.objects.values()][: random.choice([1, None])]:
        if not has_gate(obj, NAMES.admission_gate):
            place.store(place.objects, with_value(obj, ("status",), status))


READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
STATUSES: list[dict[str, Any]] = [
    {"phase": "Running"},
    READY,
    READY,
    {"phase": "Failed"},
    {"phase": "Succeeded"},
]
EVENTS: list[Event] = [
    *4 * [events.quota_is_reserved],
    events.workload_is_preempted,
    events.workload_activity_changes,
    events.workload_is_deleted,
    events.check_state_changes,
    events.admission_gates_change,
    events.queues_change,
    events.time_passes,
    object_is_created,
    object_is_deleted,
    queue_or_priority_of_object_changes,
    *2 * [object_is_scaled],
    *4 * [pod_is_created],
    pods_are_scaled_down,
    pod_is_deleted,
    *3 * [kubelet_reports_pods],
]


# --- forbidden final states -----------------------------------------------------------------------


def find_violations(place: ServingPlace) -> Iterator[str]:
    """Return the violations of the final state, once no controller writes anything."""
    runs = any(not has_ended(obj) for obj in place.objects.values())
    for name, obj in place.workloads.items():
        if "deletionTimestamp" in obj["metadata"] and not runs:
            yield f"{name} is deleted and keeps its finalizer without pods"
        if not is_reserved(obj) or is_condition_true(obj, ConditionType.FINISHED):
            continue
        if is_condition_true(obj, ConditionType.EVICTED) and not runs:
            yield f"{name} is evicted and keeps its quota without pods"
        is_active = value_at(obj, ("spec", "active"), True) is not False
        if place.serving_object() is not None and not place.wanted_pods() and is_active and not runs:
            yield f"{name} keeps its quota without replicas"
    for obj in place.objects.values():
        group = value_at(obj, ("metadata", "labels", NAMES.pod_group_name))
        if group and has_gate(obj, NAMES.admission_gate) and "deletionTimestamp" not in obj["metadata"]:
            workload = place.workloads.get(group)
            if workload is not None and histories.may_run(workload) and place.flavor is not None:
                yield f"{obj['metadata']['name']} is admitted and gated"


@pytest.mark.parametrize("kind", [STATEFUL, LEADER_WORKER], ids=lambda kind: kind.integration.framework)
def test_controllers_of_serving_objects_settle_after_every_event_of_history(kind: Kind) -> None:
    for seed in range(HISTORIES):
        random = Random(seed)  # noqa: S311 the same histories in each run
        settings = replace(histories.random_settings(POD, random), integrations=(POD, kind.integration))
        place = ServingPlace(POD, settings, serves=kind)
        object_is_created(place, random)
        histories.run_history(place, random, EVENTS, LENGTH, find_violations, f"seed {seed}")
