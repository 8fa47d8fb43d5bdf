"""The JSON documents of questions, about small clusters."""

from collections.abc import Sequence
from typing import Any

import pytest

from admitq.asking.answers import eta_document, explanation_document, what_if_document
from admitq.core.asking.branch import copying_branch
from admitq.core.asking.run_times import Run, RunTimeEstimate, RunTimeHistory
from admitq.core.events import (
    ClusterQueueChanged,
    CohortChanged,
    Event,
    LocalQueueChanged,
    NamespaceChanged,
    ResourceFlavorChanged,
    WorkloadChanged,
    WorkloadDeleted,
)
from admitq.core.model import (
    SECOND,
    Admission,
    Cohort,
    LocalQueue,
    ObjectKey,
    PodSet,
    PodSetAssignment,
    ResourceFlavor,
    StopPolicy,
    Workload,
)
from admitq.core.requests import template_requesting
from admitq.core.settings import CoreSettings
from admitq.core.state import AdmissionState
from admitq.translate.viewers import EVERYTHING, Viewer
from tests.unit.core.small_cluster import LOWER, RECLAIM, group, queue

NOW = 1_700_000_000 * SECOND
HOUR = RunTimeHistory([Run("", "a", 3600 * SECOND)] * 5).estimate("", "a")
OURS = Viewer(frozenset({"ours"}))


def job(name: str, local_queue: str = "a", cpu: int = 1, **fields: Any) -> WorkloadChanged:
    """Return a workload; its name is ``namespace/name``."""
    namespace, _, own = name.partition("/")
    pods = (PodSet("main", 1, template_requesting({"cpu": cpu})),)
    fields.setdefault("queued_at", NOW - 600 * SECOND)
    return WorkloadChanged(
        Workload(ObjectKey(namespace, own), f"uid-{name}", local_queue, pod_sets=pods, **fields)
    )


def running(name: str, cluster_queue: str = "a", cpu: int = 1, **fields: Any) -> WorkloadChanged:
    assigned = PodSetAssignment("main", (("cpu", "default"),), (("cpu", cpu),), 1)
    admission = Admission(cluster_queue, (assigned,))
    return job(
        name, cluster_queue, cpu, admission=admission, admitted=True, reserved_at=NOW - 600 * SECOND, **fields
    )


def observing_state(*events: Event, settings: CoreSettings | None = None) -> AdmissionState:
    """Return a state that ran no cycles, as that of the visibility server."""
    state = AdmissionState(settings, statuses=False, cycles=False)
    basics = (
        NamespaceChanged("ours", ()),
        NamespaceChanged("theirs", ()),
        ResourceFlavorChanged(ResourceFlavor("default")),
        ClusterQueueChanged(queue("a", 2, "all", preemption=LOWER)),
        ClusterQueueChanged(queue("b", 2, "all", preemption=RECLAIM)),
        ClusterQueueChanged(queue("other", 2)),
        *(LocalQueueChanged(LocalQueue(ObjectKey("ours", name), name)) for name in ("a", "other")),
        *(LocalQueueChanged(LocalQueue(ObjectKey("theirs", name), name)) for name in ("a", "b")),
    )
    for event in (*basics, *events):
        state.observe(event, now=NOW)
    return state


FULL = (running("theirs/first", cpu=3), running("ours/second"))
"""Workloads of two namespaces that use all quota of the cohort."""


def explain(state: AdmissionState, name: str, viewer: Viewer = EVERYTHING) -> dict[str, Any]:
    document = explanation_document(
        state, ObjectKey("ours", name), now=NOW, branch=copying_branch(state), viewer=viewer, seconds=60
    )
    assert document is not None
    return document


def start_of(
    state: AdmissionState, name: str, estimate: RunTimeEstimate = HOUR, seconds: float = 60
) -> dict[str, Any]:
    document = eta_document(
        state,
        ObjectKey("ours", name),
        now=NOW,
        branch=copying_branch(state),
        estimate_of=lambda _: estimate,
        seconds=seconds,
    )
    assert document is not None
    return document


def suppose(
    state: AdmissionState, *events: Event, viewer: Viewer = EVERYTHING, seconds: float = 60
) -> dict[str, Any]:
    return what_if_document(
        state,
        events,
        now=NOW,
        branch=copying_branch(state),
        estimate_of=lambda _: HOUR,
        viewer=viewer,
        seconds=seconds,
    )


