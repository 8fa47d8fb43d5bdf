"""Explanations as text and as JSON values, and what viewers of a namespace do not see."""

from fractions import Fraction
from typing import Any

import orjson
import pytest

from admitq.core.activity import ActiveReason, InactiveCause
from admitq.core.amounts import FlavorResource
from admitq.core.asking.changes import (
    ActivateChecks,
    AddQuota,
    AllowFlavor,
    Change,
    CreateFlavors,
    FinishWorkloads,
    LiftHolds,
    RaisePriority,
    ReducedPodSet,
    ReducePods,
    ResumeClusterQueue,
    ResumeLocalQueue,
)
from admitq.core.asking.cheapest_changes import CheapestChanges, Cost, Effort, SufficientChanges
from admitq.core.asking.explanations import (
    BindingLimit,
    BindingNode,
    FlavorVerdict,
    QuotaHolding,
    QuotaHoldings,
    ResourceConstraint,
    WaitCause,
    WaitingBehindHead,
    WaitingForActivation,
    WaitingForBackoff,
    WaitingForChange,
    WaitingForChecks,
    WaitingForClusterQueue,
    WaitingForJobToStop,
    WaitingForLocalQueue,
    WaitingForOpenPreemptionGate,
    WaitingForOtherHeads,
    WaitingForPodsReady,
    WaitingForRelease,
    WaitingForTargetsToLeave,
    WaitingForTurn,
    WaitingForUnusedQuota,
    WorkloadExplanation,
)
from admitq.core.lifecycle import Phase
from admitq.core.model import SECOND, CheckState, ObjectKey, Toleration
from admitq.core.refusals import NamespaceMismatch, QuotaTakenInCycle, UntoleratedTaint
from admitq.core.waiting.queue_positions import QueuedWorkload
from admitq.translate.explanations import (
    change_message,
    explanation_json,
    explanation_lines,
    wait_message,
    wait_reason,
)
from admitq.translate.viewers import Viewer

W = ObjectKey("ours", "w")
RUNS = ObjectKey("ours", "runs")
SECRET = ObjectKey("theirs", "secret-name")
TENANT = Viewer(frozenset({"ours"}))
TIME = 1_700_000_000 * SECOND


