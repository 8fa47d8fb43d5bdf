"""Reviews of jobs that another object describes, and of jobs without pods."""

from typing import Any, Literal

import orjson
import pytest

from admitq.integrations.base import Integration
from admitq.integrations.kinds.rayjob import RAY_JOB
from admitq.integrations.kinds.trainjob import TRAIN_JOB
from admitq_webhooks.routes import review_handlers
from tests.unit.webhooks.support import NAMES, QUEUE, Answer, FakeLookups, policy, post, review

REQUIRED = NAMES.podset_required_topology
CONFLICTING = {REQUIRED: "example.com/rack", NAMES.podset_preferred_topology: "example.com/rack"}


async def send_review(
    verb: Literal["mutate", "validate"], kind: Integration, lookups: FakeLookups, new: Any, old: Any = None
) -> Answer:
    path = NAMES.webhook_path(verb, kind.group, kind.version, kind.kind)
    served = review_handlers(policy(integrations=(kind,)), lookups, (kind,))
    status, body = await post(served[path], path, review(new, old, gvk=kind.gvk))
    return Answer(status, orjson.loads(body), new)


def job(kind: Integration, spec: Any) -> Any:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "work", "labels": {QUEUE: "q"}},
        "spec": spec,
    }


def runtime(annotations: Any) -> Any:
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": []}}
    replicated = {"name": "node", "template": {"spec": {"template": template}}}
    return {"spec": {"template": {"spec": {"replicatedJobs": [replicated]}}}}


TRAIN = {"suspend": True, "runtimeRef": {"name": "torch", "kind": "TrainingRuntime"}}


@pytest.mark.parametrize(
    ("annotations", "allowed"), [({REQUIRED: "example.com/rack"}, True), (CONFLICTING, False)]
)
@pytest.mark.parametrize("is_update", [False, True])
async def test_topology_annotations_of_runtime_are_validated(
    is_update: bool, annotations: Any, allowed: bool
) -> None:
    lookups = FakeLookups(objects={"torch": runtime(annotations)})
    new = job(TRAIN_JOB, TRAIN)
    old = job(TRAIN_JOB, {**TRAIN, "runtimeRef": {"name": "other"}}) if is_update else None
    answer = await send_review("validate", TRAIN_JOB, lookups, new, old)
    assert answer.allowed is allowed
    assert lookups.object_requests[0] == "trainer.kubeflow.org/v1alpha1 TrainingRuntime team/torch"
    if not allowed:
        assert "spec.runtimeRef.node.template.metadata.annotations: " in answer.message


async def test_job_with_missing_runtime_is_accepted() -> None:
    answer = await send_review("validate", TRAIN_JOB, FakeLookups(), job(TRAIN_JOB, TRAIN))
    assert answer.allowed


async def test_runtime_of_an_unknown_kind_is_not_looked_up() -> None:
    lookups = FakeLookups(objects={"torch": runtime(CONFLICTING)})
    spec = {"runtimeRef": {"name": "torch", "kind": "Secret", "apiGroup": "example.com"}}
    assert (await send_review("validate", TRAIN_JOB, lookups, job(TRAIN_JOB, spec))).allowed
    assert lookups.object_requests == []


async def test_review_fails_with_503_if_runtime_cannot_be_read() -> None:
    answer = await send_review("validate", TRAIN_JOB, FakeLookups(unavailable=True), job(TRAIN_JOB, TRAIN))
    assert not answer.allowed
    assert answer.response["status"]["code"] == 503


async def test_mutation_does_not_copy_runtime_into_job() -> None:
    lookups = FakeLookups(objects={"torch": runtime({})})
    answer = await send_review("mutate", TRAIN_JOB, lookups, job(TRAIN_JOB, {**TRAIN, "suspend": False}))
    assert answer.after["spec"] == {**TRAIN, "runtimePatches": [{"manager": NAMES.trainjob_manager}]}
    assert set(answer.after) == {"apiVersion", "kind", "metadata", "spec"}


SELECTOR = {"clusterSelector": {"ray.io/cluster": "there"}}


async def test_rayjob_with_cluster_selector_is_neither_mutated_nor_validated() -> None:
    new = job(RAY_JOB, SELECTOR)
    new["metadata"]["labels"][NAMES.max_exec_time] = "nonsense"
    assert (await send_review("mutate", RAY_JOB, FakeLookups(), new)).patch is None
    assert (await send_review("validate", RAY_JOB, FakeLookups(), new)).allowed
    assert (await send_review("validate", RAY_JOB, FakeLookups(), new, new)).allowed


@pytest.mark.parametrize("is_update", [False, True])
async def test_rayjob_with_cluster_selector_and_cluster_spec_is_rejected(is_update: bool) -> None:
    new = job(RAY_JOB, {**SELECTOR, "rayClusterSpec": {"headGroupSpec": {}}})
    answer = await send_review("validate", RAY_JOB, FakeLookups(), new, new if is_update else None)
    assert not answer.allowed
    assert answer.message.startswith("spec.clusterSelector: Invalid value")
