"""Stories of LeaderWorkerSets with their operator. Each group is queued; its pods exist while it waits."""

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from admitq.integrations.workload_names import create_workload_name
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS, NODES, PODS, STATEFUL_SETS, Resource
from admitq_api.json_objects import value_at
from localcluster.waiting import eventually
from tests.controlplane.stage import Stage, condition_of
from tests.operators.operator_case import OperatorCase, submit, uids_of, until_pod_states
from tests.operators.places import RESERVED
from tests.operators.programs import Program
from tests.operators.test_stories import (
    admit_on_hosts,
    check_kept_admission,
    check_places,
    crash,
    host_of,
    open_queue,
    release,
    start,
    stories_of,
    tells,
    until_nothing_reserved,
)

pytestmark = stories_of("leaderworkerset")

ROLLOUT = {
    "spec.rolloutStrategy": {
        "type": "RollingUpdate",
        "rollingUpdateConfiguration": {"maxSurge": 1, "maxUnavailable": 0},
    }
}
"""A rolling update creates one more group."""
NEW_IMAGE = "example.com/c:2"
PREFIX = "leaderworkerset.sigs.k8s.io/"
GROUP_SIZE = 4
RESTART_POLICY = "spec.leaderWorkerTemplate.restartPolicy"
RECREATE_GROUP = ("RecreateGroupOnPodRestart", "RecreateGroupAfterStart")
"""The restart policies by which a group is recreated that has started."""
LEADER_NODES = {"example.com/leaders": "true"}
ANNOTATIONS = "spec.leaderWorkerTemplate.workerTemplate.metadata.annotations"


@dataclass(frozen=True)
class Served:
    """A LeaderWorkerSet that its operator runs."""

    stage: Stage
    case: OperatorCase
    name: str
    uid: str

    async def pods(self, group: int) -> list[dict[str, Any]]:
        """The pods of a group that are not being deleted."""
        selector = f"{PREFIX}name={self.name},{PREFIX}group-index={group}"
        found, _ = await self.stage.client.list(PODS, self.stage.namespace, label_selector=selector)
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    async def uids(self, group: int) -> set[str]:
        return uids_of(await self.pods(group))

    async def until_pods(self, group: int, **wanted: int) -> list[dict[str, Any]]:
        """Wait until a group has exactly these numbers of pods in each state, and return them."""
        return await until_pod_states(
            self.stage,
            lambda: self.pods(group),
            wanted,
            gate=self.stage.names.admission_gate,
            what=f"pods of group {group}: {wanted}",
        )

    async def until_runs(self, group: int) -> list[dict[str, Any]]:
        """Wait until a group runs where its admission says; return its pods."""
        await self.until_condition(group, "Admitted", "True")
        pods = await self.until_pods(group, Running=GROUP_SIZE)
        check_places(pods)
        return pods

    def workload_name(self, group: int) -> str:
        kind = self.case.kind.integration
        return create_workload_name(kind.kind, kind.group, f"{self.name}-{group}", self.uid)

    async def workload(self, group: int) -> dict[str, Any]:
        return await self.stage.get(self.stage.kinds.workloads, self.workload_name(group))

    async def until_recreated(self, group: int, before: set[str], admitted: dict[str, Any]) -> None:
        """Wait until other pods of a group run; its Workload was never evicted."""

        async def replaced() -> bool:
            return not before & await self.uids(group)

        await self.stage.until(replaced, what="all pods of the group to be replaced")
        await self.until_runs(group)
        check_kept_admission(await self.workload(group), admitted)

    async def until_condition(self, group: int, type_: str, *wanted: str) -> None:
        """Wait until a condition of a group's Workload has this status and reason, if given."""

        async def found() -> bool:
            seen = condition_of(await self.workload(group), type_) or ()
            assert seen[: len(wanted)] == wanted, seen
            return True

        await eventually(found, what=f"condition {type_} of group {group} is {wanted}")

    async def until_ready(self, replicas: int) -> None:
        """Wait until the operator counts this number of ready groups."""

        async def ready() -> Any:
            return value_at(
                await self.stage.get(self.case.kind.resource, self.name), ("status", "readyReplicas"), 0
            )

        await self.stage.until(ready, replicas, what=f"{replicas} ready groups")

    async def until_workloads(self, *groups: int) -> None:
        """Wait until exactly these groups have Workloads."""

        async def names() -> set[str]:
            found, _ = await self.stage.client.list(self.stage.kinds.workloads, self.stage.namespace)
            return {one["metadata"]["name"] for one in found}

        await self.stage.until(names, {self.workload_name(group) for group in groups})

    async def update(self) -> None:
        """Change the image of all pods."""
        job = await self.stage.get(self.case.kind.resource, self.name)
        template = job["spec"]["leaderWorkerTemplate"]["workerTemplate"]
        container = {**template["spec"]["containers"][0], "image": NEW_IMAGE}
        patch = {"leaderWorkerTemplate": {"workerTemplate": {"spec": {"containers": [container]}}}}
        await self.stage.change(self.case.kind.resource, self.name, {"spec": patch})

    async def until_updated(self, groups: int) -> None:
        """Wait until all pods of this number of groups have the image of the update."""

        async def images() -> list[str]:
            pods = [pod for group in range(groups) for pod in await self.pods(group)]
            return [one["spec"]["containers"][0]["image"] for one in pods]

        await self.stage.until(images, [NEW_IMAGE] * groups * GROUP_SIZE)

    async def scale(self, replicas: int) -> None:
        """Scale as ``kubectl scale`` does."""
        patch = {"spec": {"replicas": replicas}}
        await self.stage.change(self.case.kind.resource, self.name, patch, "scale")


