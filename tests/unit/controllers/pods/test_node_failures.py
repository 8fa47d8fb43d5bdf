"""The controller of failed nodes: what it reads and writes, and which changes it reconciles."""

from typing import Any

import orjson
import pytest

from admitq.controllers import registry
from admitq.controllers.controller_specs import ControllerSpec
from admitq.controllers.indexes import BY_HOST, host_of_node
from admitq.controllers.pods.node_failures import NODE_FAILURES
from admitq.controllers.pods.topology_pods import PLACED_PODS, placed_pod_indexes, trim_placed_pod
from admitq.runtime.errors import PermanentRejection
from admitq.runtime.kinds import TOPOLOGY_NODES
from admitq.runtime.store import Key, ObjectChange, Store
from admitq_api.json_objects import value_at, with_value, without_value
from tests.unit.controllers.builders import KINDS, NAMES, settings_with
from tests.unit.controllers.pods.placed_pods import node, placed_workload, pod
from tests.unit.controllers.world import World

WORKLOAD = Key("ns", "job-j-1")
TAINT = {"key": "maintenance", "effect": "NoExecute"}
TOLERATION = {"key": "maintenance", "operator": "Exists"}


@pytest.fixture
def world() -> World:
    result = World()
    pods = Store(
        PLACED_PODS, transform=lambda pod: trim_placed_pod(pod, NAMES), indexes=placed_pod_indexes(NAMES)
    )
    nodes = Store(TOPOLOGY_NODES, indexes={BY_HOST: host_of_node})
    result.stores.stores |= {PLACED_PODS: pods, TOPOLOGY_NODES: nodes}
    result.put(KINDS.workloads, placed_workload("a:2 b:1"))
    result.put(TOPOLOGY_NODES, node("a"), node("b"))
    return result


def complete(world: World) -> None:
    for resource in (PLACED_PODS, TOPOLOGY_NODES):
        world.stores.of(resource).record_progress("5")


def controller(world: World) -> ControllerSpec:
    table = registry.build_controllers(world.ctx, world.core)
    [part] = table.topology_when_served
    [spec] = part.beside
    assert spec.name == NODE_FAILURES
    return spec


def unhealthy(world: World) -> Any:
    return value_at(world.get(KINDS.workloads, "job-j-1"), ("status", "unhealthyNodes"))


# --- reconciling ----------------------------------------------------------------------------------


async def test_failed_host_is_listed_once_its_pods_have_ended(world: World) -> None:
    complete(world)
    runs = pod("p", 0, on="a", node="node-a", phase="Running")
    world.put(PLACED_PODS, runs, pod("w", 1, on="a"))
    reconcile = controller(world).reconcile
    assert await reconcile(WORKLOAD) is None
    assert world.calls == []
    tainted = node("a", TAINT)
    world.put(TOPOLOGY_NODES, with_value(tainted, ("metadata", "resourceVersion"), "8"))
    await reconcile(WORKLOAD)
    assert world.calls == ["patch pods/w/status"]
    assert unhealthy(world) is None
    world.stores.of(PLACED_PODS).remove({**runs, "metadata": {**runs["metadata"], "resourceVersion": "9"}})
    await reconcile(WORKLOAD)
    assert unhealthy(world) == [{"name": "a"}]


@pytest.mark.parametrize(
    ("runs", "listed"), [(True, []), (False, [True, False])], ids=["pods-run", "pods-have-ended"]
)
async def test_flapping_nodes_never_evict_and_list_only_hosts_without_running_pods(
    world: World, runs: bool, listed: list[bool]
) -> None:
    """One node after the other is unready and ready again many times."""
    complete(world)
    if runs:
        on_nodes = [pod(f"p-{host}", 0, on=host, node=f"node-{host}", phase="Running") for host in "ab"]
        world.put(PLACED_PODS, *on_nodes)
    reconcile = controller(world).reconcile
    found: list[bool] = []
    for number in range(20):
        for ready in ("False", "True"):
            changed = node("ab"[number % 2], ready=ready)
            version = str(10 + 2 * number + (ready == "True"))
            world.put(TOPOLOGY_NODES, with_value(changed, ("metadata", "resourceVersion"), version))
            await reconcile(WORKLOAD)
            found.append(bool(unhealthy(world)))
    assert found == (listed or [False, False]) * 20
    conditions = value_at(world.get(KINDS.workloads, "job-j-1"), ("status", "conditions"))
    assert [condition["type"] for condition in conditions if condition["type"] == "Evicted"] == []


async def test_nothing_is_decided_before_all_nodes_and_pods_are_known(world: World) -> None:
    node_a = node("a")
    world.stores.of(TOPOLOGY_NODES).remove(node_a)
    reconcile = controller(world).reconcile
    for resource in (TOPOLOGY_NODES, PLACED_PODS):
        assert await reconcile(WORKLOAD) == 1.0
        world.stores.of(resource).record_progress("5")
    assert world.calls == []
    await reconcile(WORKLOAD)
    assert unhealthy(world) == [{"name": "a"}]


