"""What the controller of LeaderWorkerSets does, which does not run in the tests."""

from typing import Any

from admitq.controllers.indexes import resource_of
from admitq.integrations.kinds.leaderworkerset import LEADER_WORKER_SET
from admitq.runtime.resources import PODS
from tests.controlplane.stage import Stage

LWS = resource_of(LEADER_WORKER_SET)
PREFIX = "leaderworkerset.sigs.k8s.io/"


async def create_group_pods(stage: Stage, lws: dict[str, Any], number: int) -> None:
    """Create the pods of a group as the controller of LeaderWorkerSets does."""
    group, name = lws["spec"]["leaderWorkerTemplate"], lws["metadata"]["name"]
    for worker in range(group["size"]):
        made = group["workerTemplate"] if worker else group["leaderTemplate"]
        marks = {
            # The tests find the pods of a group by this label, which the controller does not write.
            "app": f"{name}-{number}",
            f"{PREFIX}name": name,
            f"{PREFIX}group-index": str(number),
            f"{PREFIX}worker-index": str(worker),
        }
        metadata = {**made["metadata"], "labels": {**made["metadata"].get("labels", {}), **marks}}
        # The leader is a pod of the StatefulSet of all leaders, the workers are of one per group.
        pod = f"{name}-{number}-{worker}" if worker else f"{name}-{number}"
        await stage.create(PODS, pod, {"metadata": metadata, "spec": made["spec"]})
