"""Every kind that can be elastic, its webhook, and what its jobs create."""

from collections.abc import Mapping
from typing import Any

import pytest

from admitq.controllers.job.workload_slices import may_children_run
from admitq.controllers.plan import ActionPlan
from admitq.integrations.base import Integration, RuleContext
from admitq.integrations.kinds.job import JOB
from admitq.integrations.registry import load_integrations
from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.json_objects import FieldPath, value_at, with_value
from tests.unit.controllers.builders import NAMES, admitted, job, timestamp, workload
from tests.unit.controllers.job.decisions import apply_plan, created_workload, plan_for
from tests.unit.controllers.job.elastic_jobs import ELASTIC, EVICTED, slice_, waiting_job
from tests.unit.integrations.examples import examples_of

GROWN: Mapping[str, FieldPath] = {
    "batch/job": ("spec", "parallelism"),
    "ray.io/rayjob": ("spec", "rayClusterSpec", "workerGroupSpecs", 0, "replicas"),
    "ray.io/raycluster": ("spec", "workerGroupSpecs", 0, "replicas"),
    "ray.io/rayservice": ("spec", "rayClusterConfig", "workerGroupSpecs", 0, "replicas"),
}
"""Where a job of each kind says how many pods it wants."""

ELASTIC_KINDS = [
    pytest.param(one, id=one.framework) for one in load_integrations() if one.scaling.can_be_elastic
]


def test_elastic_kinds_are_all_covered_by_these_tests() -> None:
    assert {one.framework for one in load_integrations() if one.scaling.can_be_elastic} == set(GROWN)


@pytest.mark.parametrize("kind", ELASTIC_KINDS)
def test_elastic_job_of_every_kind_grows_by_new_slice_and_shrinks_in_place(kind: Integration) -> None:
    def decided_of(job_: dict[str, Any], *workloads: dict[str, Any]) -> ActionPlan:
        return plan_for(job_, *workloads, integration=kind)

    def pods_of(slice_: dict[str, Any]) -> int:
        return sum(one["count"] for one in slice_["spec"]["podSets"])

    def sized(job_: dict[str, Any], pods: int) -> dict[str, Any]:
        """The job when it wants so many pods; kinds that have a bound have one that leaves room for them."""
        asked = GROWN[kind.framework]
        result = with_value(with_value(job_, asked, pods), (*asked[:-1], "maxReplicas"), 10)
        return with_value(
            result, ("metadata", "generation"), value_at(job_, ("metadata", "generation"), 1) + 1
        )

    example = next(one for one in examples_of(kind.api_version, kind.kind) if kind.list_pod_sets(one, NAMES))
    identity = {
        "namespace": "ns",
        "name": "j",
        "uid": "uid-j",
        "creationTimestamp": timestamp(0),
        "generation": 1,
    }
    metadata = {"labels": {NAMES.queue_name: "lq"}, "annotations": ELASTIC, **identity}
    waits = dict(kind.with_suspend(sized({**example, "metadata": metadata, "status": {}}, 5), True))

    first = created_workload(decided_of(waits))
    name = first["metadata"]["name"]
    owner = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": "j",
        "uid": "uid-j",
        "controller": True,
    }
    counts = {one["name"]: one["count"] for one in first["spec"]["podSets"]}
    assignments = [{"name": each, "count": count, "flavors": {"cpu": "f"}} for each, count in counts.items()]
    has_quota = admitted(
        name=name,
        owner=owner,
        metadata={"annotations": first["metadata"]["annotations"]},
        spec=first["spec"],
        admission={"clusterQueue": "cq", "podSetAssignments": assignments},
    )
    runs = apply_plan(waits, decided_of(waits, has_quota))
    assert not kind.is_suspended(runs, NAMES)
    assert decided_of(runs, has_quota) == ActionPlan()

    second = created_workload(decided_of(sized(runs, 7), has_quota))
    assert second["metadata"]["name"] != name
    assert second["metadata"]["annotations"] == {
        **ELASTIC,
        NAMES.workload_slice_name: name,
        NAMES.workload_slice_replacement_for: f"ns/{name}",
    }
    assert pods_of(second) > pods_of(first)
    assert [one["template"] for one in second["spec"]["podSets"]] == [
        one["template"] for one in first["spec"]["podSets"]
    ]

    less = apply_plan(has_quota, decided_of(sized(runs, 3), has_quota))
    assert pods_of(less) < pods_of(first)


STATUS = {
    "active": 9,
    "succeeded": 9,
    "desiredWorkerReplicas": 9,
    "availableWorkerReplicas": 9,
    "rayClusterName": "j-cluster",
    "rayClusterStatus": {"state": "ready", "desiredWorkerReplicas": 9, "availableWorkerReplicas": 9},
    "activeServiceStatus": {"rayClusterStatus": {"desiredWorkerReplicas": 9}},
}


@pytest.mark.parametrize("kind", ELASTIC_KINDS)
def test_podsets_of_elastic_job_do_not_depend_on_its_status(kind: Integration) -> None:
    """Or with what it follows besides: which is all that tells the names of its slices apart."""
    example = next(one for one in examples_of(kind.api_version, kind.kind) if kind.list_pod_sets(one, NAMES))
    states = [STATUS, {}, None]
    assert (
        len({tuple(map(repr, kind.list_pod_sets({**example, "status": one}, NAMES))) for one in states}) == 1
    )
    running_ = kind.with_suspend({**example, "status": STATUS}, False)
    references = kind.templates.list_references(running_)
    found = {one: {"metadata": {"generation": 7}} for one in references}
    of_job, of_both = (
        kind.scaling.get_slice_version(one, NAMES)
        for one in (running_, kind.templates.resolve(running_, found))
    )
    assert (of_job != of_both) is bool(references)


@pytest.mark.parametrize(
    ("workloads", "ordinary", "elastic"),
    [
        ([], False, False),
        ([slice_("first", 3)], True, True),
        ([slice_("first", 3, workload)], False, True),
        ([slice_("first", 3), slice_("second", 5, workload, replaces="first", at=1)], False, True),
        ([slice_("first", 3, admitted, EVICTED), slice_("second", 5, workload, at=1)], False, False),
    ],
)
def test_children_of_elastic_job_may_run_while_larger_slice_is_pending(
    workloads: list[dict[str, Any]], ordinary: bool, elastic: bool
) -> None:
    assert may_children_run(workloads, elastic=False) is ordinary
    assert may_children_run(workloads, elastic=True) is elastic


def rules(gates: Mapping[Gate, bool] | None = None) -> RuleContext:
    return RuleContext(NAMES, FeatureGates(gates or {}), is_managed=True)


def test_webhook_gates_pods_of_elastic_job() -> None:
    held = JOB.webhook.mutate(waiting_job(2), rules())
    assert value_at(held, ("spec", "template", "spec", "schedulingGates")) == [{"name": NAMES.elastic_gate}]
    assert JOB.webhook.mutate(held, rules()) is held


@pytest.mark.parametrize(
    ("obj", "gates"),
    [
        (job(), {}),
        (waiting_job(2), {Gate.ELASTIC_JOBS: False}),
        ({"metadata": {"annotations": ELASTIC}, "spec": {"template": None}}, {}),
    ],
)
def test_webhook_does_not_change_job_that_is_not_elastic(
    obj: dict[str, Any], gates: Mapping[Gate, bool]
) -> None:
    assert JOB.webhook.mutate(obj, rules(gates)) is obj
