"""Stories of the ProvisioningRequest check on the real control plane. The tests play the autoscaler."""

import re
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from admitq.controllers.provisioning.requests import PROVISIONING_REQUESTS
from admitq.core.model import CheckState
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS, POD_TEMPLATES, Resource
from admitq.workloads.admission_check_reports import AdmissionCheckReport
from admitq_api.json_objects import value_at, with_value
from admitq_api.labels import DEFAULT_GROUP
from localcluster import crds
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.controlplane.conftest import StartCheckController, controller_of
from tests.controlplane.hosts import (
    RACK,
    TEMPLATE,
    assigned_hosts,
    create_flavor,
    two_racks,
    until_on_hosts,
)
from tests.controlplane.stage import Stage, condition_of

MANIFESTS = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "provisioning-requests.md"
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", namespaced=True)
QUICK = {"backoffLimitCount": 1, "backoffBaseSeconds": 1, "backoffMaxSeconds": 1}
CLASS = "autoscaling.x-k8s.io/provisioning-class-name"
CONSUME = "autoscaling.x-k8s.io/consume-provisioning-request"


@dataclass
class Autoscaler:
    """Reads requests and answers them, as an autoscaler does."""

    stage: Stage

    async def requests(self) -> dict[str, dict[str, Any]]:
        """The existing requests, by name."""
        items, _ = await self.stage.client.list(PROVISIONING_REQUESTS, self.stage.namespace)
        return {one["metadata"]["name"]: one for one in items if "deletionTimestamp" not in one["metadata"]}

    async def request(self, attempt: int = 1, job: str = "j", check: str = "check") -> dict[str, Any]:
        """Wait for the request of an attempt that owns its PodTemplates, and return it."""

        async def found() -> dict[str, Any] | None:
            workload = (await self.stage.workload(job))["metadata"]["name"]
            one = (await self.requests()).get(f"{workload}-{self.stage.own(check)}-{attempt}")
            return one if one and all([await self.is_owner(one, it) for it in templates_of(one)]) else None

        return await until_found(found, f"attempt {attempt} for {job}")

    async def is_owner(self, request: dict[str, Any], template: str) -> bool:
        """Whether the request is the controller of a PodTemplate."""
        [owner] = (await self.stage.get(POD_TEMPLATES, template))["metadata"]["ownerReferences"]
        return owner["uid"] == request["metadata"]["uid"]

    async def answer(
        self, request: dict[str, Any], *conditions: str, message: str = "m", **details: str
    ) -> None:
        """Set conditions of a request; one that begins with ``!`` is False."""
        name = request["metadata"]["name"]
        listed = [
            {
                "type": one.removeprefix("!"),
                "status": str(not one.startswith("!")),
                "reason": "Reported",
                "message": message,
                "lastTransitionTime": "2030-01-01T00:00:00Z",
            }
            for one in conditions
        ]
        status = {"conditions": listed, "provisioningClassDetails": details}
        await self.stage.change(PROVISIONING_REQUESTS, name, {"status": status}, "status")

    async def until_requests(self, *names: str) -> None:
        """Wait until exactly these requests exist."""

        async def found() -> set[str]:
            return set(await self.requests())

        await self.stage.until(found, set(names))


async def until_found(read: Callable[[], Awaitable[dict[str, Any] | None]], what: str) -> dict[str, Any]:
    """Wait until a read returns an object, and return it."""
    found = await eventually(read, what=what)
    assert found is not None
    return found


def templates_of(request: dict[str, Any]) -> list[str]:
    return [one["podTemplateRef"]["name"] for one in request["spec"]["podSets"]]


@pytest.fixture(scope="module")
def served(definitions: Callable[[list[str]], None]) -> None:
    """Install the CRD of ProvisioningRequests."""
    definitions([crds.PROVISIONING_REQUESTS])


@pytest.fixture
async def autoscaler(stage: Stage, served: None) -> AsyncGenerator[Autoscaler]:
    yield Autoscaler(stage)
    configs = stage.kinds.provisioning_request_configs
    items, _ = await stage.client.list(configs)
    for item in items:
        if item["metadata"]["name"].endswith(stage.namespace):
            await stage.client.delete(configs, item["metadata"]["name"])


