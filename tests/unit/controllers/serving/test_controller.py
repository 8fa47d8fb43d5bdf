"""The controller of serving objects: errors, orphaned pods and stores."""

from typing import Any

import pytest

from admitq.controllers import registry
from admitq.controllers.indexes import BY_OWNER, resource_of
from admitq.controllers.serving.controller import ServingController
from admitq.integrations.kinds.statefulset import STATEFUL_SET
from admitq.integrations.registry import load_integrations
from admitq.runtime.errors import ApiError, PermanentRejection
from admitq.runtime.resources import PODS, STATEFUL_SETS
from admitq.runtime.store import Key
from tests.unit.controllers.builders import KINDS, NAMES, admitted, condition_of, settings_with
from tests.unit.controllers.serving.objects import SERVING, of_set, stateful_set
from tests.unit.controllers.world import World


@pytest.mark.parametrize(
    ("error", "raised", "events"),
    [
        (
            ApiError(422, "Invalid", "no containers"),
            PermanentRejection,
            [("s", "ErrWorkloadCompose", "no containers")],
        ),
        (ApiError(403, "Forbidden", "denied"), ApiError, [("s", "ErrWorkloadCompose", "denied")]),
        (ApiError(500, "InternalError", "later"), ApiError, []),
    ],
)
async def test_d24_refused_workload_is_reported_and_retried_only_if_the_refusal_may_end(
    error: ApiError, raised: type[Exception], events: list[Any]
) -> None:
    world = World(SERVING)
    world.put(resource_of(STATEFUL_SET), stateful_set(resourceVersion="1"))
    world.client.fails["create"] = error
    assert STATEFUL_SET.serving is not None
    controller = ServingController(world.ctx, STATEFUL_SET, STATEFUL_SET.serving)
    with pytest.raises(raised, match=error.message):
        await controller.reconcile(Key("ns", "s"))
    assert world.recorder.events == events


async def test_workload_of_a_deleted_set_keeps_its_quota_while_orphaned_pods_run() -> None:
    world = World(SERVING)
    assert STATEFUL_SET.serving is not None
    held = of_set(admitted(), stateful_set())
    name = held["metadata"]["name"]
    world.put(KINDS.workloads, held)
    orphan = {
        "metadata": {"name": "s-0", "namespace": "ns", "annotations": {NAMES.workload: name}},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running"},
    }
    world.client.api["pods", "s-0"] = orphan
    key = Key("ns", "s")
    assert await ServingController(world.ctx, STATEFUL_SET, STATEFUL_SET.serving).reconcile(key) == 1.0
    stored = world.get(KINDS.workloads, name)
    assert condition_of(stored, "PodsOutliveJob")[1] == "PodsRunning"
    assert condition_of(stored, "Finished") is None
    world.client.api.clear()
    await ServingController(world.ctx, STATEFUL_SET, STATEFUL_SET.serving).reconcile(key)
    assert condition_of(world.get(KINDS.workloads, name), "Finished")[1] == "OwnerNotFound"


async def test_terminating_namespace_is_not_reported() -> None:
    world = World(SERVING)
    world.put(resource_of(STATEFUL_SET), stateful_set(resourceVersion="1"))
    body = {"details": {"causes": [{"reason": "NamespaceTerminating"}]}}
    world.client.fails["create"] = ApiError(403, "Forbidden", "is being terminated", body=body)
    assert STATEFUL_SET.serving is not None
    controller = ServingController(world.ctx, STATEFUL_SET, STATEFUL_SET.serving)
    assert await controller.reconcile(Key("ns", "s")) is None
    assert world.recorder.events == []


def test_stores_of_all_job_kinds_are_indexed_by_owner() -> None:
    """A changed admission enqueues the children of jobs of every kind through this index."""
    world = World(settings_with(integrations=load_integrations()))
    table = registry.build_controllers(world.ctx, world.core)
    kinds = {resource_of(integration) for integration in load_integrations()}
    stores = {part.resource: part.indexes for part in table.when_served if part.resource in kinds}
    assert {PODS, STATEFUL_SETS} < stores.keys()
    assert [resource for resource, indexes in stores.items() if BY_OWNER not in indexes] == []
