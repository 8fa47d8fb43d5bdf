"""What a scenario expects, compared with the decisions and statuses of the core."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from admitq.core.amounts import Amounts
from admitq.core.instructions import (
    RefreshClusterQueue,
    RefreshCohort,
    RefreshLocalQueue,
    ReportPending,
    ReportSecondPass,
    TargetsRecomputed,
)
from admitq.core.model import SECOND, ObjectKey
from admitq.core.statuses import ClusterQueueStatus, CohortStatus, FlavorTotals, LocalQueueStatus
from admitq.translate import messages
from admitq_api.json_objects import JsonObject
from admitq_api.quantity import format_amount
from tests.scenarios.objects import key_of, name_of
from tests.scenarios.story import Story


def expect(story: Story, raw: Any) -> None:
    """Compare, and collect instructions from now on for the next expectation."""
    for word, what in cast("JsonObject", raw).items():
        _EXPECTATIONS[word](story, what)
    story.instructions.clear()
    story.decided.clear()
    story.preempted.clear()


# --- what was decided -----------------------------------------------------------------------------------


def _reserved(story: Story, names: list[str]) -> None:
    assert [name_of(each.key) for each in story.decided] == names


def _preempted(story: Story, expected: JsonObject) -> None:
    assert {name_of(each.key): str(each.reason) for each in story.preempted} == dict(expected)


def _preemptors(story: Story, expected: JsonObject) -> None:
    assert {name_of(each.key): name_of(each.preemptor) for each in story.preempted} == dict(expected)


def _recomputed(story: Story, expected: JsonObject) -> None:
    """Compare the heads that searched targets again, and the results."""
    found = (each for each in story.instructions if isinstance(each, TargetsRecomputed))
    assert {each.cluster_queue: str(each.result) for each in found} == dict(expected)


def _flavors(story: Story, expected: JsonObject) -> None:
    for name, of in expected.items():
        (decided,) = (each for each in story.decided if each.key == key_of(name))
        parts = {part.name: dict(part.flavors) for part in decided.admission.pod_set_assignments}
        assert (parts if next(iter(of)) in parts else parts["main"]) == of


def _usage(story: Story, expected: JsonObject) -> None:
    """Compare assignments, as ``{name: {podset: {resource: amount, count: n}}}``."""
    for name, of in expected.items():
        (decided,) = (each for each in story.decided if each.key == key_of(name))
        assert {
            part.name: {**printed(part.resource_usage), "count": part.count}
            for part in decided.admission.pod_set_assignments
        } == of


def _admit(story: Story, expected: JsonObject) -> None:
    assert {name_of(each.key): each.admit for each in story.decided} == dict(expected)


def _considered(story: Story, expected: JsonObject) -> None:
    assert {name: story.considered.get(key_of(name)) for name in expected} == dict(expected)


# --- reports --------------------------------------------------------------------------------------------


def _explained(story: Story, key: ObjectKey) -> str:
    refusal = story.core.queries.parked_refusal(key)
    if refusal is None:
        return "not refused"
    if story.core.queries.is_bypassed(key):
        reason, message = messages.bypassed_condition(refusal)
    else:
        reason, message = messages.pending_condition(refusal)
    return f"{reason}: {message}"


def _waiting(story: Story, expected: JsonObject) -> None:
    assert {name: _explained(story, key_of(name)) for name in expected} == dict(expected)


def _evicted(story: Story, expected: JsonObject) -> None:
    evicted = {name_of(each.key): messages.preempted_message(each, "") for each in story.preempted}
    assert {name: evicted.get(name) for name in expected} == dict(expected)


def _reported(story: Story, names: list[str]) -> None:
    assert [name_of(each.key) for each in story.instructions if isinstance(each, ReportPending)] == names


def _requests(story: Story, expected: JsonObject) -> None:
    reports = {name_of(each.key): each for each in story.instructions if isinstance(each, ReportPending)}
    for name, of in expected.items():
        assert {part: printed(totals) for part, totals in reports[name].resource_requests} == of


def _second_passes(story: Story, expected: JsonObject) -> None:
    """Compare the results of second passes."""
    reports = (each for each in story.instructions if isinstance(each, ReportSecondPass))
    assert {name_of(each.key): messages.pending_condition(each.refusal).message for each in reports} == dict(
        expected
    )


def _quiet(story: Story, quiet: bool) -> None:
    assert (not story.instructions) == quiet, story.instructions


def _refreshed(story: Story, names: list[str]) -> None:
    """Compare the refreshed ClusterQueues, LocalQueues and cohorts, as ``Kind name``."""
    shown: set[str] = set()
    for each in story.instructions:
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


# --- what the core shows --------------------------------------------------------------------------------


def _phases(story: Story, expected: JsonObject) -> None:
    assert {name: story.core.queries.workload_phase(key_of(name)) for name in expected} == dict(expected)


def _wakeup(story: Story, when: Any) -> None:
    due = story.core.next_wakeup(story.now)
    shown = "never" if due is None else "now" if due <= story.now else (due - story.now) / SECOND
    assert shown == when


def _in_use(story: Story, expected: JsonObject) -> None:
    ask: dict[str, Callable[[str], bool]] = {
        "flavors": story.core.queries.is_flavor_in_use,
        "checks": story.core.queries.is_admission_check_in_use,
        "topologies": story.core.queries.is_topology_in_use,
        "clusterQueues": story.core.queries.cluster_queue_has_reservations,
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


def _of_cluster_queue(status: ClusterQueueStatus) -> JsonObject:
    condition = messages.cluster_queue_active(status)
    return {
        "pending": status.pending,
        "inadmissible": status.inadmissible,
        "reserving": status.reserving,
        "admitted": status.admitted,
        "active": status.active,
        "condition": f"{condition.reason}: {condition.message}",
        "reservation": totals(status.flavors_reservation, borrowed=False),
        "usage": totals(status.flavors_usage, borrowed=False),
        "borrowed": totals(status.flavors_reservation, borrowed=True),
        "share": None if status.share is None else status.share.weighted_share,
    }


def _of_local_queue(status: LocalQueueStatus) -> JsonObject:
    condition = messages.local_queue_active(status)
    return {
        "pending": status.pending,
        "reserving": status.reserving,
        "admitted": status.admitted,
        "active": status.active,
        "condition": f"{condition.reason}: {condition.message}",
        "reservation": totals(status.flavors_reservation or (), borrowed=False),
        "usage": totals(status.flavors_usage or (), borrowed=False),
        "consumed": None if status.consumed is None else printed(status.consumed.consumed),
    }


def _of_cohort(status: CohortStatus) -> JsonObject:
    return {
        "share": None if status.share is None else status.share.weighted_share,
        "quota": {f"{f}/{r}": format_amount(r, value) for (f, r), value in status.subtree_quota},
        "reservations": {
            f"{f}/{r}": format_amount(r, value) for (f, r), value in status.subtree_reservations
        },
    }


def _shown(expected: Any, status: JsonObject | None) -> None:
    """Return the expectations of an object; None if the object must not exist."""
    if expected is None or status is None:
        assert status is None
        assert expected is None
        return
    assert {word: status[word] for word in expected} == expected


def _cluster_queues(story: Story, expected: JsonObject) -> None:
    for name, of in expected.items():
        status = story.core.queries.cluster_queue_status(name)
        _shown(of, None if status is None else _of_cluster_queue(status))


def _local_queues(story: Story, expected: JsonObject) -> None:
    for name, of in expected.items():
        status = story.core.queries.local_queue_status(key_of(name))
        _shown(of, None if status is None else _of_local_queue(status))


def _cohorts(story: Story, expected: JsonObject) -> None:
    for name, of in expected.items():
        status = story.core.queries.cohort_status(name)
        _shown(of, None if status is None else _of_cohort(status))


_EXPECTATIONS: Mapping[str, Callable[[Story, Any], None]] = {
    "reserved": _reserved,
    "preempted": _preempted,
    "preemptors": _preemptors,
    "recomputed": _recomputed,
    "flavors": _flavors,
    "usage": _usage,
    "admit": _admit,
    "considered": _considered,
    "waiting": _waiting,
    "evicted": _evicted,
    "reported": _reported,
    "requests": _requests,
    "secondPasses": _second_passes,
    "quiet": _quiet,
    "refreshed": _refreshed,
    "phases": _phases,
    "wakeup": _wakeup,
    "inUse": _in_use,
    "clusterQueues": _cluster_queues,
    "localQueues": _local_queues,
    "cohorts": _cohorts,
}
