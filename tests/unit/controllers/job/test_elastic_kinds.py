"""Elastic jobs of every kind, their children, and the webhook of Jobs."""

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

POD_COUNT_FIELDS: Mapping[str, FieldPath] = {
    "batch/job": ("spec", "parallelism"),
    "ray.io/rayjob": ("spec", "rayClusterSpec", "workerGroupSpecs", 0, "replicas"),
    "ray.io/raycluster": ("spec", "workerGroupSpecs", 0, "replicas"),
    "ray.io/rayservice": ("spec", "rayClusterConfig", "workerGroupSpecs", 0, "replicas"),
}
"""The field of each kind with the number of pods."""

ELASTIC_KINDS = [
    pytest.param(kind, id=kind.framework) for kind in load_integrations() if kind.scaling.can_be_elastic
]


def test_elastic_kinds_are_all_covered_by_these_tests() -> None:
    assert {kind.framework for kind in load_integrations() if kind.scaling.can_be_elastic} == set(
        POD_COUNT_FIELDS
    )


@pytest.mark.parametrize("kind", ELASTIC_KINDS)
def test_elastic_job_of_every_kind_grows_by_new_slice_and_shrinks_in_place(kind: Integration) -> None:
    def plan_of(job_: dict[str, Any], *workloads: dict[str, Any]) -> ActionPlan:
        return plan_for(job_, *workloads, integration=kind)

    def pods_of(slice_: dict[str, Any]) -> int:
        return sum(pod_set["count"] for pod_set in slice_["spec"]["podSets"])

    def resized(job_: dict[str, Any], pods: int) -> dict[str, Any]:
        """Return the job with so many pods, and with a higher maximum where its kind has one."""
        path = POD_COUNT_FIELDS[kind.framework]
        result = with_value(with_value(job_, path, pods), (*path[:-1], "maxReplicas"), 10)
        return with_value(
            result, ("metadata", "generation"), value_at(job_, ("metadata", "generation"), 1) + 1
        )

    example = find_example(kind)
    identity = {
        "namespace": "ns",
        "name": "j",
        "uid": "uid-j",
        "creationTimestamp": timestamp(0),
        "generation": 1,
    }
    metadata = {"labels": {NAMES.queue_name: "lq"}, "annotations": ELASTIC, **identity}
    pending_job = dict(kind.with_suspend(resized({**example, "metadata": metadata, "status": {}}, 5), True))

    first = created_workload(plan_of(pending_job))
    name = first["metadata"]["name"]
    owner = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": "j",
        "uid": "uid-j",
        "controller": True,
    }
    assignments = [
        {"name": pod_set["name"], "count": pod_set["count"], "flavors": {"cpu": "f"}}
        for pod_set in first["spec"]["podSets"]
    ]
    gated = admitted(
        name=name,
        owner=owner,
        metadata={"annotations": first["metadata"]["annotations"]},
        spec=first["spec"],
        admission={"clusterQueue": "cq", "podSetAssignments": assignments},
    )
    running_job = apply_plan(pending_job, plan_of(pending_job, gated))
    assert not kind.is_suspended(running_job, NAMES)
    assert plan_of(running_job, gated) == ActionPlan()

    second = created_workload(plan_of(resized(running_job, 7), gated))
    assert second["metadata"]["name"] != name
    assert second["metadata"]["annotations"] == {
        **ELASTIC,
        NAMES.workload_slice_name: name,
        NAMES.workload_slice_replacement_for: f"ns/{name}",
    }
    assert pods_of(second) > pods_of(first)
    assert [pod_set["template"] for pod_set in second["spec"]["podSets"]] == [
        pod_set["template"] for pod_set in first["spec"]["podSets"]
    ]

    shrunk = apply_plan(gated, plan_of(resized(running_job, 3), gated))
    assert pods_of(shrunk) < pods_of(first)


def find_example(kind: Integration) -> dict[str, Any]:
    """Return an example of the kind that has podsets."""
    return next(obj for obj in examples_of(kind.api_version, kind.kind) if kind.list_pod_sets(obj, NAMES))


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
    """Slices of one generation have one name, so that the generation must determine the podsets."""
    example = find_example(kind)
    pod_sets = [kind.list_pod_sets({**example, "status": status}, NAMES) for status in (STATUS, {}, None)]
    assert len({tuple(map(repr, listed)) for listed in pod_sets}) == 1


@pytest.mark.parametrize("kind", ELASTIC_KINDS)
def test_slice_version_depends_on_objects_that_the_job_references(kind: Integration) -> None:
    job_ = kind.with_suspend({**find_example(kind), "status": STATUS}, False)
    references = kind.templates.list_references(job_)
    resolved = {reference: {"metadata": {"generation": 7}} for reference in references}
    version, resolved_version = (
        kind.scaling.get_slice_version(obj, NAMES) for obj in (job_, kind.templates.resolve(job_, resolved))
    )
    assert (version != resolved_version) is bool(references)


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


def rule_context(gates: Mapping[Gate, bool] | None = None) -> RuleContext:
    return RuleContext(NAMES, FeatureGates(gates or {}), is_managed=True)


def test_webhook_gates_pods_of_elastic_job() -> None:
    gated = JOB.webhook.mutate(waiting_job(2), rule_context())
    assert value_at(gated, ("spec", "template", "spec", "schedulingGates")) == [{"name": NAMES.elastic_gate}]
    assert JOB.webhook.mutate(gated, rule_context()) is gated


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
    assert JOB.webhook.mutate(obj, rule_context(gates)) is obj
