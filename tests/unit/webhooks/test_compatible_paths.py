"""Webhook configurations of another installation find their paths, and refusals have the right class."""

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

OURS: Final = {"kueue-x-k8s-io-v1beta2": ("clusterqueue", "resourceflavor", "workload")}
ON_UPDATES_TOO: Final = {
    "apps-v1": ("deployment", "statefulset"),
    "leaderworkerset-x-k8s-io-v1": ("leaderworkerset",),
}
JOBS: Final = {
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
"""Kinds by group and version, as paths have them (semantics, Webhook registration)."""


def _paths(verb: str, *kinds: dict[str, tuple[str, ...]]) -> set[str]:
    return {f"/{verb}-{of}-{kind}" for table in kinds for of, listed in table.items() for kind in listed}


MUTATING = _paths("mutate", OURS, JOBS, ON_UPDATES_TOO)
VALIDATING = {*_paths("validate", OURS, JOBS, ON_UPDATES_TOO), "/validate-kueue-x-k8s-io-v1beta2-cohort"}
ONLY_OURS: Final = ("/validate--v1-pod-resize", "/validate--v1-pod-marks")
"""Paths that only we ask at (docs/guides/from-kueue.md)."""
NAMES_THERE = names_for(COMPAT_GROUP)


def test_the_paths_and_operations_of_the_group_are_those_that_its_users_installed() -> None:
    declared = {one.path(NAMES_THERE): one for one in webhook_routes(NAMES_THERE, load_integrations())}
    assert [declared.pop(path).operations for path in ONLY_OURS] == [("UPDATE",), ("UPDATE",)]
    assert set(declared) == MUTATING | VALIDATING
    assert (len(MUTATING), len(VALIDATING)) == (21, 22)
    updates = _paths("mutate", ON_UPDATES_TOO)
    for path, one in declared.items():
        assert one.operations == (CREATE_UPDATE if path in VALIDATING | updates else CREATE), path
    assert "workloads/status" in declared["/validate-kueue-x-k8s-io-v1beta2-workload"].resources


async def test_with_the_default_frameworks_every_other_path_lets_pass() -> None:
    frameworks = load_configuration("").integrations.frameworks
    on = select_enabled(frameworks, FeatureGates.from_mapping({}))
    served = review_handlers(
        policy(names=NAMES_THERE, integrations=on), FakeLookups(broken=True), load_integrations()
    )
    assert set(served) == MUTATING | VALIDATING | {*ONLY_OURS}
    for one in set(load_integrations()) - set(on):
        obj = {"metadata": {"name": "x", "labels": {NAMES_THERE.queue_name: "No Name"}}}
        for verb in ("mutate", "validate"):
            path = NAMES_THERE.webhook_path(verb, *one.gvk)
            answer = await route_by_path(served)(
                HttpRequest("POST", path, body=orjson.dumps(review(obj, gvk=one.gvk)))
            )
            assert orjson.loads(answer.body)["response"] == {"uid": "the-uid", "allowed": True}, path


def _refused_of_ours() -> dict[str, Any]:
    flavors = [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1}]}]
    twice = [{"coveredResources": ["cpu"], "flavors": flavors}] * 2
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"pods": "1"}}}]
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": containers}}}
    return {
        "ClusterQueue": {"resourceGroups": twice},
        "Cohort": {"resourceGroups": twice},
        "ResourceFlavor": {"nodeLabels": {"no key": "x"}},
        "Workload": {"podSets": [pod_set]},
    }


@pytest.mark.parametrize(("kind", "spec"), _refused_of_ours().items())
async def test_webhooks_refuse_objects_of_ours_as_forbidden(kind: str, spec: dict[str, Any]) -> None:
    path = NAMES.webhook_path("validate", NAMES.group, NAMES.version, kind)
    served = review_handlers(policy(), FakeLookups(), load_integrations())
    obj = {"metadata": {"name": "x"}, "spec": spec}
    _, answered = await post(served[path], path, review(obj, gvk=(NAMES.group, NAMES.version, kind)))
    _is_forbidden(answered)


@pytest.mark.parametrize("kind", [pytest.param(one, id=one.framework) for one in load_integrations()])
async def test_webhooks_refuse_jobs_of_every_kind_as_forbidden(kind: Integration) -> None:
    path = NAMES.webhook_path("validate", *kind.gvk)
    served = review_handlers(policy(integrations=load_integrations()), FakeLookups(), load_integrations())
    obj = copy.deepcopy(examples_of(kind.api_version, kind.kind)[0])
    obj = with_value(obj, ("metadata", "labels"), {NAMES.queue_name: "No Name", NAMES.managed: "true"})
    _, answered = await post(served[path], path, review(obj, gvk=kind.gvk))
    _is_forbidden(answered)


def _is_forbidden(answered: bytes) -> None:
    response = orjson.loads(answered)["response"]
    assert response["allowed"] is False
    assert (response["status"]["code"], response["status"]["reason"]) == (403, "Forbidden")