@pytest.mark.parametrize(
    ("cause", "reason", "message"),
    [
        (WaitingForLocalQueue(W, exists=False), "LocalQueue", "LocalQueue ours/w does not exist"),
        (WaitingForLocalQueue(W, exists=True), "LocalQueue", "LocalQueue ours/w is stopped"),
        (WaitingForClusterQueue("q", exists=False), "ClusterQueue", "ClusterQueue q does not exist"),
        (
            WaitingForClusterQueue("q", exists=True),
            "ClusterQueue",
            "ClusterQueue q is excluded from admission after an internal error",
        ),
        (
            WaitingForClusterQueue(
                "q",
                exists=True,
                causes=(
                    InactiveCause(ActiveReason.STOPPED),
                    InactiveCause(ActiveReason.FLAVOR_NOT_FOUND, ("a", "b")),
                ),
            ),
            "ClusterQueue",
            "ClusterQueue q admits no workloads: is stopped, references missing ResourceFlavor(s): a,b",
        ),
        (WaitingForActivation(), "Activation", "it is deactivated"),
        (
            WaitingForRelease(("a", "b"), on_hold=True, waits_for_replacement_pods=True, deleting=True),
            "Release",
            (
                "it is not queued: admission gates a, b, it is on hold, it waits for replacement pods, "
                "it is being deleted"
            ),
        ),
        (
            WaitingForBackoff(None),
            "Backoff",
            "a backoff, which ends when its condition Requeued is True",
        ),
        (WaitingForBackoff(TIME), "Backoff", "a backoff until 2023-11-14T22:13:20Z"),
        (
            WaitingForChange(NamespaceMismatch()),
            "Change",
            "it cannot be admitted as it is: workload namespace doesn't match ClusterQueue selector",
        ),
        (WaitingForChange(None), "Change", "it cannot be admitted as it is"),
        (
            WaitingForPodsReady((RUNS, SECRET), 3),
            "PodsReady",
            "pods of workload ours/runs and a workload of another namespace and 3 more to be ready",
        ),
        (WaitingForTurn(), "Turn", "its turn: it will be evaluated next in its queue"),
        (
            WaitingBehindHead(SECRET),
            "Head",
            "its turn behind a workload of another namespace, which blocks the ClusterQueue",
        ),
        (
            WaitingBehindHead(RUNS),
            "Head",
            "its turn behind workload ours/runs, which blocks the ClusterQueue",
        ),
        (WaitingForUnusedQuota(None), "Quota", "unused quota"),
        (
            WaitingForOpenPreemptionGate(),
            "PreemptionGate",
            "its preemption gate to open: it fits only with preemption",
        ),
        (
            WaitingForTargetsToLeave(()),
            "Preemption",
            "workloads to stop that were preempted for another workload",
        ),
        (
            WaitingForTargetsToLeave((SECRET, SECRET)),
            "Preemption",
            "preempted workloads to stop: 2 workloads of other namespaces",
        ),
        (
            WaitingForTargetsToLeave((RUNS, W)),
            "Preemption",
            "preempted workloads to stop: workloads ours/runs, ours/w",
        ),
        (
            WaitingForOtherHeads(QuotaTakenInCycle()),
            "OtherHeads",
            (
                "other heads of its cohort, which hold what it needs: "
                "Workload no longer fits after processing another workload"
            ),
        ),
        (
            WaitingForChecks((("a", None), ("b", CheckState.PENDING))),
            "AdmissionChecks",
            "admission checks: a (not reported), b (Pending)",
        ),
        (WaitingForChecks(()), "AdmissionChecks", "its admission to be written"),
        (WaitingForJobToStop(), "JobToStop", "its evicted job to stop"),
    ],
)
def test_cause_has_reason_and_message(cause: WaitCause, reason: str, message: str) -> None:
    assert (wait_reason(cause), wait_message(cause, TENANT)) == (reason, message)


SPOT = Toleration("spot", "Equal", "yes", "NoSchedule")
UNVALUED = Toleration("k", "Equal", "", "NoExecute")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            LiftHolds(W, activates=True, releases=True, admission_gates=("g",), opens_preemption_gate=True),
            "activate it and take it off hold and remove its admission gates g and open its preemption gate",
        ),
        (ReducePods(W, (ReducedPodSet("main", 4, 2),)), "run 2 instead of 4 pods in podset main"),
        (
            AllowFlavor(W, "spot", ("main",), (SPOT,), drops_node_selection=True),
            (
                "tolerate spot=yes:NoSchedule and remove its node selector and node affinity in podset main, "
                "to use flavor spot"
            ),
        ),
        (
            AllowFlavor(
                W,
                "spot",
                ("a", "b"),
                (Toleration("k", "Equal", "", "NoExecute"),),
                drops_node_selection=False,
            ),
            "tolerate k:NoExecute in podset a, b, to use flavor spot",
        ),
        (
            AllowFlavor(W, "spot", ("a",), (), drops_node_selection=True),
            "remove its node selector and node affinity in podset a, to use flavor spot",
        ),
        (RaisePriority(W, 7), "raise its priority to 7"),
        (ResumeLocalQueue(W), "resume LocalQueue ours/w"),
        (ResumeClusterQueue("q"), "resume ClusterQueue q"),
        (CreateFlavors(("a", "b")), "create ResourceFlavor a, b"),
        (ActivateChecks(("a",)), "make AdmissionCheck a exist and be active"),
        (
            FinishWorkloads((RUNS, SECRET)),
            "wait until workload ours/runs and a workload of another namespace finished",
        ),
        (
            AddQuota("q", ((FlavorResource("f", "cpu"), 1500), (FlavorResource("f", "memory"), 1 << 30))),
            "add 1500m cpu of flavor f and 1Gi memory of flavor f to the nominal quota of ClusterQueue q",
        ),
    ],
)
def test_change_has_message(change: Change, message: str) -> None:
    assert change_message(change, TENANT) == message


