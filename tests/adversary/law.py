"""The law of quota, checked from outside: running pods use no more than is reserved for their workloads.

The check reads pods, Jobs, Workloads and ClusterQueues from the API server and computes the sums itself. It
shares neither arithmetic nor rules of ownership with the product. In an arena, the name of every object that
belongs to a LocalQueue begins with the name of that queue and a hyphen, whatever labels a tenant removes.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq_api.json_objects import JsonObject

REACTION_S: Final = 2.0
"""Seconds for which more pods may run than is reserved: the time of one reaction."""
JOB_CONTROLLER_S: Final = 5.0
"""Seconds more for pods of a Job that is suspended or being deleted. The reaction of admitq ends when it
suspends the Job; kube-controller-manager then deletes the pods, which takes seconds on a busy machine."""
INTERVAL_S: Final = 0.2
_LONGEST_STEP_S: Final = 0.3
"""The longest step between two samples that counts, so that a stalled sampler reports no violation."""


def milli(quantity: str | float) -> int:
    """CPU in thousandths, from the forms that the tests use: ``2``, ``"2"``, ``"0.5"`` and ``"500m"``."""
    text = str(quantity)
    return int(text[:-1]) if text.endswith("m") else round(float(text) * 1000)


def uses_node(pod: JsonObject) -> bool:
    """Whether a pod takes up room: it is on a node and has not ended."""
    phase = pod.get("status", {}).get("phase")
    return bool(pod["spec"].get("nodeName")) and phase not in {"Succeeded", "Failed"}


def requested(pod: JsonObject) -> int:
    """The CPU request of a pod: the sum of its containers, or its largest init container."""
    spec = pod["spec"]
    if (whole := spec.get("resources", {}).get("requests", {}).get("cpu")) is not None:
        return milli(whole)
    containers = sum(_of_container(one) for one in spec["containers"])
    return max([containers, *(_of_container(one) for one in spec.get("initContainers", []))])


def _of_container(container: JsonObject) -> int:
    return milli(container.get("resources", {}).get("requests", {}).get("cpu", 0))


def reserved(workload: JsonObject) -> int:
    """The CPU that the status of a Workload reserves, without reclaimable pods."""
    status = workload.get("status") or {}
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or []}
    if conditions.get("QuotaReserved") != "True" or conditions.get("Finished") == "True":
        return 0
    returned = {one["name"]: one["count"] for one in status.get("reclaimablePods") or []}
    total = 0
    for one in (status.get("admission") or {}).get("podSetAssignments") or []:
        count = one.get("count") or 0
        usage = milli(one.get("resourceUsage", {}).get("cpu", 0))
        total += usage * (count - returned.get(one["name"], 0)) // count if count else 0
    return total


@dataclass(frozen=True)
class Excess:
    """More runs in a queue than is reserved, at one instant. CPU in thousandths."""

    queue: str
    running: int
    allowed: int
    pods: tuple[str, ...]
    grace_s: float
    """The longest grace period of those of the pods that are being deleted."""


def excesses(
    queues: Mapping[str, int], pods: Iterable[JsonObject], workloads: Iterable[JsonObject]
) -> list[Excess]:
    """Compare running pods with reservations and with the quota.

    Args:
        queues: quota of the ClusterQueue of each LocalQueue, in thousandths of a CPU.
        pods: all pods of the namespace.
        workloads: all Workloads of the namespace.
    """
    running: dict[str, list[JsonObject]] = {}
    for pod in pods:
        if uses_node(pod) and (queue := queue_of(pod["metadata"]["name"], queues)) is not None:
            running.setdefault(queue, []).append(pod)
    granted = dict.fromkeys(queues, 0)
    for workload in workloads:
        if (name := workload["spec"].get("queueName")) in granted:
            granted[name] += reserved(workload)
    found: list[Excess] = []
    for queue, members in running.items():
        used, allowed = sum(map(requested, members)), min(granted[queue], queues[queue])
        if used > allowed:
            deleted = [one["metadata"] for one in members if one["metadata"].get("deletionTimestamp")]
            grace = max((one.get("deletionGracePeriodSeconds") or 0 for one in deleted), default=0)
            names = tuple(sorted(one["metadata"]["name"] for one in members))
            found.append(Excess(queue, used, allowed, names, grace))
    return found


def pods_of_stopped_jobs(pods: Iterable[JsonObject], jobs: Iterable[JsonObject]) -> set[str]:
    """UIDs of the pods that Kubernetes's Job controller will delete.

    Their controller is an existing Job with the UID of the reference, which is suspended or being deleted.
    """
    stopped = {
        one["metadata"]["uid"]
        for one in jobs
        if one["spec"].get("suspend") or one["metadata"].get("deletionTimestamp")
    }
    return {
        pod["metadata"]["uid"]
        for pod in pods
        for owner in pod["metadata"].get("ownerReferences") or []
        if owner.get("controller") and owner["kind"] == "Job" and owner["uid"] in stopped
    }


def queue_of(name: str, queues: Iterable[str]) -> str | None:
    """The queue that an object of this name belongs to: the longest that its name begins with."""
    matching = [queue for queue in queues if name.startswith(f"{queue}-")]
    return max(matching, key=len, default=None)


@dataclass
class Record:
    """Results of samples: the current excess of each queue, violations, and the history of every pod."""

    samples: int = 0
    violations: dict[str, str] = field(default_factory=dict[str, str])
    longest_s: float = 0.0
    """The longest time for which any queue had more running than reserved."""
    _lasting: dict[float, dict[str, float]] = field(default_factory=dict[float, dict[str, float]])
    """The duration of the excess of each queue, by the seconds that are tolerated beyond one reaction."""
    _last: float | None = None
    _histories: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def observe(
        self,
        at: float,
        queues: Mapping[str, int],
        pods: Iterable[JsonObject],
        workloads: Iterable[JsonObject],
        jobs: Iterable[JsonObject] = (),
    ) -> None:
        """Take a sample of this time in seconds.

        An excess without pods of stopped Jobs may last one reaction. An excess only because of these pods may
        last longer, by the time that Kubernetes's Job controller needs to delete them.
        """
        self.samples += 1
        step = 0.0 if self._last is None else min(at - self._last, _LONGEST_STEP_S)
        self._last = at
        seen, granting = list(pods), list(workloads)
        for pod in seen:
            self._remember(at, pod)
        going = pods_of_stopped_jobs(seen, jobs)
        staying = [one for one in seen if one["metadata"]["uid"] not in going]
        for more, members in ((0.0, staying), (JOB_CONTROLLER_S, seen)):
            found = excesses(queues, members, granting)
            before = self._lasting.get(more, {})
            lasting = {one.queue: before.get(one.queue, -step) + step for one in found}
            self._lasting[more] = lasting
            for one in found:
                self.longest_s = max(self.longest_s, lasting[one.queue])
                limit = REACTION_S + more + one.grace_s
                if lasting[one.queue] > limit and one.queue not in self.violations:
                    self.violations[one.queue] = self._describe(one, lasting[one.queue])

    def _remember(self, at: float, pod: JsonObject) -> None:
        metadata, status = pod["metadata"], pod.get("status", {})
        state = ", ".join(
            filter(
                None,
                (
                    status.get("phase", ""),
                    "on a node" if pod["spec"].get("nodeName") else "without a node",
                    "being deleted" if metadata.get("deletionTimestamp") else "",
                    f"labels {sorted(metadata.get('labels') or {})}",
                    f"owners {[one['kind'] for one in metadata.get('ownerReferences') or []]}",
                ),
            )
        )
        history = self._histories.setdefault(metadata["name"], [])
        if not history or not history[-1].endswith(state):
            history.append(f"{at:.1f} s: {state}")

    def _describe(self, excess: Excess, lasted: float) -> str:
        what = f"{excess.running}m CPU run, {excess.allowed}m are reserved"
        lines = [f"queue {excess.queue}: {what}, for {lasted:.1f} s"]
        for name in excess.pods:
            lines += [f"  pod {name}", *(f"    {line}" for line in self._histories[name])]
        return "\n".join(lines)


@asynccontextmanager
async def sampled(
    client: Client, namespace: str, group: str, version: str, cluster_queue_suffix: str
) -> AsyncGenerator[Record]:
    """Sample a namespace at 5 Hz beside a block of code.

    Each LocalQueue ``q`` of the namespace belongs to the ClusterQueue of the name ``q`` and the suffix.

    Raises:
        AssertionError: at the end of the block; the samples show a violation, or were too few.
    """
    record = Record()
    began = time.monotonic()
    task = asyncio.create_task(
        _sample(client, namespace, f"/apis/{group}/{version}", cluster_queue_suffix, record.observe)
    )
    try:
        yield record
    finally:
        early = task.done()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    lasted = time.monotonic() - began
    assert not early, "the sampler ended early"
    assert record.samples >= int(lasted), f"{record.samples} samples in {lasted:.0f} s"
    assert not record.violations, "the law is broken:\n" + "\n".join(record.violations.values())


async def _sample(
    client: Client, namespace: str, own: str, suffix: str, observe: Callable[..., None]
) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    number = 0
    while True:
        # Pods are read first: a workload that is released after its pods ended must not count as an excess.
        with suppress(ApiError):
            pods = await _items(client, f"/api/v1/namespaces/{namespace}/pods")
            workloads, cluster_queues, jobs = await asyncio.gather(
                _items(client, f"{own}/namespaces/{namespace}/workloads"),
                _items(client, f"{own}/clusterqueues"),
                _items(client, f"/apis/batch/v1/namespaces/{namespace}/jobs"),
            )
            observe(loop.time() - began, quotas(cluster_queues, suffix), pods, workloads, jobs)
        number = max(number + 1, int((loop.time() - began) / INTERVAL_S))
        await asyncio.sleep(max(0.0, began + number * INTERVAL_S - loop.time()))


async def _items(client: Client, path: str) -> list[JsonObject]:
    return (await client.request_json("GET", path, query={"resourceVersion": "0"}))["items"]


def quotas(cluster_queues: Iterable[JsonObject], suffix: str) -> dict[str, int]:
    """Return the nominal CPU of each ClusterQueue with this suffix, by the rest of its name."""
    return {
        name.removesuffix(suffix): sum(
            milli(resource["nominalQuota"])
            for group in one["spec"].get("resourceGroups") or []
            for flavor in group["flavors"]
            for resource in flavor["resources"]
            if resource["name"] == "cpu"
        )
        for one in cluster_queues
        if (name := one["metadata"]["name"]).endswith(suffix)
    }