def name_of(pod: Mapping[str, Any]) -> str:
    return pod["metadata"]["name"]


async def restart_container(stage: Stage, pod: Mapping[str, Any]) -> None:
    """Report a restart of the containers of a running pod, as its kubelet would."""
    statuses = [{**one, "restartCount": 1} for one in pod["status"]["containerStatuses"]]
    await stage.change(PODS, name_of(pod), {"status": {"containerStatuses": statuses}}, "status")


@asynccontextmanager
async def labelled_nodes(stage: Stage) -> AsyncGenerator[None]:
    """Label nodes of the flavor as those for leaders. Without, new leaders stay pending."""
    listed, _ = await stage.client.list(NODES)
    nodes = [name for node in listed if (name := name_of(node)).startswith(RESERVED)]
    try:
        for node in nodes:
            await stage.client.merge_patch(NODES, node, {"metadata": {"labels": LEADER_NODES}})
        yield
    finally:
        without = dict.fromkeys(LEADER_NODES)
        for node in nodes:
            await stage.client.merge_patch(NODES, node, {"metadata": {"labels": without}})


async def serve(stage: Stage, case: OperatorCase, changes: Mapping[str, Any] | None = None) -> Served:
    job = await submit(stage, case, changes=changes)
    return Served(stage, case, job.name, (await job.get())["metadata"]["uid"])


@tells("run")
async def test_groups_are_held_admitted_and_deleted(stage: Stage, case: OperatorCase) -> None:
    await open_queue(stage, case, jobs=2, stopPolicy="Hold")
    served = await serve(stage, case)
    for group in range(2):
        await served.until_pods(group, held=GROUP_SIZE)
        await served.until_condition(group, "QuotaReserved", "False", "Suspended")
        pod_sets = (await served.workload(group))["spec"]["podSets"]
        assert [(one["name"], one["count"]) for one in pod_sets] == [("main", GROUP_SIZE)]
    await release(stage)
    for group in range(2):
        await served.until_runs(group)
        await served.until_condition(group, "PodsReady", "True", "Started")
    await served.until_ready(2)
    await stage.client.delete(case.kind.resource, served.name, stage.namespace, propagation="Background")
    for group in range(2):
        await served.until_pods(group)
    await until_nothing_reserved(stage)


