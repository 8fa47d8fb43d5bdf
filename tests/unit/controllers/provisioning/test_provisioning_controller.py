"""The controller of the ProvisioningRequest check: its writes and its watches."""

from typing import Any

import orjson
import pytest

from admitq.controllers.indexes import BY_OWNER, controller_index_values
from admitq.controllers.provisioning.controller import ProvisioningController
from admitq.controllers.provisioning.requests import PROVISIONING_REQUESTS
from admitq.controllers.provisioning.watches import provisioning_controller
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import POD_TEMPLATES, Resource
from admitq.runtime.store import Key, ObjectChange, Store
from tests.unit.controllers.builders import KINDS, NAMES, reserved, timestamp, workload
from tests.unit.controllers.world import World, cluster_scoped

KEY = Key("ns", "job-j-1")
CHECK = {"name": "c", "state": "Pending", "lastTransitionTime": timestamp(0), "message": ""}
NAME = "job-j-1-c-1"
TEMPLATE = f"ppt-{NAME}-main"


@pytest.fixture
def world() -> World:
    """Return a world with a reserved Workload, its check and config, and the store of requests."""
    result = World()
    result.stores.stores[PROVISIONING_REQUESTS] = Store(
        PROVISIONING_REQUESTS, indexes={BY_OWNER: controller_index_values}
    )
    parameters = {"apiGroup": NAMES.group, "kind": "ProvisioningRequestConfig", "name": "p"}
    spec = {"controllerName": NAMES.provisioning_controller, "parameters": parameters}
    result.put(KINDS.admission_checks, cluster_scoped("c", spec=spec))
    result.put(KINDS.admission_checks, cluster_scoped("other", spec={"controllerName": "example.com/c"}))
    config = cluster_scoped("p", spec={"provisioningClassName": "class"})
    result.put(KINDS.provisioning_request_configs, config)
    result.put(KINDS.resource_flavors, cluster_scoped("f", spec={}))
    result.put(KINDS.workloads, reserved(admissionChecks=[CHECK]))
    return result


async def reconcile_until_settled(world: World) -> float | None:
    """Reconcile the Workload until nothing more is written; return the seconds until the next reconcile."""
    controller = ProvisioningController(world.ctx)
    for _ in range(10):
        before = len(world.client.calls)
        requeue_after = await controller.reconcile(KEY)
        if len(world.client.calls) == before:
            return requeue_after
    raise AssertionError("the controller does not stop writing")


