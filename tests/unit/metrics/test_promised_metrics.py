"""The metrics that clients know by name are served with exactly their labels, once a history was played."""

import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import admitq
from admitq.core.activity import ActiveReason
from admitq.core.amounts import FlavorResource
from admitq.core.fair_sharing import NO_SHARE
from admitq.core.model import ConsumedResources, ObjectKey
from admitq.core.statuses import (
    ClusterQueueStatus,
    CohortStatus,
    FlavorTotals,
    LocalQueueReason,
    LocalQueueStatus,
    PendingWorkload,
    ResourceTotal,
)
from admitq.metrics.custom_labels import LabelSource, SeriesLabel, SeriesLabels
from admitq.metrics.measures.gauges import PendingWorkloads, WorkloadGauges
from admitq.metrics.measures.manager import ManagerMeasures
from admitq.metrics.measures.queues import QueueMeasures
from admitq.metrics.measures.scope import MeasureScope
from admitq.metrics.measures.workloads import WorkloadMeasures
from admitq.metrics.registry import Metrics, label_name_problems
from admitq.metrics.table import TABLE
from admitq.translate.cluster_queues import read_cluster_queue
from admitq.translate.workloads import read_workload
from admitq_api.labels import names_for
from tests.unit.metrics.metric_table import PROMISED, Row
from tests.unit.metrics.test_measures import workload

NAMES = names_for()
OTHER = NAMES.untracked_label_value
SHORT = {
    "cq": LabelSource.CLUSTER_QUEUE,
    "co": LabelSource.COHORT,
    "lq": LabelSource.LOCAL_QUEUE,
    "wl": LabelSource.WORKLOAD,
}
OWN = {series.name for series in TABLE} - PROMISED.keys()
"""Metrics that only admitq has."""


def from_label(name: str, source: LabelSource, *tracked: str) -> SeriesLabel:
    return SeriesLabel(name, source, name, "labels", frozenset(tracked), OTHER)


EVERY_KIND = (
    from_label("model", LabelSource.WORKLOAD, "big", "small"),
    from_label("squad", LabelSource.LOCAL_QUEUE),
    from_label("org", LabelSource.COHORT),
    from_label("tier", LabelSource.CLUSTER_QUEUE),
    SeriesLabel("center", LabelSource.CLUSTER_QUEUE, "cost", "annotations", frozenset(), OTHER),
)
LABELS_OF = {
    "cq": ("custom_tier", "custom_center"),
    "co": ("custom_org",),
    "lq": ("custom_squad",),
    "wl": ("custom_model",),
}


def described(name: str, *, annotations: Mapping[str, str] | None = None, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels, "annotations": annotations or {}}}


TOTALS = (FlavorTotals("spot", (ResourceTotal("cpu", 2000, 0),)),)
CQ = ClusterQueueStatus(True, ActiveReason.READY, (), 3, 1, 2, 1, TOTALS, TOTALS, NO_SHARE)
LQ = LocalQueueStatus(
    True,
    LocalQueueReason.READY,
    3,
    2,
    1,
    TOTALS,
    TOTALS,
    ConsumedResources((), 0),
    Fraction(3, 2),
)
CPU = (FlavorResource("spot", "cpu"), 4000)
MAIN = ObjectKey("team", "main")
QUOTA = read_cluster_queue(
    {
        "metadata": {"name": "cq"},
        "spec": {
            "cohortName": "teams",
            "resourceGroups": [
                {
                    "coveredResources": ["cpu"],
                    "flavors": [{"name": "spot", "resources": [{"name": "cpu", "nominalQuota": "4"}]}],
                }
            ],
        },
    }
)


def labelled(obj: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}}


