"""Jobs of a kind on a stage, whose controller is played as the case file of the kind says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from admitq.runtime.errors import ApiError
from admitq.runtime.resources import PODS, Resource
from admitq_api.json_objects import create_merge_patch, value_at
from localcluster.waiting import eventually
from tests.controlplane.kind_cases import KindCase, Step, differences, load, with_changes
from tests.controlplane.pods_of_jobs import until_pods_exist
from tests.controlplane.stage import Stage, condition_of, controlled_by

HELD, CHECKED, ELSEWHERE = "held", "checked", "elsewhere"
"""LocalQueues: one is stopped, one reserves quota and waits for a check, one belongs to MultiKueue."""

FLAVOR: Mapping[str, Any] = {
    # All nodes have it, so that pods that are made find their place.
    "nodeLabels": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "example.com/spot", "operator": "Exists", "effect": "NoSchedule"}],
}
"""Fields that an admission injects into every podset."""

_TIME = "2030-01-01T00:00:00Z"


@dataclass(frozen=True)
class PlayedJob:
    """One job of a kind on a stage; the test plays its controller."""

    stage: Stage
    case: KindCase
    name: str

    async def get(self) -> dict[str, Any]:
        """Read the job."""
        return await self.stage.get(self.case.resource, self.name)

    async def change(self, changes: Mapping[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """Change the job, by path.

        Raises:
            ApiError: the change is refused.
        """
        before = await self.get()
        patch = create_merge_patch(before, with_changes(before, changes))
        return await self.stage.client.merge_patch(
            self.case.resource, self.name, patch, self.stage.namespace, dry_run=dry_run
        )

    async def workload(self) -> dict[str, Any]:
        """The only Workload of the job."""
        return await self.stage.workload(self.name)

    async def change_workload(self, patch: dict[str, Any]) -> None:
        """Apply a merge patch to the job's Workload."""
        workload = await self.workload()
        await self.stage.change(self.stage.kinds.workloads, workload["metadata"]["name"], patch)

    async def play(self, name: str) -> None:
        """Write what the kind's controller writes in a phase, which may be nothing."""
        for step in self.case.play.get(name, ()):
            await self._play_step(step)

    async def _play_step(self, step: Step) -> None:
        if step.child:
            await self._create_child()
        if step.change:
            await self.change(step.change)
        if step.status is not None:
            status = {**step.status}
            for condition in status.get("conditions", ()):
                condition.setdefault("lastTransitionTime", _TIME)
            await self.stage.change(self.case.resource, self.name, {"status": status}, "status")
        if step.pods is not None:
            await self._play_pods(step.pods["phase"], step.pods.get("count"))
        if step.until:
            await self.until(step.until)

    async def _create_child(self) -> None:
        child = self.case.child
        assert child is not None
        of_child = load(child.integration, self.stage.names.group)
        owned = {"metadata.ownerReferences": controlled_by(await self.get())["ownerReferences"]}
        try:
            await submit(
                self.stage, of_child, child.name, changes={"metadata.labels": None, **owned, **child.given}
            )
        except ApiError as error:
            if not error.is_already_exists:
                raise

    async def _play_pods(self, phase: str, count: int | None) -> None:
        pods = [
            one
            for one in await until_pods_exist(self.stage, self.name)
            if one["status"]["phase"] == "Running"
        ]
        for pod in pods[:count]:
            await self.stage.change(PODS, pod["metadata"]["name"], {"status": {"phase": phase}}, "status")

    async def until(
        self,
        wanted: Mapping[str, Any],
        *,
        timeout: float = 60.0,  # noqa: ASYNC109 a deadline for many reads
    ) -> dict[str, Any]:
        """Wait until the job has the wanted fields."""

        async def found() -> dict[str, Any]:
            job = await self.get()
            assert differences(job, wanted) == []
            return job

        return await eventually(found, timeout=timeout, what=f"{self.case} {self.name}: {dict(wanted)}")

    async def until_started(self) -> dict[str, Any]:
        """Wait until the job runs."""
        return await self.until(self.case.started)

    async def until_suspended(self) -> dict[str, Any]:
        """Wait until the job is suspended."""
        return await self.until(self.case.suspended)

    async def until_condition(self, type_: str, *wanted: str, timeout: float = 60.0) -> None:  # noqa: ASYNC109
        """Wait until a condition of the Workload has this status, reason and message, if given."""

        async def found() -> bool:
            seen = condition_of(await self.workload(), type_) or ()
            assert seen[: len(wanted)] == wanted, seen
            return True

        await eventually(
            found, timeout=timeout, what=f"{self.case} {self.name}: condition {type_} is {wanted}"
        )

    async def pod_sets(self) -> dict[str, int]:
        """The podsets of the Workload: their counts, by name."""
        listed = (await self.workload())["spec"]["podSets"]
        return {one.get("name", "main"): one.get("count", 1) for one in listed}

    def not_injected(
        self, job: dict[str, Any], workload: dict[str, Any], flavor: Mapping[str, Any] = FLAVOR
    ) -> list[str]:
        """Fields that an admission in a flavor injects and that the job's podsets lack."""
        names, kind = self.stage.names, self.case.integration.kind
        queue = value_at(workload, ("spec", "queueName"))
        lacking: list[str] = []
        for pod_set in self.case.podSets:
            given: Mapping[str, Any] = {
                "nodeSelector": flavor["nodeLabels"],
                "labels": {
                    names.podset: pod_set.name,
                    names.local_queue_name: queue,
                    names.cluster_queue_name: value_at(workload, ("status", "admission", "clusterQueue")),
                },
                "annotations": {names.workload: workload["metadata"]["name"]},
            }
            for what, wanted in given.items():
                place = pod_set.place(what)
                found = {} if place is None else value_at(job, place, {})
                if place is not None and not wanted.items() <= found.items():
                    lacking.append(f"{kind} {pod_set.name}: {what} at {place} are {found}, not {wanted}")
            place = pod_set.place("tolerations")
            found = [] if place is None else value_at(job, place, [])
            if place is not None and not all(one in found for one in flavor["tolerations"]):
                lacking.append(f"{kind} {pod_set.name}: tolerations are {found}")
        return lacking

    async def is_gone_for_good(self) -> bool:
        """Whether the job does not exist, and none of its Workloads has a finalizer.

        That the garbage collector then takes those away is not waited for: it learns of kinds that are new
        to the cluster every half a minute only.
        """
        try:
            await self.get()
        except ApiError as error:
            if not error.is_not_found:
                raise
            left = await self.stage.workloads(self.name)
            return all(condition_of(one, "Finished") and not has_finalizers(one) for one in left)
        return False