HOLDINGS = QuotaHoldings(
    (
        QuotaHolding(RUNS, "q", 3000, 3000, 7, TIME, is_leaving=False),
        QuotaHolding(SECRET, "secret-queue", 2000, 1000, 0, 0, is_leaving=True),
        QuotaHolding(ObjectKey("theirs", "secret-other"), "q", 1000, 1000, 0, 0, is_leaving=False),
    ),
    2,
    1500,
)
SHORT = ResourceConstraint(
    "cpu", 4000, 1000, 2000, 9000, 3000, BindingNode("c", is_cohort=True, limit=BindingLimit.QUOTA), HOLDINGS
)
LIMITED = BindingNode("q", is_cohort=False, limit=BindingLimit.BORROWING_LIMIT)
EXPLANATION = WorkloadExplanation(
    W,
    Phase.PENDING,
    5,
    ObjectKey("ours", "lq"),
    "q",
    QueuedWorkload(W, ObjectKey("ours", "lq"), 4, 2),
    WaitingForUnusedQuota(None),
    None,
    (
        FlavorVerdict(("main",), "default", None, (SHORT,)),
        FlavorVerdict(
            ("main",), "small", None, (ResourceConstraint("gpu", 2, 0, 1, 1, 1, LIMITED, QuotaHoldings()),)
        ),
        FlavorVerdict(
            ("side",), "fits", None, (ResourceConstraint("gpu", 1, 0, 1, 1, 0, None, QuotaHoldings()),)
        ),
        FlavorVerdict(("main",), "spot", UntoleratedTaint("spot", "k", "v", "NoSchedule"), ()),
        FlavorVerdict(("main",), "", UntoleratedTaint("spot", "k", "v", "NoSchedule"), ()),
    ),
)
CHANGES = CheapestChanges(
    needs_none=False,
    alternatives=(
        SufficientChanges((FinishWorkloads((SECRET,)),), Cost(Effort.OTHER_WORKLOADS, Fraction(1))),
        SufficientChanges(
            (ResumeClusterQueue("q"), RaisePriority(W, 7)), Cost(Effort.PRIORITY, Fraction(1)), (SECRET, RUNS)
        ),
    ),
)


def test_lines_hide_names_of_other_namespaces() -> None:
    assert explanation_lines(EXPLANATION, CHANGES, TENANT) == [
        "Workload ours/w: Pending, priority 5",
        "Queues: LocalQueue ours/lq, ClusterQueue q",
        "Position: 3 in the LocalQueue, 5 in the ClusterQueue",
        "Waits for: unused quota",
        "Quota:",
        "  podset main, flavor default:",
        (
            "    cpu: requests 4 after 1 of earlier podsets, 2 free of at most 9: "
            "3 missing, limited by the quota of cohort c"
        ),
        "      workload ours/runs holds 3 in q since 2023-11-14T22:13:20Z (priority 7)",
        "      a workload of another namespace holds 2 (priority 0, is stopping)",
        "      a workload of another namespace holds 1 in q (priority 0)",
        "      2 more hold 1500m",
        "  podset main, flavor small:",
        (
            "    gpu: requests 2, 1 free of at most 1: "
            "1 missing, limited by the borrowing limit of ClusterQueue q"
        ),
        "  podset side, flavor fits: fits",
        "    gpu: requests 1, 1 free",
        "  podset main, flavor spot: untolerated taint {k v NoSchedule <nil>} in flavor spot",
        "  podset main: untolerated taint {k v NoSchedule <nil>} in flavor spot",
        "Any of these admits it:",
        "  1. wait until a workload of another namespace finished",
        (
            "  2. resume ClusterQueue q, and raise its priority to 7 "
            "(preempts workload ours/runs and a workload of another namespace)"
        ),
    ]


def test_lines_name_everything_by_default() -> None:
    lines = "\n".join(explanation_lines(EXPLANATION, CHANGES))
    assert "workload theirs/secret-name holds 2 in secret-queue" in lines
    assert "wait until workload theirs/secret-name finished" in lines


