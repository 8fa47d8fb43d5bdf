"""What the controller of LeaderWorkerSets does, which does not run in the tests."""

import hashlib
from typing import Any

from admitq.controllers.indexes import resource_of
from admitq.integrations.kinds.leaderworkerset import LEADER_WORKER_SET
from admitq.runtime.resources import PODS
from tests.controlplane.stage import Stage

LWS = resource_of(LEADER_WORKER_SET)
PREFIX = "leaderworkerset.sigs.k8s.io/"


async def create_group_pods(stage: Stage, lws: dict[str, Any], number: int) -> None:
    """Create the pods of a group as the controller of LeaderWorkerSets and its webhook of pods do."""
    group, name = lws["spec"]["leaderWorkerTemplate"], lws["metadata"]["name"]
    leader = f"{name}-{number}"
    for worker in range(group["size"]):
        made = group["workerTemplate"] if worker else group["leaderTemplate"]
        given = made["metadata"]
        labels = {
            **given.get("labels", {}),
            # The tests find the pods of a group by this label, which the controller does not write.
            "app": leader,
            f"{PREFIX}name": name,
            f"{PREFIX}group-index": str(number),
            f"{PREFIX}worker-index": str(worker),
            f"{PREFIX}group-key": hashlib.sha1(
                f"{stage.namespace}/{leader}".encode(), usedforsecurity=False
            ).hexdigest(),
            f"{PREFIX}template-revision-hash": "5f8d7c",
        }
        annotations = {**given.get("annotations", {}), f"{PREFIX}size": str(group["size"])}
        if worker:
            annotations[f"{PREFIX}leader-name"] = leader
        variables = {
            "LWS_LEADER_ADDRESS": f"{leader}.{name}.{stage.namespace}",
            "LWS_GROUP_SIZE": str(group["size"]),
            "LWS_WORKER_INDEX": str(worker),
        }
        env = [{"name": key, "value": value} for key, value in variables.items()]
        containers = [{**one, "env": [*env, *one.get("env", ())]} for one in made["spec"]["containers"]]
        # The leader is a pod of the StatefulSet of all leaders, the workers are of one per group.
        pod = f"{leader}-{worker}" if worker else leader
        metadata = {**given, "labels": labels, "annotations": annotations}
        await stage.create(
            PODS, pod, {"metadata": metadata, "spec": {**made["spec"], "containers": containers}}
        )
