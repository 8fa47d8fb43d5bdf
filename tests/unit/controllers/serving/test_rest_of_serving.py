"""Objects that serve, their pods and their Workloads come to rest together, whatever befalls them.

Three controllers decide in turn over values: that of what serves, that of pods, and that of Workloads.
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
from tests.unit.controllers import test_rest as rest
from tests.unit.controllers.builders import KINDS, NAMES, instant, timestamp
from tests.unit.controllers.serving.objects import lws, lws_pod, pod, stateful_set

HISTORIES, LENGTH = 25, 25
"""How many histories there are of each kind, and of how many events."""


@dataclass(frozen=True)
class Kind:
    """A kind that serves: an object of it, and what its own controllers make of that."""

    integration: Integration
    made: Callable[[], dict[str, Any]]
    pod: Callable[[int], dict[str, Any]]
    """The n-th pod of the object."""
    size: int
    """Pods for each replica."""


STATEFUL = Kind(STATEFUL_SET, lambda: stateful_set(2), lambda index: pod(f"s-{index}"), 1)
OF_GROUPS = Kind(LEADER_WORKER_SET, lws, lambda index: lws_pod(index // 3, index % 3), 3)


@dataclass
class Place(rest.Place):
    """A namespace with one object that serves, its pods and its Workloads."""

    serves: Kind = STATEFUL
    serving: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    looked_at: str = ""
    """The next group, or the next pod without one."""

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        return self.serving if kind == self.serves.integration.kind else super().of(kind)

    def stored(self) -> tuple[dict[str, dict[str, Any]], ...]:
        return (self.serving, *super().stored())

    def server(self) -> dict[str, Any] | None:
        """The object that serves."""
        return next(iter(self.serving.values()), None)

    def wanted(self) -> int:
        """How many pods it is to have."""
        return value_at(self.server(), ("spec", "replicas"), 0) * self.serves.size

    def job(self) -> Any:
        composition = POD.composition
        assert composition is not None
        mine = [
            one
            for one in self.objects.values()
            if composition.is_member(one, NAMES) and self._job_of(one) == self.looked_at
        ]
        return composition.compose(mine, NAMES, CompositionOptions(instant(self.seconds))) if mine else None

    def _job_of(self, one: dict[str, Any]) -> str:
        assert POD.composition is not None
        group = POD.composition.get_group(one, NAMES)
        return f"group {group}" if group else f"pod {one['metadata']['name']}"

    def case(self) -> JobCase:
        case = super().case()
        if case.job is None:
            # A Workload created for future pods is settled by its creator.
            return replace(case, workloads=())
        if case.group:
            found = members.find_group_workload(
                case.job, self.workloads.get(case.group), NAMES, validate=True
            )
            return replace(case, workloads=() if found is None else (found,))
        return replace(
            case, workloads=tuple(one for one in case.workloads if is_controlled_by(one, case.objects[0]))
        )

    def decisions(self) -> Iterator[ActionPlan]:
        integration, server = self.serves.integration, self.server()
        assert integration.serving is not None
        yield decide_serving(
            ServingCase(
                integration=integration,
                serving=integration.serving,
                names=NAMES,
                kinds=KINDS,
                settings=self.settings,
                now=instant(self.seconds),
                job=server,
                pods=tuple(self.objects.values()),
                workloads=tuple(self.workloads.values()),
                lookups=self.lookups(),
            )
        )
        for job in sorted({self._job_of(one) for one in self.objects.values()}):
            self.looked_at = job
            yield decide_job(self.case())
        for name in list(self.workloads):
            if (workload := self.workloads.get(name)) is not None:
                yield self.decided(workload)


# --- what may befall them -------------------------------------------------------------------------

Event = Callable[[Place, Random], None]


def comes(place: Place, _random: Random) -> None:
    if not place.serving:
        made = place.serves.made()
        metadata = {"uid": f"uid-{place.version}", "creationTimestamp": timestamp(place.seconds)}
        place.keep(place.serving, {**made, "metadata": {**made["metadata"], **metadata}})


def goes(place: Place, random: Random) -> None:
    server = place.server()
    if server is not None and random.random() < 0.3:
        place.delete(place.serving, server)


def is_scaled(place: Place, random: Random) -> None:
    if (server := place.server()) is not None:
        place.keep(place.serving, with_value(server, ("spec", "replicas"), random.choice([0, 2])))


def is_moved(place: Place, random: Random) -> None:
    """Its owner has it queue elsewhere, or nowhere, or with another priority."""
    if (server := place.server()) is not None:
        key = random.choice([NAMES.queue_name, NAMES.priority_class])
        value = random.choice(["lq", "high", "none-such", None])
        place.keep(place.serving, with_value(server, ("metadata", "labels", key), value))


def pod_comes(place: Place, _random: Random) -> None:
    """The next pod that is missing is made, as our webhook leaves it."""
    server = place.server()
    for index in range(place.wanted()):
        one = place.serves.pod(index)
        metadata = one["metadata"]
        if server is not None and metadata["name"] not in place.objects:
            owner = {**metadata["ownerReferences"][0], "uid": server["metadata"]["uid"]}
            given = {
                "uid": f"{metadata['uid']}-{place.version}",
                "creationTimestamp": timestamp(place.seconds),
                "ownerReferences": [owner],
            }
            place.keep(
                place.objects,
                POD.webhook.mutate({**one, "metadata": {**metadata, **given}}, RuleContext(NAMES)),
            )
            return


def pods_are_scaled_away(place: Place, _random: Random) -> None:
    if place.wanted() == 0:
        rest.job_is_deleted(place, _random)


def pod_goes(place: Place, random: Random) -> None:
    if place.objects:
        place.delete(place.objects, place.objects[random.choice(sorted(place.objects))])


def pods_go_on(place: Place, random: Random) -> None:
    """The kubelet tells how pods stand that were let go."""
    status = random.choice(STATUSES)
    for one in [*place.objects.values()][: random.choice([1, None])]:
        if not has_gate(one, NAMES.admission_gate):
            place.keep(place.objects, with_value(one, ("status",), status))


READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
STATUSES: list[dict[str, Any]] = [
    {"phase": "Running"},
    READY,
    READY,
    {"phase": "Failed"},
    {"phase": "Succeeded"},
]
EVENTS: list[Event] = [
    *4 * [rest.reserves],
    rest.preempts,
    rest.is_activated_or_not,
    rest.workload_is_deleted,
    rest.check_is_answered,
    rest.gate_comes_or_goes,
    rest.queue_changes,
    rest.time_passes,
    comes,
    goes,
    is_moved,
    *2 * [is_scaled],
    *4 * [pod_comes],
    pods_are_scaled_away,
    pod_goes,
    *3 * [pods_go_on],
]


# --- what must be so ------------------------------------------------------------------------------


def problems(place: Place) -> Iterator[str]:
    """States that must not exist once no controller has anything to do."""
    runs = any(not has_ended(one) for one in place.objects.values())
    for name, one in place.workloads.items():
        if "deletionTimestamp" in one["metadata"] and not runs:
            yield f"{name} is held for no pods"
        if not is_reserved(one) or is_condition_true(one, ConditionType.FINISHED):
            continue
        if is_condition_true(one, ConditionType.EVICTED) and not runs:
            yield f"{name} keeps quota of which it was evicted"
        is_active = value_at(one, ("spec", "active"), True) is not False
        if place.server() is not None and not place.wanted() and is_active and not runs:
            yield f"{name} keeps quota for no replicas"
    for one in place.objects.values():
        group = value_at(one, ("metadata", "labels", NAMES.pod_group_name))
        if group and has_gate(one, NAMES.admission_gate) and "deletionTimestamp" not in one["metadata"]:
            workload = place.workloads.get(group)
            if workload is not None and rest.may_run(workload) and place.flavor is not None:
                yield f"{one['metadata']['name']} waits, and is admitted"


@pytest.mark.parametrize("kind", [STATEFUL, OF_GROUPS], ids=lambda kind: kind.integration.framework)
def test_controllers_of_serving_objects_settle_after_every_event_of_history(kind: Kind) -> None:
    for seed in range(HISTORIES):
        random = Random(seed)  # noqa: S311 the same histories in each run
        settings = replace(rest.settings_for(POD, random), integrations=(POD, kind.integration))
        place = Place(POD, settings, serves=kind)
        comes(place, random)
        rest.live(place, random, EVENTS, LENGTH, problems, f"seed {seed}")