def names(items: Sequence[dict[str, Any]]) -> list[str | None]:
    return [each["workload"] and each["workload"]["name"] for each in items]


# --- explanations ---------------------------------------------------------------------------------------


def test_explanation_names_holders_of_quota_and_a_change_that_admits() -> None:
    document = explain(observing_state(*FULL, job("ours/waits")), "waits")
    assert document["waitsFor"]["reason"] == "Quota"
    (flavor,) = document["flavors"]
    holders = flavor["resources"][0]["heldBy"]["workloads"]
    assert set(names(holders)) == {"first", "second"}
    assert document["changes"]["alternatives"]
    assert document["text"][0] == "Workload ours/waits: Pending, priority 0"
    assert any("workload theirs/first holds 3m" in line for line in document["text"])


def test_explanation_hides_names_of_other_namespaces() -> None:
    document = explain(observing_state(*FULL, job("ours/waits")), "waits", OURS)
    assert "theirs" not in str(document)
    assert any("a workload of another namespace holds 3m" in line for line in document["text"])


def test_explanation_includes_decisions_that_are_due() -> None:
    document = explain(observing_state(job("ours/fits")), "fits")
    assert document["phase"] == "Admitted"
    assert document["text"][-1] == "It is admitted without any change."


def test_explanation_of_workload_without_queue_needs_no_cycle() -> None:
    document = explain(observing_state(job("ours/lost", "none")), "lost")
    assert document["waitsFor"]["message"] == "LocalQueue ours/none does not exist"


def test_unready_pods_of_another_tree_halt_admission() -> None:
    settings = CoreSettings(block_admission=True)
    document = explain(
        observing_state(running("ours/unready", "other"), job("ours/waits"), settings=settings), "waits"
    )
    assert document["waitsFor"]["message"] == "pods of workload ours/unready to be ready"


def test_answer_without_time_has_no_changes() -> None:
    state = observing_state(*FULL, job("ours/waits"))
    key = ObjectKey("ours", "waits")
    document = explanation_document(state, key, now=NOW, branch=copying_branch(state), seconds=-1)
    assert document is not None
    assert document["changes"]["alternatives"] == []


def test_workload_that_does_not_exist_has_no_answers() -> None:
    state, key = observing_state(), ObjectKey("ours", "none")
    branch = copying_branch(state)
    assert explanation_document(state, key, now=NOW, branch=branch, seconds=1) is None
    assert eta_document(state, key, now=NOW, branch=branch, estimate_of=lambda _: HOUR, seconds=1) is None


# --- starts ---------------------------------------------------------------------------------------------


def test_start_follows_from_run_times() -> None:
    """All workloads run for an hour, of which ten minutes are over."""
    document = start_of(observing_state(*FULL, job("ours/waits")), "waits")
    assert document["p50"] == document["p90"] == document["notBefore"] == "2023-11-14T23:03:20Z"
    assert document["basis"] == {
        "simulations": 20,
        "knownRunTimes": 5,
        "runTimes": {"Queue": 3},
    }
    assert document["bounds"] == []
    assert document["text"] == [
        "Workload ours/waits",
        (
            "Starts: about 2023-11-14T23:03:20Z (p50, in 50m), by 2023-11-14T23:03:20Z (p90, in 50m), "
            "not before 2023-11-14T23:03:20Z"
        ),
        "Run times: 3 from finished workloads of the same ClusterQueue",
        "Based on 20 simulations and 5 known run times",
        "Workloads that are submitted later may delay the start.",
    ]


@pytest.mark.parametrize(
    ("name", "starts"),
    [("second", "Starts: it holds quota since 2023-11-14T22:03:20Z"), ("fits", "Starts: now")],
)
def test_workload_that_has_quota_needs_no_simulation(name: str, starts: str) -> None:
    document = start_of(observing_state(running("ours/second"), job("ours/fits")), name)
    assert document["text"] == [f"Workload ours/{name}", starts]


def test_simulations_end_when_the_time_is_over() -> None:
    document = start_of(observing_state(*FULL, job("ours/waits")), "waits", seconds=-1)
    assert (document["p50"], document["bounds"]) == (None, ["RealTime"])


# --- what if --------------------------------------------------------------------------------------------