def has_finalizers(obj: dict[str, Any]) -> bool:
    """Whether the object has finalizers."""
    return bool(obj["metadata"].get("finalizers"))


async def open_queues(stage: Stage, case: KindCase, *, quota: Mapping[str, Any] | None = None) -> None:
    """Create the queue that the manifest names, with enough quota, and other objects that the job needs."""
    await stage.flavor("f", **FLAVOR)
    await _queue(stage, case, case.queue(stage.names.group), "cq", quota=quota)
    for obj in case.objects:
        await create_other(stage, obj)


async def held_queue(stage: Stage, case: KindCase) -> None:
    """Create the LocalQueue of a stopped ClusterQueue."""
    await _queue(stage, case, HELD, HELD, stopPolicy="Hold")


async def checked_queue(stage: Stage, case: KindCase) -> None:
    """Create a LocalQueue with an admission check, and play the controller of the check."""
    await stage.active_check("check")
    strategy = {"admissionChecks": [{"name": stage.own("check")}]}
    await _queue(stage, case, CHECKED, CHECKED, admissionChecksStrategy=strategy)


async def queue_elsewhere(stage: Stage) -> None:
    """Create a LocalQueue for jobs that the MultiKueue dispatcher handles."""
    spec = {"controllerName": stage.names.multikueue_controller}
    await stage.create(stage.kinds.admission_checks, stage.own(ELSEWHERE), {"spec": spec})
    checks = {"admissionChecks": [{"name": stage.own(ELSEWHERE)}]}
    await stage.cluster_queue(ELSEWHERE, admissionChecksStrategy=checks)
    await stage.local_queue(ELSEWHERE, cluster_queue=ELSEWHERE)


async def _queue(
    stage: Stage,
    case: KindCase,
    local: str,
    cluster: str,
    *,
    quota: Mapping[str, Any] | None = None,
    **spec: Any,
) -> None:
    given = quota or {}
    resources = [{"name": one, "nominalQuota": given.get(one, "1000Gi")} for one in case.resources]
    flavors = [{"name": stage.own("f"), "resources": resources}]
    groups = [{"coveredResources": list(case.resources), "flavors": flavors}]
    await stage.cluster_queue(cluster, resourceGroups=groups, **spec)
    await stage.local_queue(local, cluster_queue=cluster)


async def create_other(stage: Stage, obj: dict[str, Any]) -> None:
    """Create an object that jobs of a kind need."""
    group, _, version = str(obj["apiVersion"]).rpartition("/")
    plural = f"{str(obj['kind']).lower()}s"
    await stage.create(
        Resource(group, version, plural, obj["kind"], namespaced=True), obj["metadata"]["name"], obj
    )


async def submit(
    stage: Stage,
    case: KindCase,
    name: str | None = None,
    *,
    changes: Mapping[str, Any] | None = None,
    queue: str | None = None,
    dry_run: bool = False,
) -> tuple[PlayedJob, dict[str, Any]]:
    """Create a job from the manifest: as it stands, or changed.

    Raises:
        ApiError: it is refused.
    """
    obj = with_changes(case.manifest, changes or {})
    metadata: dict[str, Any] = {**obj["metadata"], "namespace": stage.namespace}
    if name is not None:
        metadata["name"] = name
    if queue is not None:
        metadata["labels"] = {**metadata["labels"], stage.names.queue_name: queue}
    created = await stage.client.create(case.resource, {**obj, "metadata": metadata}, dry_run=dry_run)
    return PlayedJob(stage, case, created["metadata"]["name"]), created