async def test_request_is_created_with_its_templates(world: World) -> None:
    assert await reconcile_until_settled(world) is None
    assert world.calls == [
        f"create podtemplates/{TEMPLATE}",
        f"create provisioningrequests/{NAME}",
        f"patch podtemplates/{TEMPLATE}",
    ]
    [owner] = world.get(POD_TEMPLATES, TEMPLATE)["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("ProvisioningRequest", f"uid-{NAME}")
    note = f'Created ProvisioningRequest: "{NAME}"'
    assert world.recorder.events == [("job-j-1", "ProvisioningRequestCreated", note)]


async def test_creation_that_api_server_rejects_is_reported_and_retried(world: World) -> None:
    world.client.fails["create"] = ApiError(403, "Forbidden", "exceeded quota")
    assert await ProvisioningController(world.ctx).reconcile(KEY) == 10.0
    message = f'Error creating PodTemplate "{TEMPLATE}": exceeded quota'
    assert world.recorder.events == [("job-j-1", "FailedCreate", message)]
    [check] = world.get(KINDS.workloads, "job-j-1")["status"]["admissionChecks"]
    assert check == {**CHECK, "message": message}


async def test_existing_object_that_is_not_in_store_is_retried_without_event(world: World) -> None:
    world.client.fails["create"] = ApiError(409, "AlreadyExists", "already exists")
    assert await ProvisioningController(world.ctx).reconcile(KEY) == 1.0
    assert world.recorder.events == []


@pytest.mark.parametrize(
    ("verb", "error"),
    [("create", ApiError(503, "ServiceUnavailable", "down")), ("patch", ApiError(403, "Forbidden", "no"))],
)
async def test_other_errors_are_raised_for_retry(world: World, verb: str, error: ApiError) -> None:
    world.client.fails[verb] = error
    with pytest.raises(ApiError):
        await reconcile_until_settled(world)


async def test_workload_without_provisioning_check_causes_no_request(world: World) -> None:
    world.put(KINDS.workloads, reserved(name="w", admissionChecks=[{**CHECK, "name": "other"}]))
    controller = ProvisioningController(world.ctx)
    assert await controller.reconcile(Key("ns", "w")) is None
    assert await controller.reconcile(Key("ns", "unknown")) is None
    assert world.calls == []


async def test_active_condition_of_check_is_written_once(world: World) -> None:
    controller = ProvisioningController(world.ctx)
    for name in ("c", "c", "other", "unknown"):
        await controller.reconcile(Key("", name))
    assert world.calls == ["patch admissionchecks/c/status"]


# --- watches --------------------------------------------------------------------------------------


def enqueued(
    world: World, resource: Resource, old: dict[str, Any] | None, new: dict[str, Any] | None
) -> set[str]:
    """Return the keys that a change enqueues."""
    obj: dict[str, Any] = new or old or {}
    key = Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
    change = ObjectChange("modified", key, new, None if old is None else orjson.dumps(old))
    watches = provisioning_controller(world.ctx).spec.watches
    return {str(key) for watch in watches if watch.resource == resource for key in watch.keys(change)}


def owned_by(kind: str, name: str) -> dict[str, Any]:
    owner = {"apiVersion": NAMES.api_version, "kind": kind, "name": name, "controller": True}
    return {"metadata": {"name": "x", "namespace": "ns", "ownerReferences": [owner]}}


def test_changed_workload_with_checks_is_enqueued(world: World) -> None:
    plain, checked = workload(), workload(admissionChecks=[CHECK])
    assert enqueued(world, KINDS.workloads, None, plain) == set()
    assert enqueued(world, KINDS.workloads, plain, checked) == {"ns/job-j-1"}
    assert enqueued(world, KINDS.workloads, checked, plain) == {"ns/job-j-1"}


@pytest.mark.parametrize("resource", [PROVISIONING_REQUESTS, POD_TEMPLATES])
def test_changed_request_or_template_enqueues_its_workload(world: World, resource: Resource) -> None:
    mine, request = owned_by("Workload", "w"), owned_by("ProvisioningRequest", "r")
    assert enqueued(world, resource, None, mine) == {"ns/w"}
    assert enqueued(world, resource, mine, request) == {"ns/w"}
    assert enqueued(world, resource, None, request) == set()


def test_changed_config_enqueues_its_checks_and_their_workloads(world: World) -> None:
    config: Any = world.get(KINDS.provisioning_request_configs, "p")
    assert enqueued(world, KINDS.provisioning_request_configs, None, config) == {"c", "ns/job-j-1"}


def test_changed_check_enqueues_workloads_only_if_its_spec_changed(world: World) -> None:
    check: Any = world.get(KINDS.admission_checks, "c")
    other = {**check, "spec": {"controllerName": "other"}}
    assert enqueued(world, KINDS.admission_checks, None, check) == {"c", "ns/job-j-1"}
    assert enqueued(world, KINDS.admission_checks, check, {**check, "status": {}}) == {"c"}
    assert enqueued(world, KINDS.admission_checks, check, other) == {"c", "ns/job-j-1"}


def test_provisioning_controller_starts_with_all_checks_and_their_workloads(world: World) -> None:
    world.put(KINDS.workloads, workload(name="unchecked"))
    assert {str(key) for key in provisioning_controller(world.ctx).known()} == {"c", "other", "ns/job-j-1"}