@tells("placed")
async def test_pods_of_groups_run_on_the_hosts_of_their_indexes(stage: Stage, case: OperatorCase) -> None:
    await open_queue(stage, case, jobs=2, stopPolicy="Hold")
    served = await serve(stage, case)
    placed = {0: [1, 2, 2, 3], 1: [1, 1, 1, 3]}
    for group, hosts in placed.items():
        await served.until_pods(group, held=GROUP_SIZE)
        await served.until_condition(group, "QuotaReserved", "False", "Suspended")
        await admit_on_hosts(stage, await served.workload(group), {"main": hosts})
    for group, hosts in placed.items():
        ran = {
            int(pod["metadata"]["labels"][f"{PREFIX}worker-index"]): host_of(pod)
            for pod in await served.until_pods(group, Running=GROUP_SIZE)
        }
        assert [ran[index] for index in range(GROUP_SIZE)] == hosts


@tells("delete")
async def test_nothing_is_left_of_a_deleted_set_with_groups_that_wait(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case, stopPolicy="Hold")
    served = await serve(stage, case)
    for group in range(2):
        await served.until_pods(group, held=GROUP_SIZE)
    await served.until_workloads(0, 1)
    await stage.client.delete(case.kind.resource, served.name, stage.namespace, propagation="Background")
    for resource in (case.kind.resource, STATEFUL_SETS, PODS, stage.kinds.workloads):

        async def objects(resource: Resource = resource) -> list[str]:
            return [name_of(one) for one in (await stage.client.list(resource, stage.namespace))[0]]

        await stage.until(objects, [], what=f"no {resource.plural}")
    await release(stage)
    await until_nothing_reserved(stage)