WAITS = labelled(workload("waits", QuotaReserved=("False", "WaitingForQuota")), model="big")
PARKED = labelled(workload("parked", QuotaReserved=("False", "WaitingForQuota")), model="odd")
RUNS = labelled(
    workload("runs", QuotaReserved=("True", "QuotaReserved"), Admitted=("True", "Admitted")), model="small"
)
RUNS["status"]["admission"] = {
    "clusterQueue": "cq",
    "podSetAssignments": [
        {"name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "2"}, "count": 3}
    ],
}
ENDED = workload("ended", Finished=("True", "Succeeded"))
EVICTED = labelled(
    workload("gone", PodsReady=("True", "Started"), Evicted=("True", "Preempted")), model="small"
)


class Played:
    """A history in which everything happens that metrics tell of."""

    def __init__(self, *custom: SeriesLabel) -> None:
        self.metrics = Metrics(custom=custom)
        self.waiting = [
            PendingWorkload(ObjectKey("team", "waits"), MAIN, "cq", False),
            PendingWorkload(ObjectKey("team", "parked"), MAIN, "cq", True),
        ]
        scope = MeasureScope(
            self.metrics,
            lambda _: "cq",
            cohorts_of=lambda _: ["teams", "company"],
            has_resource_series=True,
        )
        pending = PendingWorkloads(
            workloads=lambda: self.waiting,
            count_scheduling_keys=lambda _: (1, 1),
            total_requests=lambda _: {"cpu": 12000},
        )
        self.measures = ManagerMeasures(scope, pending)
        self.play()

    def play(self) -> None:
        tell = self.measures
        self.label("gold", squad="ml", org="science")
        for obj in (WAITS, PARKED, RUNS, ENDED):
            tell.gauges.workload_observed(read_workload(obj, NAMES), obj)
        self.report()
        tell.workloads.workload_created("Job.batch", 0.2, MAIN)
        tell.workloads.quota_reserved(RUNS, "cq", 1.0)
        tell.workloads.admitted(RUNS, "cq", 2.0, 1.0)
        tell.workloads.pods_became_ready(RUNS, 3.0, 1.0)
        tell.workloads.finished(RUNS, 5.0)
        tell.workloads.evicted(EVICTED, "Preempted", "", first=True)
        tell.workloads.quota_released(EVICTED, "Preempted", 1.0)
        tell.workloads.preempted("cq", "InClusterQueue")
        tell.workloads.targets_recomputed("cq", "new_targets")
        tell.workloads.preemptions_skipped({"cq": 1})
        tell.workloads.slice_replaced(RUNS)
        tell.workloads.gate_removed("example.com/gate", "cq", 1.0, is_group=False)
        self.metrics.increment("admission_attempts_total", result="success")
        self.metrics.observe("admission_attempt_duration_seconds", 0.1, result="success")

    def label(self, tier: str, *, squad: str, org: str) -> None:
        """Have the queues and cohorts as they are, with these labels."""
        cluster_queue = described("cq", annotations={"cost": "c7"}, tier=tier)
        self.measures.queues.cluster_queue_observed(QUOTA, cluster_queue)
        self.measures.queues.local_queue_observed(MAIN, described("main", squad=squad))
        for cohort in ("teams", "company"):
            self.measures.queues.cohort_observed(cohort, described(cohort, org=org))

    def report(self) -> None:
        """Have the controllers look at everything."""
        tell = self.measures
        tell.queues.cluster_queue_reported("cq", CQ)
        tell.queues.local_queue_reported(MAIN, LQ)
        tell.queues.cohort_reported("teams", "company", "company", CohortStatus((CPU,), (CPU,), NO_SHARE))

    def series(self, name: str) -> list[dict[str, str]]:
        """The labels of all series of a metric, with ``=`` for the value."""
        found: list[dict[str, str]] = []
        for line in self.metrics.exposition().decode().splitlines():
            match = re.fullmatch(rf"admitq_{name}(_bucket|_sum|_count)?{{(.*)}} (\S+)", line)
            if match:
                found.append({**dict(re.findall(r'(\w+)="([^"]*)"', match[2])), "=": match[3]})
        return found


@pytest.fixture(scope="module")
def played() -> Played:
    return Played(*EVERY_KIND)


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_a_promised_metric_has_exactly_its_labels(played: Played, name: str) -> None:
    row: Row = PROMISED[name]
    custom = {label for kind in row.carries.split() for label in LABELS_OF[kind]}
    wanted = {*row.labels.split(), *custom, "replica_role", "="}
    found = played.series(name)
    assert found, "missing"
    assert {frozenset(one) - {"le"} for one in found} == {frozenset(wanted)}
    (series,) = (one for one in TABLE if one.name == name)
    assert series.type.value == row.type
    if row.type == "histogram":
        bounds = {one["le"] for one in found if "le" in one} - {"+Inf"}
        assert len(bounds) == row.buckets
    assert series.label_sources == tuple(SHORT[kind] for kind in row.carries.split())


def test_metrics_beside_the_promised_ones_are_known() -> None:
    assert {
        "api_requests_total",
        "certificate_expiry_timestamp_seconds",
        "core_failures_total",
        "decision_longest_stretch_seconds",
        "excess_pods_total",
        "forcefully_deleted_pods_total",
        "malformed_objects",
        "managed_kinds",
        "quarantined_keys",
        "reconciliations_total",
        "shadow_decisions_total",
        "shadow_disagreements_total",
        "unexpected_errors_total",
        "unwritten_decisions",
        "watch_restarts_total",
        "webhook_review_duration_seconds",
        "webhook_reviews_total",
    } == OWN


def test_every_measure_is_called_by_the_product() -> None:
    folder = Path(str(admitq.__file__)).parent
    others = [path.read_text() for path in folder.rglob("*.py") if path.parent.name != "measures"]
    called = {
        name
        for text in others
        for name in re.findall(r"(?:measures|metrics)(?:\.workloads|\.queues|\.gauges)?\.(\w+)\(", text)
    }
    public = {
        name
        for measures in (WorkloadMeasures, QueueMeasures, WorkloadGauges)
        for name, one in vars(measures).items()
        if callable(one) and not name.startswith("_")
    }
    assert public - {"has_cluster_queue"} <= called


def test_custom_labels_come_by_kind_and_then_as_configured() -> None:
    assert SeriesLabels(EVERY_KIND).names(reversed(LabelSource)) == (
        "custom_tier",
        "custom_center",
        "custom_org",
        "custom_squad",
        "custom_model",
    )


@pytest.mark.parametrize(
    ("label", "metadata", "expected"),
    [
        (from_label("tier", LabelSource.COHORT), {"labels": {"tier": "gold"}}, "gold"),
        (from_label("tier", LabelSource.COHORT), {"annotations": {"tier": "gold"}}, ""),
        (from_label("tier", LabelSource.COHORT), {}, ""),
        (from_label("tier", LabelSource.COHORT, "gold"), {"labels": {"tier": "gold"}}, "gold"),
        (from_label("tier", LabelSource.COHORT, "gold"), {"labels": {"tier": "lead"}}, OTHER),
        (from_label("tier", LabelSource.COHORT, "gold"), {"labels": {"other": "gold"}}, ""),
        (EVERY_KIND[-1], {"annotations": {"cost": "c7"}, "labels": {"cost": "no", "center": "no"}}, "c7"),
    ],
)
def test_a_value_is_that_of_the_object_if_it_is_tracked(
    label: SeriesLabel, metadata: dict[str, Any], expected: str
) -> None:
    assert label.value_in({"metadata": metadata}) == expected


def test_the_values_of_all_kinds_are_on_the_series() -> None:
    played = Played(*EVERY_KIND)
    (one,) = played.series("admitted_workloads_total")
    assert (one["custom_tier"], one["custom_center"]) == ("gold", "c7")
    (one,) = played.series("cohort_weighted_share")
    assert one["custom_org"] == "science"
    (one,) = played.series("local_queue_admitted_workloads_total")
    assert (one["custom_squad"], one["custom_model"]) == ("ml", "small")
    (one,) = played.series("cohort_subtree_admitted_active_workloads")[:1]
    assert (one["custom_tier"], one["custom_center"]) == ("gold", "c7")
    (one, *_) = played.series("workload_creation_latency_seconds")
    assert one["custom_squad"] == "ml"


def test_workloads_are_counted_by_what_they_say_of_themselves() -> None:
    played = Played(*EVERY_KIND)

    def pending() -> dict[tuple[str, str], str]:
        return {(one["status"], one["custom_model"]): one["="] for one in played.series("pending_workloads")}

    assert pending() == {("active", "big"): "1.0", ("inadmissible", OTHER): "1.0"}
    played.waiting.pop(0)
    assert pending() == {("active", ""): "0.0", ("inadmissible", OTHER): "1.0"}
    for series in ("admitted_active_workloads", "local_queue_admitted_active_workloads"):
        assert [(one["custom_model"], one["="]) for one in played.series(series)] == [("small", "1.0")]
    played.measures.gauges.workload_deleted(ObjectKey("team", "runs"))
    for series in ("admitted_active_workloads", "local_queue_admitted_active_workloads"):
        assert [(one["custom_model"], one["="]) for one in played.series(series)] == [("", "0.0")]


def test_pending_workloads_are_counted_by_local_queue() -> None:
    played = Played()
    assert {one["status"]: one["="] for one in played.series("local_queue_pending_workloads")} == {
        "active": "2.0",
        "inadmissible": "1.0",
    }


@pytest.mark.parametrize("name", sorted(name for name, row in PROMISED.items() if row.carries))
def test_d18_custom_labels_have_a_prefix_in_every_series(played: Played, name: str) -> None:
    configured = {label.name for label in EVERY_KIND}
    own = set(PROMISED[name].labels.split()) | {"replica_role", "le", "="}
    custom = {label for one in played.series(name) for label in one} - own
    assert {label.removeprefix("custom_") for label in custom} <= configured
    assert all(label.startswith("custom_") for label in custom)


@pytest.mark.parametrize("kind", ["cq", "co", "lq"])
def test_d18_changed_value_moves_gauges_and_leaves_counters(kind: str) -> None:
    played = Played(*EVERY_KIND)
    former = {"tier": "gold", "squad": "ml", "org": "science"}
    label = LABELS_OF[kind][0]
    name = label.removeprefix("custom_")
    carrying = [one for one, row in PROMISED.items() if kind in row.carries.split()]

    def values() -> dict[str, set[tuple[str, str]]]:
        return {
            one: {(series[label], series["="]) for series in played.series(one) if "le" not in series}
            for one in carrying
        }

    before = values()
    played.label(**(former | {name: "changed"}))
    for one, found in values().items():
        new = "changed" if PROMISED[one].type == "gauge" else former[name]
        assert found == {(new, value) for _, value in before[one]}, one


def test_d18_after_a_changed_value_counters_count_under_the_new_one() -> None:
    played = Played(*EVERY_KIND)
    played.label("silver", squad="ml", org="science")
    played.measures.workloads.admitted(RUNS, "cq", 2.0, 1.0)
    counted = {one["custom_tier"]: one["="] for one in played.series("admitted_workloads_total")}
    assert counted == {"gold": "1.0", "silver": "1.0"}


def test_d18_all_values_of_a_deleted_object_disappear() -> None:
    played = Played(*EVERY_KIND)
    played.label("silver", squad="ml", org="science")
    played.measures.forget_cluster_queue("cq")
    assert played.series("admitted_workloads_total") == []


def test_the_series_of_what_is_gone_disappear_with_their_values() -> None:
    played = Played(*EVERY_KIND)
    played.measures.forget_cluster_queue("cq")
    played.measures.queues.forget_local_queue("team", "main")
    played.measures.queues.forget_cohort("teams")
    for obj in (WAITS, PARKED, RUNS, ENDED):
        played.measures.gauges.workload_deleted(read_workload(obj, NAMES).key)
    named = [name for name, row in PROMISED.items() if row.carries and "cohort_" not in name]
    left = {name for name in named if played.series(name)}
    assert left == set()


def test_what_does_not_name_its_local_queue_stays_while_another_one_says_the_same() -> None:
    played = Played(*EVERY_KIND)
    other = ObjectKey("team", "other")

    def squads() -> set[str]:
        return {one["custom_squad"] for one in played.series("workload_creation_latency_seconds")}

    played.measures.queues.local_queue_observed(other, described("other", squad="ml"))
    played.measures.workloads.workload_created("Job.batch", 0.2, ObjectKey("team", "without a label"))
    assert squads() == {"ml", ""}
    played.measures.queues.forget_local_queue(*MAIN)
    assert squads() == {"ml", ""}
    played.measures.queues.forget_local_queue(*other)
    assert squads() == {""}


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ([from_label("reason", LabelSource.CLUSTER_QUEUE)], ""),
        ([from_label("replica_role", LabelSource.COHORT)], ""),
        (
            [from_label("team", LabelSource.CLUSTER_QUEUE), from_label("team", LabelSource.WORKLOAD, "a")],
            "'team' is taken from ClusterQueue and Workload, which one metric carries: rename one",
        ),
        ([from_label("team", LabelSource.CLUSTER_QUEUE), from_label("team", LabelSource.LOCAL_QUEUE)], ""),
    ],
)
def test_no_metric_may_have_two_labels_of_one_name(labels: list[SeriesLabel], problem: str) -> None:
    assert [one.split(": use")[0] for one in label_name_problems(labels)] == ([problem] if problem else [])