async def config(stage: Stage, name: str = "check", **spec: Any) -> None:
    """Create a ProvisioningRequestConfig."""
    full = {"provisioningClassName": "class.example.com", "retryStrategy": QUICK, **spec}
    await stage.create(stage.kinds.provisioning_request_configs, stage.own(name), {"spec": full})


async def check(stage: Stage, name: str = "check") -> None:
    """Create an AdmissionCheck and its config with the same name."""
    parameters = {
        "apiGroup": stage.names.group,
        "kind": "ProvisioningRequestConfig",
        "name": stage.own(name),
    }
    spec = {"controllerName": stage.names.provisioning_controller, "parameters": parameters}
    await stage.create(stage.kinds.admission_checks, stage.own(name), {"spec": spec})


async def queues(stage: Stage, *names: str) -> None:
    """Create a LocalQueue with a ClusterQueue that has these checks."""
    listed = [{"name": stage.own(name)} for name in names]
    await stage.queues(admissionChecksStrategy={"admissionChecks": listed})


async def ready_queues(stage: Stage, **spec: Any) -> None:
    """Create a LocalQueue with a ClusterQueue that has a check with its config."""
    await config(stage, **spec)
    await check(stage)
    await queues(stage, "check")


async def listed(stage: Stage, job: str = "j") -> dict[str, Any]:
    """The one check that a Job's Workload lists."""
    [found] = value_at(await stage.workload(job), ("status", "admissionChecks"), [{}])
    return found


def until_state(stage: Stage, state: str, message: str) -> Any:
    async def found() -> tuple[Any, Any]:
        one = await listed(stage)
        return one.get("state"), one.get("message")

    return stage.until(found, (state, message))


async def until_workload_event(stage: Stage, reason: str, note: str, job: str = "j") -> None:
    await stage.until_event("Workload", (await stage.workload(job))["metadata"]["name"], reason, note)


# --- the guide ------------------------------------------------------------------------------------


@pytest.mark.core
async def test_provisioning_manifests_of_the_guide_run_a_job_on_new_nodes(
    stage: Stage, autoscaler: Autoscaler, guide: list[dict[str, Any]]
) -> None:
    for manifest in guide:
        await apply(stage, manifest)

    async def found() -> dict[str, Any] | None:
        return next(iter((await autoscaler.requests()).values()), None)

    await stage.until_workload_exists("train")
    request = await until_found(found, "a ProvisioningRequest")
    name = f"{(await stage.workload('train'))['metadata']['name']}-gpu-nodes-1"
    assert request["metadata"]["name"] == name
    assert request["spec"] == {
        "provisioningClassName": "atomic-scale-up.kubernetes.io",
        "parameters": {"ValidUntilSeconds": "600", "MaxRunDurationSeconds": "3600"},
        "podSets": [{"podTemplateRef": {"name": f"ppt-{name}-main"}, "count": 2}],
    }
    template = (await stage.get(POD_TEMPLATES, f"ppt-{name}-main"))["template"]["spec"]
    assert template["containers"][0]["resources"]["requests"] == {"cpu": "1", "example.com/gpu": "1"}
    await autoscaler.answer(request, "Accepted", "Provisioned", NodeGroup="group-7")
    await stage.until_running("train")
    pods = (await stage.get(JOBS, "train"))["spec"]["template"]
    assert pods["spec"]["nodeSelector"] == {"example.com/node-group": "group-7"}
    assert pods["metadata"]["annotations"][CONSUME] == name
    assert pods["metadata"]["annotations"][CLASS] == "atomic-scale-up.kubernetes.io"


@pytest.fixture
async def guide(stage: Stage) -> AsyncGenerator[list[dict[str, Any]]]:
    """The manifests of the guide, in order. Cluster-scoped objects are deleted afterwards."""
    text = GUIDE.read_text().replace(DEFAULT_GROUP, stage.names.group)
    blocks = MANIFESTS.findall(text)
    found = [one for block in blocks for one in yaml.load_all(block, Loader=yaml.CSafeLoader)]
    assert found
    yield found
    for manifest in reversed(found):
        resource = resource_of(stage, manifest)
        if not resource.namespaced:
            await stage.client.delete(resource, manifest["metadata"]["name"])


