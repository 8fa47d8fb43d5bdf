"""Force deletion of terminating pods on unreachable nodes."""

from typing import Any

import orjson
import pytest

from admitq.controllers import registry
from admitq.controllers.controller_specs import WhenServed
from admitq.controllers.plan import NO_ACTIONS, ActionPlan, Delete, Patch, RecordEvent
from admitq.controllers.pods.failure_recovery import (
    BY_NODE,
    PLACED_PODS,
    FailureRecoveryController,
    HangingPodCase,
    delete_hanging_pod,
    trim_node,
    trim_recovered_pod,
)
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import NODES
from admitq.runtime.store import Key, ObjectChange, Store
from admitq_api.conditions import SECOND
from tests.unit.controllers.builders import NAMES, instant, settings_with, timestamp
from tests.unit.controllers.world import CONFLICT, World, cluster_scoped

UNREACHABLE = [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]
DELAY = 60 * SECOND
READY = {"type": "Ready", "status": "True", "lastTransitionTime": timestamp(0)}
OPTED_IN = {NAMES.safe_to_forcefully_delete: "true"}


def node(taints: Any = UNREACHABLE) -> dict[str, Any]:
    return cluster_scoped("n", spec={"taints": taints, "podCIDR": "10.0.0.0/24"}, status={"images": []})