@tells("scale")
async def test_groups_do_not_wait_for_each_other_and_leave_when_it_is_scaled_down(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    served = await serve(stage, case, {"spec.replicas": 1})
    await served.until_runs(0)
    await served.scale(2)
    await served.until_condition(1, "QuotaReserved", "False", "WaitingForQuota")
    await served.until_pods(1, held=GROUP_SIZE)
    await stage.client.delete(PODS, f"{served.name}-0-{GROUP_SIZE - 1}", stage.namespace)
    await served.until_runs(0)
    await served.scale(1)
    await served.until_workloads(0)
    await served.until_pods(1)
    await served.until_pods(0, Running=GROUP_SIZE)


@tells("preempt")
async def test_preempted_group_is_held_again_and_resumed(stage: Stage, case: OperatorCase) -> None:
    await open_queue(stage, case, preemption={"withinClusterQueue": "LowerPriority"})
    await stage.create(stage.kinds.workload_priority_classes, stage.own("high"), {"value": 1000})
    served = await serve(stage, case, {"spec.replicas": 1})
    before = uids_of(await served.until_runs(0))
    high = {stage.names.priority_class: stage.own("high")}
    await stage.job("first", cpu=case.quota["cpu"], labels=high)
    await served.until_condition(0, "Evicted", "True", "Preempted")
    await stage.until_running("first")
    await served.until_pods(0, held=GROUP_SIZE)
    await stage.client.delete(JOBS, "first", stage.namespace, propagation="Background")
    after = uids_of(await served.until_runs(0))
    assert not before & after
    await served.until_ready(1)


@pytest.mark.parametrize("policy", RECREATE_GROUP)
async def test_group_with_a_lost_pod_is_recreated_and_keeps_its_admission(
    stage: Stage, case: OperatorCase, policy: str
) -> None:
    await open_queue(stage, case, jobs=2)
    served = await serve(stage, case, {RESTART_POLICY: policy})
    before = uids_of(await served.until_runs(0))
    others = uids_of(await served.until_runs(1))
    admitted = await served.workload(0)
    await stage.client.delete(PODS, f"{served.name}-0-1", stage.namespace)
    await served.until_recreated(0, before, admitted)
    assert await served.uids(1) == others


@tells("restart")
@pytest.mark.parametrize("policy", RECREATE_GROUP)
async def test_group_with_a_restarted_container_is_recreated_and_keeps_its_admission(
    stage: Stage, case: OperatorCase, policy: str
) -> None:
    await open_queue(stage, case)
    served = await serve(stage, case, {"spec.replicas": 1, RESTART_POLICY: policy})
    pods = await served.until_runs(0)
    admitted = await served.workload(0)
    await restart_container(stage, pods[-1])
    await served.until_recreated(0, uids_of(pods), admitted)


@pytest.mark.parametrize(("policy", "kept"), [(RECREATE_GROUP[0], 0), (RECREATE_GROUP[1], GROUP_SIZE - 1)])
async def test_restart_policy_decides_on_a_restarted_container_while_the_leader_of_the_group_waits_for_a_node(
    stage: Stage, case: OperatorCase, policy: str, kept: int
) -> None:
    await open_queue(stage, case, jobs=2)
    container = {"name": "leader", "image": "nginx", "resources": {"requests": {"cpu": "50m"}}}
    leader = {"spec": {"containers": [container], "nodeSelector": LEADER_NODES}}
    changes = {"spec.leaderWorkerTemplate.leaderTemplate": leader, RESTART_POLICY: policy}
    async with labelled_nodes(stage):
        served = await serve(stage, case, changes)
        groups = [await served.until_runs(group) for group in range(2)]
        for group in range(2):
            await served.until_condition(group, "PodsReady", "True")
    admitted = [await served.workload(group) for group in range(2)]
    # A group that has been ready before has more time than a group that starts.
    await stage.client.delete(PODS, name_of(groups[0][-1]), stage.namespace)
    started = await served.until_pods(0, Running=GROUP_SIZE - 1, Pending=1)
    assert not uids_of(groups[0]) & uids_of(started)
    workers = [pod for pod in started if pod["status"]["phase"] == "Running"]
    await restart_container(stage, workers[0])
    # The controller handles one pod after the other. The other group has started.
    await restart_container(stage, groups[1][-1])

    async def is_other_recreated() -> bool:
        return not uids_of(groups[1]) & await served.uids(1)

    await stage.until(is_other_recreated, what="the other group to be recreated")
    async with labelled_nodes(stage):
        for group in range(2):
            await served.until_runs(group)
            check_kept_admission(await served.workload(group), admitted[group])
    assert len(uids_of(workers) & await served.uids(0)) == kept


async def test_only_the_lost_pod_is_replaced_without_a_restart_policy(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    served = await serve(stage, case, {"spec.replicas": 1, RESTART_POLICY: "None"})
    before = uids_of(await served.until_runs(0))
    await stage.client.delete(PODS, f"{served.name}-0-1", stage.namespace)

    async def kept() -> int:
        return len(before & await served.uids(0))

    await stage.until(kept, GROUP_SIZE - 1)
    after = uids_of(await served.until_runs(0))
    assert len(before & after) == GROUP_SIZE - 1


async def test_workers_that_wait_for_their_leader_do_not_keep_the_group_from_running(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case, stopPolicy="Hold")
    served = await serve(stage, case, {"spec.replicas": 1, "spec.startupPolicy": "LeaderReady"})
    (leader,) = await served.until_pods(0, held=1)
    assert (await served.workload(0))["spec"]["podSets"][0]["count"] == GROUP_SIZE
    await release(stage)
    pods = await served.until_runs(0)
    assert leader["metadata"]["uid"] in uids_of(pods)


@tells("update")
async def test_rolling_update_replaces_every_group_within_its_quota(stage: Stage, case: OperatorCase) -> None:
    await open_queue(stage, case, jobs=2)
    served = await serve(stage, case, ROLLOUT)
    first = {number: uids_of(await served.until_runs(number)) for number in range(2)}
    await served.until_ready(2)
    await served.update()
    await served.until_runs(2)
    await served.until_updated(2)
    for group, before in first.items():
        assert not before & uids_of(await served.until_runs(group))
        assert condition_of(await served.workload(group), "Evicted") is None
    await served.until_pods(2)
    await served.until_workloads(0, 1)


async def test_rolling_update_waits_for_the_quota_of_its_additional_group(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    served = await serve(stage, case, {"spec.replicas": 1, **ROLLOUT})
    before = uids_of(await served.until_runs(0))
    await served.until_ready(1)
    await served.update()
    await served.until_condition(1, "QuotaReserved", "False", "WaitingForQuota")
    await served.until_pods(1, held=GROUP_SIZE)
    assert await served.uids(0) == before
    queue = await stage.get(stage.kinds.cluster_queues, stage.own("cq"))
    groups = queue["spec"]["resourceGroups"]
    groups[0]["flavors"][0]["resources"][0]["nominalQuota"] = "400m"
    await stage.change(stage.kinds.cluster_queues, stage.own("cq"), {"spec": {"resourceGroups": groups}})
    await served.until_updated(1)
    await served.until_workloads(0)
    await served.until_runs(0)


async def test_leader_with_a_template_of_its_own_has_a_podset_of_its_own(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case, jobs=2)
    container = {"name": "leader", "image": "nginx", "resources": {"requests": {"cpu": "100m"}}}
    template = {"spec": {"containers": [container]}}
    changes = {"spec.replicas": 1, "spec.leaderWorkerTemplate.leaderTemplate": template}
    served = await serve(stage, case, changes)
    pods = await served.until_runs(0)
    sizes = [(one["name"], one["count"]) for one in (await served.workload(0))["spec"]["podSets"]]
    assert sizes == [("leader", 1), ("worker", GROUP_SIZE - 1)]
    assert Counter(one["metadata"]["labels"][stage.names.podset] for one in pods) == dict(sizes)


@tells("pods-ready")
async def test_group_with_pods_that_are_not_ready_is_evicted_after_the_timeout(
    stage: Stage, case: OperatorCase
) -> None:
    await open_queue(stage, case)
    not_ready = {f"{ANNOTATIONS}[kwok.admitq.dev/ready]": "false"}
    served = await serve(stage, case, {"spec.replicas": 1, **not_ready})
    before = uids_of(await served.until_runs(0))
    await served.until_condition(0, "Evicted", "True", "PodsReadyTimeout")

    async def replaced() -> bool:
        return not before & await served.uids(0)

    await stage.until(replaced, what="all pods of the evicted group to be deleted")


@tells("webhook-down")
async def test_groups_stay_gated_while_the_webhook_of_their_operator_is_down(
    stage: Stage, case: OperatorCase, programs: dict[str, Program]
) -> None:
    await open_queue(stage, case, stopPolicy="Hold")
    served = await serve(stage, case, {"spec.replicas": 1})
    await served.until_pods(0, held=GROUP_SIZE)
    await crash(programs)
    with pytest.raises(ApiError, match="failed calling webhook"):
        await submit(stage, case, "other")
    # Its webhook reviews each update of a pod, so the scheduling gates stay.
    await release(stage)
    await served.until_condition(0, "Admitted", "True")
    await served.until_pods(0, held=GROUP_SIZE)
    await start(programs)
    await served.until_runs(0)


@tells("operator-restart")
async def test_groups_survive_a_crash_of_their_operator(
    stage: Stage, case: OperatorCase, programs: dict[str, Program]
) -> None:
    await open_queue(stage, case)
    served = await serve(stage, case, {"spec.replicas": 1})
    before = uids_of(await served.until_runs(0))
    await crash(programs)
    await start(programs)
    assert uids_of(await served.until_runs(0)) == before
    await crash(programs)
    workload = served.workload_name(0)
    await stage.change(stage.kinds.workloads, workload, {"spec": {"active": False}})
    await served.until_condition(0, "QuotaReserved", "False", "Deactivated")
    await served.until_pods(0)
    await start(programs)
    await served.until_pods(0, held=GROUP_SIZE)