@pytest.mark.parametrize("where", ["template", "flavor", "check"])
async def test_tolerations_of_template_flavor_and_checks_count(world: World, where: str) -> None:
    complete(world)
    workload = placed_workload("a:2 b:1")
    flavor: dict[str, Any] = {
        "metadata": {"name": "f", "uid": "uid-f", "resourceVersion": "1"},
        "spec": {"tolerations": [TOLERATION] if where == "flavor" else []},
    }
    assigned = ("status", "admission", "podSetAssignments", 0, "flavors")
    workload = with_value(workload, assigned, {"cpu": "f"})
    if where == "template":
        template = {"spec": {"tolerations": [TOLERATION]}}
        workload = with_value(workload, ("spec", "podSets", 0, "template"), template)
    if where == "check":
        update = {"name": "main", "tolerations": [TOLERATION]}
        checks = [{"name": "c", "state": "Ready", "podSetUpdates": [update]}]
        workload = with_value(workload, ("status", "admissionChecks"), checks)
    world.put(KINDS.resource_flavors, flavor)
    world.put(KINDS.workloads, with_value(workload, ("metadata", "resourceVersion"), "8"))
    tainted = node("a", TAINT)
    world.put(TOPOLOGY_NODES, with_value(tainted, ("metadata", "resourceVersion"), "8"))
    await controller(world).reconcile(WORKLOAD)
    assert world.calls == []


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("topologyAssignment", "slices"), [], "topologyAssignment"),
        (("flavors",), {"cpu": "missing"}, "missing"),
    ],
)
async def test_malformed_workload_is_quarantined(
    world: World, path: tuple[str, ...], value: Any, message: str
) -> None:
    complete(world)
    at = ("status", "admission", "podSetAssignments", 0, *path)
    changed = with_value(placed_workload(), at, value)
    world.put(KINDS.workloads, with_value(changed, ("metadata", "resourceVersion"), "8"))
    with pytest.raises(PermanentRejection, match=message):
        await controller(world).reconcile(WORKLOAD)


async def test_workload_without_admission_has_no_hosts(world: World) -> None:
    changed = with_value(placed_workload(), ("status", "conditions"), [])
    world.put(KINDS.workloads, with_value(changed, ("metadata", "resourceVersion"), "8"))
    assert await controller(world).reconcile(WORKLOAD) is None


# --- watching -------------------------------------------------------------------------------------


def keys(world: World, watched: int, old: Any, new: Any) -> list[Key]:
    kind = "added" if old is None else "deleted" if new is None else "modified"
    watch = controller(world).watches[watched]
    change = ObjectChange(kind, Key("", "any"), new, None if old is None else orjson.dumps(old))
    assert watch.refreshes(change)
    return list(watch.keys(change))


HEARTBEAT = with_value(node("a"), ("metadata", "resourceVersion"), "9")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, node("a"), [WORKLOAD]),
        (node("a"), None, [WORKLOAD]),
        (node("a"), HEARTBEAT, []),
        (node("a"), node("a", ready="False"), [WORKLOAD]),
        (node("a"), node("a", TAINT), [WORKLOAD]),
        (node("a"), without_value(node("a"), ("metadata", "labels")), [WORKLOAD]),
        (node("c"), node("c", TAINT), []),
        (node("d"), node("d", TAINT), [WORKLOAD]),
    ],
)
def test_node_enqueues_workloads_with_pods_there(
    world: World, old: Any, new: Any, expected: list[Key]
) -> None:
    world.put(PLACED_PODS, pod("waits", on="d"), pod("runs", on="c", node="node-c"))
    assert keys(world, 1, old, new) == expected


@pytest.mark.parametrize(
    ("old", "new", "node_a", "expected"),
    [
        (None, pod("p"), node("a", TAINT), []),
        (None, pod("p", on="a"), node("a"), []),
        (None, pod("p", on="a"), node("a", TAINT), [WORKLOAD]),
        (None, pod("p", on="a"), node("a", ready="False"), [WORKLOAD]),
        (None, pod("p", on="c"), node("a"), [WORKLOAD]),
        (None, pod("p", on="c", workload="other"), node("a"), []),
        (pod("p", on="a"), pod("p", on="a", node="node-a"), node("a", TAINT), []),
        (pod("p", on="a"), pod("p", on="a", node="node-a", deleted=True), node("a", TAINT), [WORKLOAD]),
        (pod("p", on="a", node="node-a"), None, node("a"), []),
        (pod("p", on="a", node="node-a"), None, node("a", TAINT), [WORKLOAD]),
    ],
)
def test_pod_enqueues_its_workload_if_its_host_may_have_failed(
    world: World, old: Any, new: Any, node_a: dict[str, Any], expected: list[Key]
) -> None:
    world.put(TOPOLOGY_NODES, with_value(node_a, ("metadata", "resourceVersion"), "8"))
    assert keys(world, 0, old, new) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, placed_workload(), [WORKLOAD]),
        (placed_workload(), placed_workload(metadata={"labels": {"x": "y"}}), []),
        (placed_workload(), placed_workload("a:3"), [WORKLOAD]),
        (placed_workload(), placed_workload(unhealthyNodes=[{"name": "a"}]), [WORKLOAD]),
        (with_value(placed_workload(), ("status", "conditions"), []), placed_workload(), [WORKLOAD]),
    ],
)
def test_workload_is_reconciled_if_its_hosts_were_decided_anew(
    world: World, old: Any, new: Any, expected: list[Key]
) -> None:
    assert keys(world, 2, old, new) == expected


def test_controller_runs_only_with_its_feature_gate() -> None:
    world = World(settings_with(node_failures=None))
    [part] = registry.build_controllers(world.ctx, world.core).topology_when_served
    assert part.beside == ()