def resource_of(stage: Stage, manifest: dict[str, Any]) -> Resource:
    kinds = stage.kinds
    known = (
        kinds.provisioning_request_configs,
        kinds.admission_checks,
        kinds.resource_flavors,
        kinds.cluster_queues,
        kinds.local_queues,
        JOBS,
    )
    return next(one for one in known if one.kind == manifest["kind"])


async def apply(stage: Stage, manifest: dict[str, Any]) -> None:
    await stage.create(resource_of(stage, manifest), manifest["metadata"]["name"], manifest)


# --- the answers of an autoscaler -----------------------------------------------------------------


async def test_accepted_request_reports_its_estimated_time(stage: Stage, autoscaler: Autoscaler) -> None:
    await ready_queues(stage)
    await stage.job()
    request = await autoscaler.request()
    name = request["metadata"]["name"]
    await until_workload_event(stage, "ProvisioningRequestCreated", f'Created ProvisioningRequest: "{name}"')
    assert request["metadata"]["labels"] == {stage.names.managed: "true"}
    await autoscaler.answer(request, "Accepted", "!Provisioned", message="in 5 minutes")
    await until_state(stage, "Pending", "in 5 minutes")
    await stage.until_event("Job", "j", "UpdatedAdmissionCheck", f"{stage.own('check')}: in 5 minutes")
    await autoscaler.answer(request, "Accepted", "Provisioned", message="done")
    note = f"Admission check {stage.own('check')} updated state from Pending to Ready with message: done"
    await until_workload_event(stage, "AdmissionCheckUpdated", note)
    await stage.until_running()
    assert (await listed(stage))["podSetUpdates"] == [
        {"name": "main", "annotations": {CONSUME: name, CLASS: "class.example.com"}}
    ]


async def test_c17_failed_request_is_retried_and_its_retry_count_survives_the_rejection(
    stage: Stage, autoscaler: Autoscaler
) -> None:
    """Attempts also count for a check of one flavor, which does not apply while no flavor is assigned."""
    await config(stage)
    await check(stage)
    for flavor in ("f", "g"):
        await stage.flavor(flavor)
    rule = {"name": stage.own("check"), "onFlavors": [stage.own("f")]}
    await stage.cluster_queue(flavors=("f", "g"), admissionChecksStrategy={"admissionChecks": [rule]})
    await stage.local_queue()
    await stage.job()
    first = await autoscaler.request()
    await autoscaler.answer(first, "Failed", message="no nodes")
    own = stage.own("check")
    message = "Retrying after failure: no nodes"
    await until_workload_event(
        stage,
        "AdmissionCheckUpdated",
        f"Admission check {own} updated state from Pending to Retry with message: {message}",
    )
    evicted = f'Evicted due to AdmissionCheck in Retry state: "{own}" ({message})'
    await until_workload_event(stage, "EvictedDueToAdmissionCheck", evicted)
    second = await autoscaler.request(2)
    await autoscaler.until_requests(second["metadata"]["name"])
    assert (await listed(stage))["retryCount"] == 1
    await autoscaler.answer(second, "Failed", message="still none")
    await stage.until_condition("QuotaReserved", "Deactivated")
    note = f'Deactivated due to AdmissionCheck in Rejected state: "{own}" (still none)'
    await until_workload_event(stage, "AdmissionCheckRejected", note)
    await autoscaler.until_requests()
    # The retry count survives the rejection: the Workload continues with the next attempt.
    assert (await listed(stage))["retryCount"] == 1
    name = (await stage.workload())["metadata"]["name"]
    await stage.change(stage.kinds.workloads, name, {"spec": {"active": True}})
    await autoscaler.answer(await autoscaler.request(2), "Provisioned")
    await stage.until_running()


