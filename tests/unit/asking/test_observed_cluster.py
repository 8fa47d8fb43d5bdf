"""The state of a cluster that a program builds from stored objects."""

from typing import Any

import pytest

from admitq.asking.observed_cluster import ObservedCluster, observe_cluster
from admitq.core.lifecycle import Phase
from admitq.core.model import ObjectKey
from admitq.core.refusals import (
    InsufficientQuota,
    NoFitReason,
    NoFlavorFits,
    NoPreemptionTargets,
    PodSetRefusals,
)
from admitq.core.settings import CoreSettings
from admitq.translate.read_options import ReadOptions
from tests.unit.controllers.builders import (
    NAMES,
    instant,
    local_queue,
    reserved,
    timestamp,
    workload,
)

ASSIGNED = {"name": "main", "count": 3, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}}
ADMISSION = {"clusterQueue": "cq", "podSetAssignments": [ASSIGNED]}


def cluster_queue(nominal: Any) -> dict[str, Any]:
    resources = [{"name": "cpu", "nominalQuota": nominal}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    return {"metadata": {"name": "cq", "uid": "uid-cq", "creationTimestamp": timestamp(0)}, "spec": spec}


def own(name: str, obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "name": name, "uid": f"uid-{name}"}}


def observed(*workloads: dict[str, Any], nominal: Any = 4) -> ObservedCluster:
    """Observe a ClusterQueue with these workloads of three pods, each of which requests one CPU."""
    objects = [
        ("resourceflavors", {"metadata": {"name": "f"}, "spec": {}}),
        ("clusterqueues", cluster_queue(nominal)),
        ("namespaces", {"metadata": {"name": "ns"}}),
        ("localqueues", local_queue()),
        *(("workloads", obj) for obj in workloads),
    ]
    return observe_cluster(objects, NAMES, instant(60), settings=CoreSettings(), how=ReadOptions())


def test_pending_workload_has_the_refusal_of_a_cycle() -> None:
    running = own("running", reserved(admission=ADMISSION))
    state = observed(running, own("waiting", workload())).state
    waiting = ObjectKey("ns", "waiting")
    refused = PodSetRefusals("main", (InsufficientQuota("f", "cpu", 2000),))
    no_flavor = NoFlavorFits((refused,), NoFitReason.WAITING_FOR_QUOTA)
    assert state.queries.last_refusal(waiting) == NoPreemptionTargets(no_flavor)
    assert state.queries.workload_phase(waiting) is Phase.PENDING


def test_workload_that_the_next_cycle_admits_holds_quota_already() -> None:
    later = workload(metadata={"creationTimestamp": timestamp(1)})
    state = observed(own("first", workload()), own("second", later)).state
    used = {
        name: bool(state.queries.usage_of_workload(ObjectKey("ns", name))) for name in ("first", "second")
    }
    assert used == {"first": True, "second": False}


@pytest.mark.parametrize(
    ("workloads", "nominal", "unreadable", "good_holds_quota"),
    [
        (
            [own("bad", workload(spec={"podSets": 7})), own("good", workload())],
            4,
            ("workloads", "ns", "bad"),
            True,
        ),
        ([own("good", workload())], "many", ("clusterqueues", "", "cq"), False),
    ],
    ids=["workload", "ClusterQueue"],
)
def test_unreadable_object_is_listed_and_does_not_stop_the_others(
    workloads: list[dict[str, Any]], nominal: Any, unreadable: tuple[str, str, str], good_holds_quota: bool
) -> None:
    cluster = observed(*workloads, nominal=nominal)
    assert [(each.plural, each.namespace, each.name) for each in cluster.unreadable] == [unreadable]
    assert all(each.problem for each in cluster.unreadable)
    assert bool(cluster.state.queries.usage_of_workload(ObjectKey("ns", "good"))) is good_holds_quota
