"""Webhook configurations of a Kueue installation find their paths; rejections have the code of Kueue's."""

import copy
from typing import Any, Final

import orjson
import pytest

from admitq.integrations.base import Integration
from admitq.integrations.registry import load_integrations, select_enabled
from admitq.serving.http import HttpRequest, route_by_path
from admitq_api.configuration import load_configuration
from admitq_api.feature_gates import FeatureGates
from admitq_api.json_objects import with_value
from admitq_api.labels import COMPAT_GROUP, names_for
from admitq_webhooks.routes import CREATE, CREATE_UPDATE, review_handlers, webhook_routes
from tests.unit.integrations.examples import examples_of
from tests.unit.webhooks.support import NAMES, FakeLookups, policy, post, review

OWN_KINDS: Final = {"kueue-x-k8s-io-v1beta2": ("clusterqueue", "resourceflavor", "workload")}
MUTATED_ON_UPDATES: Final = {
    "apps-v1": ("deployment", "statefulset"),
    "leaderworkerset-x-k8s-io-v1": ("leaderworkerset",),
}
JOB_KINDS: Final = {
    "-v1": ("pod",),
    "batch-v1": ("job",),
    "jobset-x-k8s-io-v1alpha2": ("jobset",),
    "kubeflow-org-v1": ("jaxjob", "paddlejob", "pytorchjob", "tfjob", "xgboostjob"),
    "kubeflow-org-v2beta1": ("mpijob",),
    "ray-io-v1": ("raycluster", "rayjob", "rayservice"),
    "sparkoperator-k8s-io-v1beta2": ("sparkapplication",),
    "trainer-kubeflow-org-v1alpha1": ("trainjob",),
    "workload-codeflare-dev-v1beta2": ("appwrapper",),
}
"""Kinds by group and version, in the form of paths (semantics, Webhook registration)."""


def _paths(verb: str, *kinds: dict[str, tuple[str, ...]]) -> set[str]:
    return {
        f"/{verb}-{group_version}-{kind}"
        for table in kinds
        for group_version, listed in table.items()
        for kind in listed
    }


MUTATING = _paths("mutate", OWN_KINDS, JOB_KINDS, MUTATED_ON_UPDATES)
VALIDATING = {
    *_paths("validate", OWN_KINDS, JOB_KINDS, MUTATED_ON_UPDATES),
    "/validate-kueue-x-k8s-io-v1beta2-cohort",
}
ADDITIONAL_PATHS: Final = ("/validate--v1-pod-resize", "/validate--v1-pod-marks")
"""Paths that Kueue does not have (docs/guides/from-kueue.md)."""
KUEUE_NAMES = names_for(COMPAT_GROUP)


def test_kueue_group_paths_and_operations_are_those_of_a_kueue_installation() -> None:
    declared = {route.path(KUEUE_NAMES): route for route in webhook_routes(KUEUE_NAMES, load_integrations())}
    assert [declared.pop(path).operations for path in ADDITIONAL_PATHS] == [("UPDATE",), ("UPDATE",)]
    assert set(declared) == MUTATING | VALIDATING
    assert (len(MUTATING), len(VALIDATING)) == (21, 22)
    updates = _paths("mutate", MUTATED_ON_UPDATES)
    for path, route in declared.items():
        assert route.operations == (CREATE_UPDATE if path in VALIDATING | updates else CREATE), path
    assert "workloads/status" in declared["/validate-kueue-x-k8s-io-v1beta2-workload"].resources


async def test_paths_of_disabled_frameworks_allow_every_review() -> None:
    frameworks = load_configuration("").integrations.frameworks
    enabled = select_enabled(frameworks, FeatureGates.from_mapping({}))
    served = review_handlers(
        policy(names=KUEUE_NAMES, integrations=enabled), FakeLookups(unavailable=True), load_integrations()
    )
    assert set(served) == MUTATING | VALIDATING | {*ADDITIONAL_PATHS}
    for kind in set(load_integrations()) - set(enabled):
        obj = {"metadata": {"name": "x", "labels": {KUEUE_NAMES.queue_name: "No Name"}}}
        for verb in ("mutate", "validate"):
            path = KUEUE_NAMES.webhook_path(verb, *kind.gvk)
            answer = await route_by_path(served)(
                HttpRequest("POST", path, body=orjson.dumps(review(obj, gvk=kind.gvk)))
            )
            assert orjson.loads(answer.body)["response"] == {"uid": "the-uid", "allowed": True}, path


def _invalid_specs() -> dict[str, Any]:
    flavors = [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1}]}]
    duplicate_groups = [{"coveredResources": ["cpu"], "flavors": flavors}] * 2
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"pods": "1"}}}]
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": containers}}}
    return {
        "ClusterQueue": {"resourceGroups": duplicate_groups},
        "Cohort": {"resourceGroups": duplicate_groups},
        "ResourceFlavor": {"nodeLabels": {"no key": "x"}},
        "Workload": {"podSets": [pod_set]},
    }


@pytest.mark.parametrize(("kind", "spec"), _invalid_specs().items())
async def test_invalid_own_object_is_rejected_as_forbidden(kind: str, spec: dict[str, Any]) -> None:
    path = NAMES.webhook_path("validate", NAMES.group, NAMES.version, kind)
    served = review_handlers(policy(), FakeLookups(), load_integrations())
    obj = {"metadata": {"name": "x"}, "spec": spec}
    _, response_body = await post(served[path], path, review(obj, gvk=(NAMES.group, NAMES.version, kind)))
    _assert_forbidden(response_body)


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.framework) for kind in load_integrations()])
async def test_invalid_job_of_every_kind_is_rejected_as_forbidden(kind: Integration) -> None:
    path = NAMES.webhook_path("validate", *kind.gvk)
    served = review_handlers(policy(integrations=load_integrations()), FakeLookups(), load_integrations())
    obj = copy.deepcopy(examples_of(kind.api_version, kind.kind)[0])
    obj = with_value(obj, ("metadata", "labels"), {NAMES.queue_name: "No Name", NAMES.managed: "true"})
    _, response_body = await post(served[path], path, review(obj, gvk=kind.gvk))
    _assert_forbidden(response_body)


def _assert_forbidden(response_body: bytes) -> None:
    response = orjson.loads(response_body)["response"]
    assert response["allowed"] is False
    assert (response["status"]["code"], response["status"]["reason"]) == (403, "Forbidden")