async def test_running_job_is_deactivated_when_its_capacity_is_revoked(
    stage: Stage, autoscaler: Autoscaler
) -> None:
    await ready_queues(stage)
    await stage.job()
    request = await autoscaler.request()
    await autoscaler.answer(request, "Provisioned")
    await stage.until_running()
    await autoscaler.answer(request, "Provisioned", "CapacityRevoked", message="taken back")
    await stage.until_running(running=False)
    await stage.until_condition("QuotaReserved", "Deactivated")
    message = f'AdmissionCheck in Rejected state: "{stage.own("check")}" (taken back)'
    evicted = await stage.condition("Evicted")
    assert evicted == (
        "True",
        "DeactivatedDueToAdmissionCheck",
        f"The workload is deactivated due to {message}",
    )


async def test_expired_booking_causes_a_retry_only_before_admission(
    stage: Stage, autoscaler: Autoscaler, start_controller: StartCheckController
) -> None:
    await config(stage)
    await check(stage)
    spec = {"controllerName": controller_of(stage)}
    await stage.create(stage.kinds.admission_checks, stage.own("more"), {"spec": spec})
    await queues(stage, "check", "more")
    ready_checks: set[str] = set()
    other_controller = start_controller(
        lambda _, listed: AdmissionCheckReport(listed["name"], CheckState.READY) if ready_checks else None
    )
    await stage.job()
    first = await autoscaler.request()
    await autoscaler.answer(first, "Provisioned")
    await autoscaler.answer(first, "Provisioned", "BookingExpired", message="too late")
    own = stage.own("check")
    evicted = (
        f'Evicted due to AdmissionCheck in Retry state: "{own}" (Retrying after booking expired: too late)'
    )
    await until_workload_event(stage, "EvictedDueToAdmissionCheck", evicted)
    second = await autoscaler.request(2)
    await autoscaler.answer(second, "Provisioned")
    ready_checks.add("more")
    other_controller.requeue_workloads()
    await stage.until_running()
    await autoscaler.answer(second, "Provisioned", "BookingExpired")
    await stage.client.delete(PROVISIONING_REQUESTS, second["metadata"]["name"], stage.namespace)
    await autoscaler.until_requests()
    assert [one["state"] for one in (await stage.workload())["status"]["admissionChecks"]] == ["Ready"] * 2
    assert (await stage.get(JOBS, "j"))["spec"]["suspend"] is False


# --- content of requests ---------------------------------------------------------------------------


async def test_check_is_ready_without_request_when_no_managed_resource_is_requested(
    stage: Stage, autoscaler: Autoscaler
) -> None:
    await ready_queues(stage, managedResources=["example.com/gpu"])
    await stage.job()
    await stage.until_running()
    found = await listed(stage)
    assert (found["state"], found["message"]) == ("Ready", "the provisioning request is not needed")
    assert "podSetUpdates" not in found
    assert await autoscaler.requests() == {}


def workload_of(stage: Stage, *pod_sets: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"queueName": "lq", "podSets": list(pod_sets)}}


def pod_set(name: str, image: str, cpu: str = "500m", count: int = 1) -> dict[str, Any]:
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}
    return {"name": name, "count": count, "template": {"spec": {"containers": [container]}}}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (None, [("a", 1), ("b", 1), ("c", 1)]),
        ("IdenticalPodTemplates", [("a", 2), ("c", 1)]),
        ("IdenticalWorkloadSchedulingRequirements", [("a", 3)]),
    ],
)
async def test_podsets_of_a_request_are_merged_by_the_policy(
    stage: Stage, autoscaler: Autoscaler, policy: str | None, expected: list[tuple[str, int]]
) -> None:
    await ready_queues(stage, podSetMergePolicy=policy)
    pod_sets = [pod_set("a", "one"), pod_set("b", "one"), pod_set("c", "other", cpu="0.5")]
    await stage.create(stage.kinds.workloads, "w", workload_of(stage, *pod_sets))
    name = f"w-{stage.own('check')}-1"

    async def found() -> dict[str, Any] | None:
        return (await autoscaler.requests()).get(name)

    request = await until_found(found, f"request {name}")
    assert [(one["podTemplateRef"]["name"], one["count"]) for one in request["spec"]["podSets"]] == [
        (f"ppt-{name}-{first}", count) for first, count in expected
    ]