def pod(phase: str = "Running", *, annotations: Any = OPTED_IN, **metadata: Any) -> dict[str, Any]:
    """Return a deleted pod with a grace period that ends at second 0 by default."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "uid-p",
            "resourceVersion": "5",
            "annotations": annotations,
            "deletionTimestamp": timestamp(0),
            "deletionGracePeriodSeconds": 30,
            **metadata,
        },
        "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
        "status": {"phase": phase, "conditions": [READY]},
    }


def plan_for(pod_: dict[str, Any], *, node_: dict[str, Any] | None, now: float) -> ActionPlan:
    return delete_hanging_pod(HangingPodCase(pod_, node_, NAMES, DELAY, instant(now)))


NOTE = "Pod was still terminating 61s after its grace period, and node n is unreachable"
FORCED = ["Failed", "deleted", NOTE]
OTHER = [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]
EXECUTED = [{"key": "example.com/x"}, {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]


@pytest.mark.parametrize(
    ("pod_", "node_", "now", "expected"),
    [
        (pod(), node(), 61, FORCED),
        (pod(), node(EXECUTED), 61, FORCED),
        (pod("Pending"), node(), 61, FORCED),
        (pod("Unknown"), node(), 61, FORCED),
        (pod("Succeeded"), node(), 61, ["deleted", NOTE]),
        (pod("Failed"), node(), 61, ["deleted", NOTE]),
        # This pod is already deleted; only finalizers keep it, and their owners may wait for its end.
        (pod(deletionGracePeriodSeconds=0), node(), 61, ["Failed", NOTE]),
        (pod("Failed", deletionGracePeriodSeconds=0), node(), 61, []),
        (pod(), node(), 60.001, ["Failed", "deleted", NOTE.replace("61s", "60s")]),
        (pod(), node(), 60, []),
        (pod(), node(), -30, []),
        (pod(annotations={}), node(), 61, []),
        (pod(annotations=None), node(), 61, []),
        (pod(annotations={NAMES.safe_to_forcefully_delete: "false"}), node(), 61, []),
        (pod(deletionTimestamp=None), node(), 61, []),
        (pod(deletionTimestamp="soon"), node(), 61, []),
        (pod(), node(OTHER), 61, []),
        (pod(), node([]), 61, []),
        (pod(), node(None), 61, []),
        (pod(), node("tainted"), 61, []),
        (pod(), None, 61, []),
    ],
)
def test_only_opted_in_pods_on_unreachable_nodes_are_force_deleted(
    pod_: dict[str, Any], node_: dict[str, Any] | None, now: float, expected: list[str]
) -> None:
    results: list[str] = []
    for action in plan_for(pod_, node_=node_, now=now).actions:
        match action:
            case Patch(steps=(step,)):
                results.append(step.patch["status"]["phase"])
            case Delete(by_force=True):
                results.append("deleted")
            case RecordEvent(type="Warning", reason="AdmitqForcefulTermination", note=note):
                results.append(note)
            case _:
                pass
    assert results == expected


def test_terminating_pod_is_reconciled_again_when_delay_has_passed() -> None:
    assert plan_for(pod(), node_=node(), now=0).requeue_after == pytest.approx(60)
    assert plan_for(pod(), node_=node(), now=60).requeue_after == pytest.approx(0, abs=1e-6)
    assert plan_for(pod(), node_=node([]), now=0) is NO_ACTIONS


def test_force_deleted_pod_reports_its_failure_and_keeps_other_conditions() -> None:
    [write, *_] = plan_for(pod(), node_=node(), now=61).actions
    assert isinstance(write, Patch)
    recovery = {
        "type": "AdmitqFailureRecovery",
        "status": "True",
        "reason": "AdmitqForcefullyDeleted",
        "message": NOTE,
        "lastTransitionTime": timestamp(61),
    }
    assert write.steps[0].patch["status"]["conditions"] == [READY, recovery]
    assert write.steps[0].subresource == "status"


# --- controller -----------------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    result = World(settings_with(force_delete_after=DELAY))
    served = FailureRecoveryController(result.ctx, DELAY).when_served()
    result.stores.stores[PLACED_PODS] = Store(PLACED_PODS, transform=served.transform, indexes=served.indexes)
    result.stores.stores[NODES] = Store(NODES, transform=trim_node)
    result.now = instant(61)
    return result


def failure_recovery_part(world: World) -> WhenServed:
    table = registry.build_controllers(world.ctx, world.core)
    [part] = [part for part in table.when_served if part.resource == PLACED_PODS]
    return part


async def test_pod_is_failed_then_deleted_then_reported(world: World) -> None:
    world.put(NODES, node())
    world.put(PLACED_PODS, pod())
    assert await failure_recovery_part(world).spec.reconcile(Key("ns", "p")) is None
    assert world.calls == ["patch pods/p/status", "delete within 0 s pods/p"]
    assert world.recorder.events == [("p", "AdmitqForcefulTermination", NOTE)]
    assert world.recorder.metrics == ["pod_forcefully_deleted"]


async def test_interrupted_force_deletion_is_resumed_and_not_repeated(world: World) -> None:
    world.put(NODES, node())
    world.put(PLACED_PODS, pod())
    world.client.fails["delete within 0 s"] = ApiError(503, "ServiceUnavailable", "down")
    reconcile = failure_recovery_part(world).spec.reconcile
    with pytest.raises(ApiError):
        await reconcile(Key("ns", "p"))
    assert world.recorder.events == []
    world.client.calls.clear()
    world.client.fails.clear()
    await reconcile(Key("ns", "p"))
    assert world.calls == ["delete within 0 s pods/p"]
    world.put(PLACED_PODS, pod("Failed", deletionGracePeriodSeconds=0, resourceVersion="900"))
    await reconcile(Key("ns", "p"))
    await reconcile(Key("ns", "gone"))
    assert len(world.calls) == 1


async def test_pod_changed_meanwhile_is_not_deleted(world: World) -> None:
    world.put(NODES, node())
    world.put(PLACED_PODS, pod())
    world.client.fails["patch"] = CONFLICT
    with pytest.raises(ApiError):
        await failure_recovery_part(world).spec.reconcile(Key("ns", "p"))
    assert world.calls == ["patch pods/p/status"]


def test_node_that_becomes_unreachable_enqueues_its_terminating_pods(world: World) -> None:
    world.put(PLACED_PODS, pod(name="terminating", uid="1"))
    world.put(PLACED_PODS, pod(name="running", uid="2", deletionTimestamp=None))
    world.put(PLACED_PODS, pod(name="other", uid="3", annotations={}))
    _, of_nodes = (watch.keys for watch in failure_recovery_part(world).spec.watches)

    def changed(old: dict[str, Any] | None, new: dict[str, Any] | None) -> set[str]:
        change = ObjectChange("modified", Key("", "n"), new, None if old is None else orjson.dumps(old))
        return {key.name for key in of_nodes(change)}

    assert changed(node([]), node()) == {"terminating"}
    assert changed(None, node()) == {"terminating"}
    assert changed(node(), node()) == changed(node(), node([])) == changed(node(), None) == set()


def test_changed_pod_is_enqueued_only_if_it_is_terminating(world: World) -> None:
    of_pods, _ = (watch.keys for watch in failure_recovery_part(world).spec.watches)
    key = Key("ns", "p")
    assert list(of_pods(ObjectChange("modified", key, trim_recovered_pod(pod(), NAMES), None))) == [key]
    running = trim_recovered_pod(pod(deletionTimestamp=None), NAMES)
    assert list(of_pods(ObjectChange("added", key, running, None))) == []
    assert list(of_pods(ObjectChange("deleted", key, None, orjson.dumps(pod())))) == []


def test_stores_keep_only_needed_fields_of_nodes_and_pods(world: World) -> None:
    ids = {"name": "p", "namespace": "ns", "uid": "uid-p", "resourceVersion": "5"}
    assert trim_recovered_pod(pod(annotations={}), NAMES) == {"metadata": ids}
    assert trim_node(node()) == {
        "metadata": {"name": "n", "uid": "uid-n", "resourceVersion": "5"},
        "spec": {"taints": UNREACHABLE},
    }
    world.put(PLACED_PODS, pod(annotations={}))
    assert world.stores.of(PLACED_PODS).index_values(BY_NODE) == ()


def test_placed_pods_are_not_watched_without_force_deletion() -> None:
    table = registry.build_controllers(World().ctx, World().core)
    assert not any(part.resource == PLACED_PODS for part in table.when_served)
