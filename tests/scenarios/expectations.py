"""Compare the expectations of a scenario with the decisions and statuses of the core."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from admitq.core.amounts import Amounts
from admitq.core.instructions import (
    EvictForNodeFailures,
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
    """Compare the expectations, and begin to collect instructions for the next ones."""
    for key, value in cast("JsonObject", raw).items():
        _EXPECTATIONS[key](story, value)
    story.instructions.clear()
    story.decided.clear()
    story.preempted.clear()


# --- decisions ------------------------------------------------------------------------------------------


def _reserved(story: Story, names: list[str]) -> None:
    assert [name_of(decision.key) for decision in story.decided] == names


def _preempted(story: Story, expected: JsonObject) -> None:
    assert {name_of(decision.key): str(decision.reason) for decision in story.preempted} == dict(expected)


def _preemptors(story: Story, expected: JsonObject) -> None:
    assert {name_of(decision.key): name_of(decision.preemptor) for decision in story.preempted} == dict(
        expected
    )


def _recomputed(story: Story, expected: JsonObject) -> None:
    """Compare the heads that searched for targets again, and the results."""
    recomputed = (item for item in story.instructions if isinstance(item, TargetsRecomputed))
    assert {item.cluster_queue: str(item.result) for item in recomputed} == dict(expected)


def _flavors(story: Story, expected: JsonObject) -> None:
    for name, flavors in expected.items():
        (decision,) = (decision for decision in story.decided if decision.key == key_of(name))
        parts = {part.name: dict(part.flavors) for part in decision.admission.pod_set_assignments}
        assert (parts if next(iter(flavors)) in parts else parts["main"]) == flavors


def _usage(story: Story, expected: JsonObject) -> None:
    """Compare assignments, as ``{name: {podset: {resource: amount, count: n}}}``."""
    for name, usage in expected.items():
        (decision,) = (decision for decision in story.decided if decision.key == key_of(name))
        assert {
            part.name: {**printed(part.resource_usage), "count": part.count}
            for part in decision.admission.pod_set_assignments
        } == usage


def _places(story: Story, expected: JsonObject) -> None:
    """Compare the pods in each domain, as ``{name: {domain: n}}``, or ``{name: {podset: {domain: n}}}``."""
    for name, places in expected.items():
        admission = story.workloads[key_of(name)].admission
        parts = () if admission is None else admission.pod_set_assignments
        found = {
            part.name: {"/".join(values): count for values, count in part.topology.domains}
            for part in parts
            if part.topology is not None
        }
        assert (found if next(iter(places), None) in found else found.get("main", {})) == places


def _node_failures(story: Story, expected: JsonObject) -> None:
    """Compare the evictions for node failures, with the failed nodes."""
    evicted = (each for each in story.instructions if isinstance(each, EvictForNodeFailures))
    assert {name_of(each.key): list(each.nodes) for each in evicted} == dict(expected)


def _admit(story: Story, expected: JsonObject) -> None:
    assert {name_of(decision.key): decision.admit for decision in story.decided} == dict(expected)


def _considered(story: Story, expected: JsonObject) -> None:
    assert {name: story.considered.get(key_of(name)) for name in expected} == dict(expected)


# --- reports --------------------------------------------------------------------------------------------


def _explained(story: Story, key: ObjectKey) -> str:
    refusal = story.core.queries.last_refusal(key)
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
    evicted = {
        name_of(decision.key): messages.preempted_message(decision, "") for decision in story.preempted
    }
    assert {name: evicted.get(name) for name in expected} == dict(expected)


def _reported(story: Story, names: list[str]) -> None:
    assert [
        name_of(decision.key) for decision in story.instructions if isinstance(decision, ReportPending)
    ] == names


def _requests(story: Story, expected: JsonObject) -> None:
    reports = {
        name_of(decision.key): decision
        for decision in story.instructions
        if isinstance(decision, ReportPending)
    }
    for name, requests in expected.items():
        assert {part: printed(totals) for part, totals in reports[name].resource_requests} == requests


def _second_passes(story: Story, expected: JsonObject) -> None:
    """Compare the results of second passes."""
    reports = (decision for decision in story.instructions if isinstance(decision, ReportSecondPass))
    assert {
        name_of(decision.key): messages.pending_condition(decision.refusal).message for decision in reports
    } == dict(expected)


def _quiet(story: Story, quiet: bool) -> None:
    assert (not story.instructions) == quiet, story.instructions


def _refreshed(story: Story, names: list[str]) -> None:
    """Compare the refreshed ClusterQueues, LocalQueues and cohorts, as ``Kind name``."""
    refreshed: set[str] = set()
    for instruction in story.instructions:
        match instruction:
            case RefreshClusterQueue(name):
                refreshed.add(f"ClusterQueue {name}")
            case RefreshLocalQueue(key):
                refreshed.add(f"LocalQueue {name_of(key)}")
            case RefreshCohort(name):
                refreshed.add(f"Cohort {name}")
            case _:
                pass
    assert sorted(refreshed) == sorted(names)


# --- current state --------------------------------------------------------------------------------------


def _phases(story: Story, expected: JsonObject) -> None:
    assert {name: story.core.queries.workload_phase(key_of(name)) for name in expected} == dict(expected)


def _wakeup(story: Story, when: Any) -> None:
    due = story.core.next_wakeup(story.now)
    wakeup = "never" if due is None else "now" if due <= story.now else (due - story.now) / SECOND
    assert wakeup == when


def _in_use(story: Story, expected: JsonObject) -> None:
    queries: dict[str, Callable[[str], bool]] = {
        "flavors": story.core.queries.is_flavor_in_use,
        "checks": story.core.queries.is_admission_check_in_use,
        "topologies": story.core.queries.is_topology_in_use,
        "clusterQueues": story.core.queries.cluster_queue_has_reservations,
    }
    for kind, names in expected.items():
        assert {name: queries[kind](name) for name in names} == names


def printed(amounts: Amounts) -> dict[str, str]:
    return {resource: format_amount(resource, value) for resource, value in amounts}


def totals(flavors: tuple[FlavorTotals, ...], *, borrowed: bool) -> dict[str, dict[str, str]]:
    return {
        flavor: {
            total.resource: format_amount(total.resource, total.borrowed if borrowed else total.total)
            for total in resources
        }
        for flavor, resources in flavors
    }


def _cluster_queue_fields(status: ClusterQueueStatus) -> JsonObject:
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


def _local_queue_fields(status: LocalQueueStatus) -> JsonObject:
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


def _cohort_fields(status: CohortStatus) -> JsonObject:
    return {
        "share": None if status.share is None else status.share.weighted_share,
        "quota": {f"{f}/{r}": format_amount(r, value) for (f, r), value in status.subtree_quota},
        "reservations": {
            f"{f}/{r}": format_amount(r, value) for (f, r), value in status.subtree_reservations
        },
    }


def _compare_status(expected: Any, status: JsonObject | None) -> None:
    """Compare the expected fields of a status. None means that the object must not exist."""
    if expected is None or status is None:
        assert status is None
        assert expected is None
        return
    assert {key: status[key] for key in expected} == expected


def _cluster_queues(story: Story, expected: JsonObject) -> None:
    for name, fields in expected.items():
        status = story.core.queries.cluster_queue_status(name)
        _compare_status(fields, None if status is None else _cluster_queue_fields(status))


def _local_queues(story: Story, expected: JsonObject) -> None:
    for name, fields in expected.items():
        status = story.core.queries.local_queue_status(key_of(name))
        _compare_status(fields, None if status is None else _local_queue_fields(status))


def _cohorts(story: Story, expected: JsonObject) -> None:
    for name, fields in expected.items():
        status = story.core.queries.cohort_status(name)
        _compare_status(fields, None if status is None else _cohort_fields(status))


_EXPECTATIONS: Mapping[str, Callable[[Story, Any], None]] = {
    "reserved": _reserved,
    "preempted": _preempted,
    "preemptors": _preemptors,
    "recomputed": _recomputed,
    "flavors": _flavors,
    "usage": _usage,
    "places": _places,
    "nodeFailures": _node_failures,
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