async def test_long_request_name_is_truncated(stage: Stage, autoscaler: Autoscaler) -> None:
    await ready_queues(stage)
    long = "w" * 250
    await stage.create(stage.kinds.workloads, long, workload_of(stage, pod_set("main", "one")))

    async def found() -> dict[str, Any] | None:
        return next(iter((await autoscaler.requests()).values()), None)

    request = await until_found(found, "a ProvisioningRequest")
    name = request["metadata"]["name"]
    assert (len(name), name[:248]) == (253, f"{long[:247]}-")
    await autoscaler.answer(request, "Provisioned")

    async def admitted() -> Any:
        return condition_of(await stage.get(stage.kinds.workloads, long), "Admitted")

    await stage.until(admitted, ("True", "Admitted", "The workload is admitted"))


# --- changes of other objects ---------------------------------------------------------------------


async def test_c17_check_without_its_config_is_inactive_and_deletes_its_request(
    stage: Stage, autoscaler: Autoscaler
) -> None:
    await check(stage)
    await queues(stage, "check")
    name, configs = stage.own("check"), stage.kinds.provisioning_request_configs

    async def active() -> Any:
        return condition_of(await stage.get(stage.kinds.admission_checks, name), "Active")

    missing = f'provisioningrequestconfigs.{stage.names.group} "{name}" not found'
    await stage.until(active, ("False", "BadParametersRef", missing))
    await stage.job()
    await stage.until_condition("QuotaReserved", "Suspended")
    await config(stage)
    await stage.until(active, ("True", "Active", "The admission check is active"))
    await autoscaler.request()
    await stage.client.delete(configs, name)
    await until_state(stage, "Pending", "the check is not active")
    await stage.until(active, ("False", "BadParametersRef", missing))
    await autoscaler.until_requests()
    await config(stage)
    await until_state(stage, "Pending", "")
    await autoscaler.answer(await autoscaler.request(), "Provisioned")
    await stage.until_running()


async def test_request_is_recreated_when_its_config_changes(stage: Stage, autoscaler: Autoscaler) -> None:
    await ready_queues(stage, parameters={"a": "1"})
    await stage.job()
    former = await autoscaler.request()
    configs = stage.kinds.provisioning_request_configs
    await stage.change(configs, stage.own("check"), {"spec": {"parameters": {"a": "2", "b": "3"}}})

    async def parameters() -> Any:
        return (await autoscaler.request())["spec"]["parameters"]

    await stage.until(parameters, {"a": "2", "b": "3"})
    request = await autoscaler.request()
    assert request["metadata"]["name"] == former["metadata"]["name"]
    await autoscaler.answer(request, "Provisioned")
    await stage.until_running()


@pytest.mark.parametrize("ended", ["evicted", "finished"])
async def test_request_is_deleted_when_its_workload_is_evicted_or_finished(
    stage: Stage, autoscaler: Autoscaler, ended: str
) -> None:
    await ready_queues(stage)
    await stage.job(seconds=0.5 if ended == "finished" else None)
    await autoscaler.answer(await autoscaler.request(), "Provisioned")
    if ended == "finished":
        await stage.until_finished()
        await autoscaler.until_requests()
        return
    await stage.until_running()
    patch = {"spec": {"stopPolicy": "HoldAndDrain"}}
    await stage.change(stage.kinds.cluster_queues, stage.own("cq"), patch)
    await autoscaler.until_requests()
    await stage.until_running(running=False)
    await stage.change(stage.kinds.cluster_queues, stage.own("cq"), {"spec": {"stopPolicy": "None"}})
    await autoscaler.answer(await autoscaler.request(), "Provisioned")
    await stage.until_running()


# --- failed creations ----------------------------------------------------------------------------


