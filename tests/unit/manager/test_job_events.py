"""A changed reason of a pending Workload is recorded as an event on its job, whichever program wrote it."""

from typing import Any

import pytest

from admitq.manager.job_events import REASON_INTERVAL_SECONDS, record_changed_reason
from tests.unit.controllers.builders import admitted, condition, workload

JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}
NEW = workload(owner=JOB)
QUOTA = workload(condition("QuotaReserved", False, "WaitingForQuota", "1 more needed"), owner=JOB)
MORE_QUOTA = workload(condition("QuotaReserved", False, "WaitingForQuota", "2 more needed"), owner=JOB)
STOPPED = workload(condition("QuotaReserved", False, "Suspended", "LocalQueue lq is inactive"), owner=JOB)
FINISHED = workload(
    condition("QuotaReserved", False, "Suspended", "LocalQueue lq is inactive"),
    condition("Finished", True, "Succeeded"),
    owner=JOB,
)
EVICTED = workload(condition("QuotaReserved", False, "PendingEvaluation", "Preempted"), owner=JOB)
RUNNING = admitted(owner=JOB)


class FakeRecorder:
    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def event(self, job: dict[str, Any], *event: str, at_most_every: float) -> None:
        assert at_most_every == REASON_INTERVAL_SECONDS
        self.events.append((job["kind"], job["namespace"], job["name"], job["uid"], *event))


def events(old: dict[str, Any], new: dict[str, Any] | None) -> list[tuple[Any, ...]]:
    recorder: Any = FakeRecorder()
    record_changed_reason(old, new, recorder)
    return recorder.events


@pytest.mark.parametrize(
    ("old", "new", "event"),
    [
        (NEW, QUOTA, ("WaitingForQuota", "1 more needed")),
        (QUOTA, MORE_QUOTA, None),
        (QUOTA, STOPPED, ("Suspended", "LocalQueue lq is inactive")),
        (RUNNING, EVICTED, ("PendingEvaluation", "Preempted")),
        (QUOTA, RUNNING, None),
        (QUOTA, FINISHED, None),
        (QUOTA, NEW, None),
        (QUOTA, None, None),
    ],
    ids=[
        "first reason",
        "another message",
        "another reason",
        "eviction",
        "reservation",
        "end",
        "condition removed",
        "deletion",
    ],
)
def test_event_is_recorded_on_job_when_reason_changes(
    old: dict[str, Any], new: dict[str, Any] | None, event: tuple[str, str] | None
) -> None:
    assert events(old, new) == ([] if event is None else [("Job", "ns", "j", "uid-j", "Warning", *event)])


@pytest.mark.parametrize(
    ("owners", "names"),
    [
        ([], []),
        ([{"kind": "Pod", "name": "p0", "uid": "0"}, {"kind": "Pod", "name": "p1", "uid": "1"}], ["p0"]),
        ([{"kind": "Pod", "name": "p0", "uid": "0"}, JOB], ["j"]),
        ("malformed", []),
    ],
    ids=["no owner", "pod group", "controller among owners", "malformed owners"],
)
def test_event_is_recorded_on_controller_or_first_pod_of_group(owners: Any, names: list[str]) -> None:
    new = {**QUOTA, "metadata": {**QUOTA["metadata"], "ownerReferences": owners}}
    assert [name for _, _, name, *_ in events(NEW, new)] == names