def test_lines_of_admitted_workload_are_few() -> None:
    admitted = WorkloadExplanation(W, Phase.ADMITTED, 0, ObjectKey("ours", "lq"), None, None, None, None, ())
    assert explanation_lines(admitted) == [
        "Workload ours/w: Admitted, priority 0",
        "Queues: LocalQueue ours/lq",
    ]
    assert explanation_lines(admitted, CheapestChanges(needs_none=True))[2:] == [
        "It is admitted without any change."
    ]
    assert explanation_lines(admitted, CheapestChanges(needs_none=False))[2:] == [
        "No single change that admits it was found."
    ]
    assert explanation_json(admitted)["waitsFor"] is None


def test_json_hides_names_of_other_namespaces() -> None:
    found = explanation_json(EXPLANATION, CHANGES, TENANT)
    assert b"secret" not in orjson.dumps(found)
    assert found["flavors"][0]["resources"] == [
        {
            "name": "cpu",
            "requested": "4",
            "requestedByEarlierPodSets": "1",
            "free": "2",
            "maximum": "9",
            "missing": "3",
            "limitedBy": {"kind": "Cohort", "name": "c", "limit": "Quota"},
            "heldBy": {
                "workloads": [
                    _held({"namespace": "ours", "name": "runs"}, "q", "3", "3", 7, "2023-11-14T22:13:20Z"),
                    _held(None, None, "2", "1", stopping=True),
                    _held(None, "q", "1", "1"),
                ],
                "more": 2,
                "moreAmount": "1500m",
            },
        }
    ]
    assert found["changes"]["alternatives"][1] == {
        "message": "resume ClusterQueue q, and raise its priority to 7 "
        "(preempts workload ours/runs and a workload of another namespace)",
        "effort": "Priority",
        "changes": [
            {"type": "ResumeClusterQueue", "message": "resume ClusterQueue q"},
            {"type": "RaisePriority", "message": "raise its priority to 7"},
        ],
        "preempts": [None, {"namespace": "ours", "name": "runs"}],
    }
    assert found["flavors"][2]["resources"][0]["limitedBy"] is None
    assert found["flavors"][4]["flavor"] is None
    assert "secret-name" in orjson.dumps(explanation_json(EXPLANATION, CHANGES)).decode()


def _held(
    workload: dict[str, str] | None,
    queue: str | None,
    amount: str,
    freed: str,
    priority: int = 0,
    since: str | None = None,
    *,
    stopping: bool = False,
) -> dict[str, Any]:
    return {
        "workload": workload,
        "clusterQueueName": queue,
        "amount": amount,
        "freed": freed,
        "priority": priority,
        "since": since,
        "stopping": stopping,
    }


def test_json_has_positions_and_reason() -> None:
    found = explanation_json(EXPLANATION)
    assert {name: value for name, value in found.items() if name != "flavors"} == {
        "workload": {"namespace": "ours", "name": "w"},
        "phase": "Pending",
        "priority": 5,
        "localQueueName": "lq",
        "clusterQueueName": "q",
        "positionInLocalQueue": 2,
        "positionInClusterQueue": 4,
        "waitsFor": {"reason": "Quota", "message": "unused quota"},
    }


@pytest.mark.parametrize(
    ("cause", "more"),
    [
        (WaitingForBackoff(TIME), {"until": "2023-11-14T22:13:20Z"}),
        (WaitingForBackoff(None), {"until": None}),
        (WaitingBehindHead(SECRET), {"workloads": [None]}),
        (WaitingForPodsReady((RUNS,), 0), {"workloads": [{"namespace": "ours", "name": "runs"}]}),
        (WaitingForTargetsToLeave((SECRET,)), {"workloads": [None]}),
    ],
)
def test_json_of_cause_has_its_values(cause: WaitCause, more: dict[str, Any]) -> None:
    explanation = WorkloadExplanation(
        W, Phase.PENDING, 0, ObjectKey("ours", "lq"), "q", None, cause, None, ()
    )
    waits_for = explanation_json(explanation, viewer=TENANT)["waitsFor"]
    assert {name: waits_for[name] for name in more} == more