async def test_refused_pod_template_is_reported_and_retried(stage: Stage, autoscaler: Autoscaler) -> None:
    await stage.create(QUOTAS, "q", {"spec": {"hard": {"count/podtemplates": "0"}}})

    async def is_in_force() -> bool:
        return bool(value_at(await stage.get(QUOTAS, "q"), ("status", "hard")))

    await stage.until(is_in_force)
    await ready_queues(stage)
    await stage.job()

    async def message() -> str:
        return (await listed(stage)).get("message", "")

    await stage.until_workload_exists()
    template = f"ppt-{(await stage.workload())['metadata']['name']}-{stage.own('check')}-1-main"
    refused = await eventually(message, what="a message of the check")
    assert refused.startswith(f'Error creating PodTemplate "{template}": ')
    assert "exceeded quota" in refused
    await until_workload_event(stage, "FailedCreate", refused)
    await stage.client.delete(QUOTAS, "q", stage.namespace)
    await autoscaler.answer(await autoscaler.request(), "Provisioned")
    await stage.until_running()


def managed_template(stage: Stage) -> dict[str, Any]:
    """A template that an earlier request of the same name left."""
    spec = {"containers": [{"name": "c", "image": "former"}]}
    return {"metadata": {"labels": {stage.names.managed: "true"}}, "template": {"spec": spec}}


def unmanaged_template(stage: Stage) -> dict[str, Any]:
    """A template without the label of managed objects."""
    return {key: value for key, value in managed_template(stage).items() if key != "metadata"}


@pytest.mark.parametrize(("template", "is_replaced"), [(managed_template, True), (unmanaged_template, False)])
async def test_existing_pod_template_is_replaced_only_if_it_is_managed(
    stage: Stage, autoscaler: Autoscaler, template: Callable[[Stage], dict[str, Any]], is_replaced: bool
) -> None:
    await ready_queues(stage)
    name = f"ppt-w-{stage.own('check')}-1-main"
    await stage.create(POD_TEMPLATES, name, template(stage))
    await stage.create(stage.kinds.workloads, "w", workload_of(stage, pod_set("main", "one")))

    async def found() -> list[str]:
        try:
            pods = (await stage.get(POD_TEMPLATES, name))["template"]["spec"]
        except ApiError as error:
            if error.is_not_found:
                return []
            raise
        return [pods["containers"][0]["image"]]

    if is_replaced:
        await stage.until(found, ["one"])
        return
    note = f'Error creating PodTemplate "{name}": podtemplates "{name}" already exists'
    await stage.until_event("Workload", "w", "FailedCreate", note)
    assert await found() == ["former"]


# --- topologies -----------------------------------------------------------------------------------


async def test_pods_are_placed_in_a_topology_once_their_nodes_are_provisioned(
    stage: Stage, autoscaler: Autoscaler, admitq_running: Installation
) -> None:
    await config(stage)
    await check(stage)
    await create_flavor(stage)
    checks = {"admissionChecks": [{"name": stage.own("check")}]}
    await stage.cluster_queue(cpu=100, admissionChecksStrategy=checks)
    await stage.local_queue()
    annotations = {stage.names.podset_required_topology: RACK}
    await stage.job(pods=3, template=with_value(TEMPLATE, ("metadata", "annotations"), annotations))

    async def delayed() -> list[Any]:
        parts = value_at(await stage.workload(), ("status", "admission", "podSetAssignments"), [])
        return [part.get("delayedTopologyRequest") for part in parts]

    await autoscaler.answer(await autoscaler.request(), "Accepted", "Provisioned")
    assert await delayed() == ["Pending"]
    room = f'topology "{stage.own("t")}" doesn\'t allow to fit any of 3 pod(s). Total nodes: 0'
    note = f"couldn't assign flavors to pod set main: {room}"
    await until_workload_event(stage, "SecondPassFailed", note)
    async with two_racks(stage, admitq_running) as hosts:
        nodes = await until_on_hosts(stage, "j", 3)
        assert Counter(nodes) == await assigned_hosts(stage, "j")
        assert set(nodes) <= set(hosts[:2]) or set(nodes) <= set(hosts[2:])
        assert await delayed() == ["Ready"]
