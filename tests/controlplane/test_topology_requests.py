"""Topology annotations of pod templates on the real control plane: requests, and parts of jobs."""

from typing import Any, Final

import pytest

from admitq.integrations.kinds.jobset import JOBSET
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import DEPLOYMENTS
from admitq_api.json_objects import value_at
from tests.controlplane.kind_cases import (
    KindCase,
    PodSetCase,
    default_cases,
    kinds_with_cases,
    load,
    path_of,
)
from tests.controlplane.played_jobs import HELD, held_queue, open_queues, submit
from tests.controlplane.stage import Stage, controlled_by

REQUESTS: Final = ("required", "preferred", "podSetGroupName")
"""The requested fields. Other fields number the pods of some kinds."""

WITHOUT_TEMPLATES: Final = {"deployment", "trainer.kubeflow.org/trainjob"}
"""The pods of these kinds are queued separately, or have their templates in another object."""

KINDS: Final = [
    pytest.param(kind, id=kind.framework)
    for kind in kinds_with_cases()
    if kind.framework in default_cases() and kind.framework not in WITHOUT_TEMPLATES
]

POD: Final = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}


def _annotations_at(pod_set: PodSetCase) -> str:
    """Return the path of the annotations in a job."""
    if pod_set.template is not None:
        return f"{pod_set.template}.metadata.annotations"
    return pod_set.places.get("annotations", "metadata.annotations")


def _requests(workload: dict[str, Any]) -> dict[str, Any]:
    """Return the requested fields of each podset."""
    return {
        pod_set["name"]: {
            field: value for field, value in pod_set.get("topologyRequest", {}).items() if field in REQUESTS
        }
        for pod_set in workload["spec"]["podSets"]
    }


@pytest.mark.parametrize("kind", KINDS)
async def test_workload_of_kind_requests_the_topology_of_each_template(stage: Stage, case: KindCase) -> None:
    names = stage.names
    await open_queues(stage, case)
    await held_queue(stage, case)
    changes: dict[str, Any] = {}
    expected: dict[str, Any] = {}
    for index, pod_set in enumerate(case.podSets):
        if pod_set.template is not None and value_at(case.manifest, path_of(pod_set.template)) is None:
            # The submitter of a RayJob has a template of its operator.
            expected[pod_set.name] = {}
            continue
        key, field = (
            (names.podset_preferred_topology, "preferred")
            if index
            else (names.podset_required_topology, "required")
        )
        changes[f"{_annotations_at(pod_set)}[{key}]"] = "example.com/rack"
        expected[pod_set.name] = {field: "example.com/rack"}
    job, _ = await submit(stage, case, changes=changes, queue=HELD)

    async def requests() -> list[dict[str, Any]]:
        found = [_requests(workload) for workload in await stage.workloads(job.name)]
        return [one for index, one in enumerate(found) if one not in found[:index]]

    await stage.until(requests, [expected])


async def test_workloads_of_the_pods_of_a_deployment_request_the_topology_of_its_template(
    stage: Stage,
) -> None:
    await stage.closed_queue()
    names, labels = stage.names, {"app": "d"}
    template = {
        "metadata": {"labels": labels, "annotations": {names.podset_preferred_topology: "example.com/rack"}},
        "spec": POD,
    }
    deployment = {
        "metadata": {"labels": {names.queue_name: "closed"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    }
    await stage.create(DEPLOYMENTS, "d", deployment)

    async def requests() -> list[dict[str, Any]]:
        items, _ = await stage.client.list(stage.kinds.workloads, stage.namespace)
        return [_requests(workload) for workload in items]

    await stage.until(requests, [{"main": {"preferred": "example.com/rack"}}] * 2)
    key = names.podset_required_topology
    change = {"spec": {"template": {"metadata": {"annotations": {key: "example.com/block"}}}}}
    with pytest.raises(ApiError, match="must not contain more than one topology annotation"):
        await stage.change(DEPLOYMENTS, "d", change)


@pytest.mark.parametrize("kind", [pytest.param(JOBSET, id="jobset")])
async def test_job_of_a_jobset_may_be_one_podset_of_a_group(stage: Stage, case: KindCase) -> None:
    names = stage.names
    await open_queues(stage, case)
    await held_queue(stage, case)
    annotations = {names.podset_group_name: "g", names.podset_required_topology: "example.com/rack"}
    changes = {
        f"{_annotations_at(pod_set)}[{key}]": value
        for pod_set in case.podSets
        for key, value in annotations.items()
    }
    jobset, created = await submit(stage, case, changes=changes, queue=HELD)
    await stage.until_workload_exists(jobset.name)
    expected = {"required": "example.com/rack", "podSetGroupName": "g"}
    assert _requests(await jobset.workload()) == {pod_set.name: expected for pod_set in case.podSets}
    assert case.child is not None
    child = load(case.child.integration, names.group)
    [template] = child.podSets
    in_group = {f"{_annotations_at(template)}[{key}]": value for key, value in annotations.items()}
    with pytest.raises(ApiError, match="a group must have exactly 2 pod sets, this one has 1"):
        await submit(stage, child, "alone", changes=in_group, queue=HELD, dry_run=True)
    owned = {"metadata.ownerReferences": controlled_by(created)["ownerReferences"], "metadata.labels": None}
    await submit(stage, child, case.child.name, changes={**in_group, **owned, **case.child.given})