def test_new_urgent_job_preempts_and_delays() -> None:
    state = observing_state(running("ours/low", cpu=4), job("ours/waits", cpu=4))
    document = suppose(state, job("ours/urgent", cpu=2, priority=5, queued_at=NOW))
    assert names(document["admitted"]) == ["urgent"]
    assert names(document["preempted"]) == ["low"]
    assert document["preempted"][0]["preemptor"] == {"namespace": "ours", "name": "urgent"}
    delayed = {
        name: each["seconds"]
        for name, each in zip(names(document["starts"]), document["starts"], strict=True)
    }
    assert delayed["urgent"] is None
    assert document["text"][:4] == [
        "Admitted:",
        "  workload ours/urgent in ClusterQueue a, 1 pod with flavor default",
        "Preempted:",
        "  workload ours/low by workload ours/urgent in its ClusterQueue",
    ]


def test_more_quota_lets_workloads_start_earlier_though_none_moves() -> None:
    """With one CPU more, the workload fits as soon as the first one ends, and need not wait for both."""
    state = observing_state(
        running("ours/early", "other"), running("ours/late", "other"), job("ours/waits", "other", cpu=3)
    )
    document = suppose(state, ClusterQueueChanged(queue("other", 3)))
    (start,) = document["starts"]
    assert names([start]) == ["waits"]
    assert (start["before"]["p50"], start["after"]["p50"]) == (None, "2023-11-14T23:03:20Z")


@pytest.mark.parametrize(
    "event",
    [
        LocalQueueChanged(LocalQueue(ObjectKey("ours", "a"), "a")),
        CohortChanged(Cohort("all")),
        ResourceFlavorChanged(ResourceFlavor("unused")),
        job("ours/lost", "none"),
    ],
)
def test_change_without_effect_changes_nothing(event: Event) -> None:
    document = suppose(observing_state(*FULL, job("ours/waits")), event)
    assert document["text"] == ["Nothing changes."] or names(document["starts"]) == ["lost"]
    assert document["admitted"] == document["preempted"] == document["usage"] == []


def test_deleted_workload_is_not_admitted_any_more_and_has_no_start() -> None:
    state = observing_state(*FULL, job("ours/waits"))
    document = suppose(state, WorkloadDeleted(ObjectKey("ours", "second"), "uid-ours/second"))
    assert names(document["admitted"]) == ["waits"]
    assert names(document["notAdmitted"]) == ["second"]
    assert names(document["starts"]) == ["waits"]


def test_viewer_of_a_namespace_sees_its_own_queues_and_cohorts_only() -> None:
    """The workloads of ours run in ``a``, so that ``b`` is hidden."""
    state = observing_state(running("theirs/secret", "b", cpu=4), job("ours/waits", cpu=2))
    stopped = queue("b", 2, "all", preemption=RECLAIM, stop_policy=StopPolicy.HOLD_AND_DRAIN)
    document = suppose(state, ClusterQueueChanged(stopped), viewer=OURS)
    assert "secret" not in str(document)
    assert names(document["drained"]) == [None]
    assert names(document["admitted"]) == ["waits"]
    assert {(each["kind"], each["name"]) for each in document["usage"]} == {
        ("ClusterQueue", "a"),
        ("Cohort", "all"),
    }
    assert "  a workload of another namespace" in document["text"]


def test_question_of_a_viewer_does_not_show_queues_through_hypothetical_local_queues() -> None:
    state = observing_state(running("theirs/secret", "b"))
    events = (
        LocalQueueChanged(LocalQueue(ObjectKey("ours", "b"), "b")),
        job("ours/new", "b"),
    )
    document = suppose(state, *events, viewer=OURS)
    assert names(document["admitted"]) == ["new"]
    assert {(each["kind"], each["name"]) for each in document["usage"]} == {("Cohort", "all")}


def test_starts_that_simulations_did_not_reach_are_not_compared() -> None:
    state = observing_state(*FULL, job("ours/waits"))
    document = suppose(state, ClusterQueueChanged(queue("other", 5)), seconds=-1)
    assert document["starts"] == []


def test_group_of_another_flavor_is_named() -> None:
    state = observing_state(ResourceFlavorChanged(ResourceFlavor("spot")), job("ours/waits", "other", cpu=3))
    spot = queue("other", resource_groups=group(("default", 2), ("spot", 3)))
    document = suppose(state, ClusterQueueChanged(spot))
    assert document["admitted"][0]["podSets"] == [{"name": "main", "count": 1, "flavors": {"cpu": "spot"}}]
