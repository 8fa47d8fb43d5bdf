"""A changed reason of a pending Workload is recorded as an event on its job, whichever program wrote it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from admitq.core import events as happened
from admitq.core.asking.explanations import RefusalExplanation
from admitq.core.model import LocalQueue, ObjectKey
from admitq.core.state import AdmissionState
from admitq.manager import job_events
from admitq.manager.job_events import REASON_INTERVAL_SECONDS, JobEventRecorder
from admitq.process.unexpected_errors import LOG_ONLY
from tests.unit.controllers.builders import admitted, condition, workload
from tests.unit.core.small_cluster import SmallCluster, queue

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


def events(
    old: dict[str, Any], new: dict[str, Any] | None, state: AdmissionState | None = None
) -> list[tuple[Any, ...]]:
    recorder: Any = FakeRecorder()
    deferred: list[Callable[[], None]] = []
    job_event_recorder = JobEventRecorder(recorder, state or AdmissionState(), LOG_ONLY, deferred.append)
    job_event_recorder.record_changed_reason(old, new)
    assert not recorder.events
    for work in deferred:
        work()
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


REFUSED = workload(
    condition("QuotaReserved", False, "WaitingForQuota", "Bypassed scheduling evaluation"), owner=JOB
)


def short_of_quota() -> AdmissionState:
    """Return a state in which a cycle refused the lane of the Workload."""
    cluster = SmallCluster()
    cluster.send(happened.NamespaceChanged("ns", ()))
    cluster.put(queue("q", 10_000, "research"))
    cluster.submit("runs", "q", cpu=7000)
    cluster.run("runs")
    cluster.submit("other", "q", cpu=8000)
    cluster.cycles()
    cluster.send(happened.LocalQueueChanged(LocalQueue(ObjectKey("ns", "lq"), "q")))
    waiting = replace(
        cluster.workloads["other"], key=ObjectKey("ns", "job-j-1"), uid="uid-w", queue_name="lq"
    )
    cluster.send(happened.WorkloadChanged(waiting))
    return cluster.state


def test_note_explains_the_refusal_of_an_equivalent_workload() -> None:
    ((*_, reason, note),) = events(NEW, REFUSED, short_of_quota())
    assert reason == "WaitingForQuota"
    assert note == (
        "Waits for unused quota in ClusterQueue q: cpu in flavor default: needs 8, 3 of 10 free, "
        "limited by the quota of cohort research"
    )


def test_note_is_the_message_if_the_condition_has_another_cause() -> None:
    ((*_, note),) = events(QUOTA, STOPPED, short_of_quota())
    assert note == "LocalQueue lq is inactive"


def test_note_is_the_message_if_the_explanation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_state: AdmissionState, _key: ObjectKey) -> RefusalExplanation:
        raise RuntimeError

    monkeypatch.setattr(job_events, "explain_refusal", fail)
    ((*_, note),) = events(NEW, QUOTA)
    assert note == "1 more needed"
