"""Random histories of jobs of every kind and their Workloads.

The controllers of jobs and Workloads decide in turn, and each plan is executed as by the API server.
After each event the controllers must stop writing: two steps that undo each other's writes would write
forever. In the final state, no Workload holds unused quota, and no job runs without quota.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any, TypeVar

import pytest

from admitq.controllers.job import members, workload_slices
from admitq.controllers.settings import ControllerSettings
from admitq.integrations.base import Integration
from admitq.integrations.registry import load_integrations
from admitq.workloads.transitions import is_condition_true, is_reserved
from admitq_api.conditions import SECOND, ConditionType
from tests.unit.controllers.builders import NAMES, SETTINGS, settings_with
from tests.unit.controllers.job_history_events import EVENTS, flip_coin, job_is_created
from tests.unit.controllers.job_history_place import Place
from tests.unit.integrations.examples import custom_kinds

HISTORIES, LENGTH = 40, 12
"""The number of histories of each kind, and the number of events of each history."""

KINDS_OF_JOBS = [
    pytest.param(integration, id=integration.framework)
    for integration in (*load_integrations(), *custom_kinds())
    if integration.serving is None
]


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
        **{name: flip_coin(random) for name in GATES},
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
