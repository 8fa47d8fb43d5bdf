"""A load that a cluster without a queue manager cannot finish.

Each Job has ten pods. Their run time begins when all ten are ready, as in an application with a barrier. A
Job that gets only some of its pods keeps them until its deadline. This harness ends a pod by one patch of its
status, as a kubelet would. It runs on the measured machine, so it uses only three watches: Jobs, running
pods, and pods without a node.

With `raises`, further Jobs of one pod run beside the load, in their own queue. Each is raised to fifty pods
while it runs. The figure is the time until admitq has suspended it.
"""

import asyncio
import datetime as dt
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS, PODS, Resource
from admitq.runtime.store import ObjectChange, Store
from admitq.runtime.watcher import Watcher
from admitq_api.labels import Names, names_for
from benchmarks import job_objects
from benchmarks.bounded_tasks import stopped_after, tasks_beside
from benchmarks.clusters import HARNESS, fresh_cluster, harness_client, until_done, usages
from benchmarks.harness_probes import summary
from benchmarks.job_objects import NAMESPACE, PodSize
from benchmarks.measures import AmountOverTime, percentile_of_unsorted, usage_by_process
from localcluster import processes
from localcluster.cluster import to_stderr
from localcluster.installation import Installation

PODS_PER_JOB: Final = 10
RUN_TIME_S: Final = 180.0
JITTER: Final = 0.5
# Calls in progress at once. More calls would only wait in the API server's queues.
_SUBMITTERS: Final = 16
_ENDERS: Final = 32
_PROGRESS_EVERY_S: Final = 5.0
_RAISERS: Final = 8
RAISED_TO: Final = 50
_QUEUE: Final = "bench"
_RAISES_QUEUE: Final = "raises"


class SettingError(Exception):
    """The options do not define a valid benchmark."""


SETTINGS: Final = {"literal": PodSize(2000, 2048), "ten-minute": PodSize(333, 333)}


@dataclass(frozen=True)
class Plan:
    """The parameters of a run.

    Attributes:
        setting: a key of `SETTINGS`.
        scale: run times are divided by it.
        jobs: number of Jobs.
        nodes: number of nodes.
        node_cpu: CPUs of a node, and Gi of its memory.
        deadline_s: activeDeadlineSeconds of each Job.
        timeout_s: seconds after which the run stops; None: see `patience_s`.
        queue: whether admitq queues the Jobs.
        seed: seed of the random run times.
        raises: number of further Jobs that are raised while they run; needs `queue`.
    """

    setting: str
    scale: float
    jobs: int
    nodes: int
    node_cpu: int
    deadline_s: int
    timeout_s: float | None
    queue: bool
    seed: int
    raises: int = 0

    @property
    def pod(self) -> PodSize:
        """The size of a pod."""
        return SETTINGS[self.setting]

    @property
    def slots_per_node(self) -> int:
        """The number of pods that fit on a node at once."""
        return self.pod.per_node(self.node_cpu)

    @property
    def slots(self) -> int:
        """The number of pods that run at once."""
        return self.nodes * self.slots_per_node

    @property
    def run_time_s(self) -> float:
        """The shortest run time of a pod."""
        return RUN_TIME_S / self.scale

    @property
    def bound_s(self) -> float:
        """The wall time with the mean run time, if no slot was ever empty."""
        mean = self.run_time_s * (1 + JITTER / 2)
        return max(mean, self.jobs * PODS_PER_JOB * mean / self.slots)

    @property
    def patience_s(self) -> float:
        """The seconds after which the run stops."""
        return self.timeout_s if self.timeout_s is not None else max(1800.0, 3 * self.bound_s)


@dataclass
class _Job:
    submitted_at: float
    running: dict[str, str] = field(default_factory=dict[str, str])
    released: bool = False
    admitted_at: float | None = None
    outcome: str | None = None


async def run(plan: Plan) -> tuple[dict[str, Any], bool]:
    """Run the benchmark on its own cluster.

    Returns:
        The result, and whether it meets its bounds. With admitq, every Job must succeed. Without admitq
        there are no bounds.

    Raises:
        SettingError: a Job does not fit into the cluster.
        ClusterError: the cluster cannot be started.
        InstallationError: admitq cannot be installed or started.
    """
    if plan.raises and not plan.queue:
        raise SettingError("--raises needs admitq: remove --no-queue")
    if plan.slots < PODS_PER_JOB:
        raise SettingError(f"{plan.nodes} nodes of {plan.node_cpu} CPUs have no room for {PODS_PER_JOB} pods")
    pool = job_objects.node_pool(plan.nodes, plan.node_cpu, plan.pod)
    to_stderr(f"starting a cluster of {plan.nodes} nodes with {plan.node_cpu} CPUs each")
    with fresh_cluster((pool,)) as cluster:
        names = names_for()
        if plan.queue:
            to_stderr("installing admitq")
            installation = Installation(cluster)
            installation.install(api_group=names.group)
            installation.start()
        async with harness_client(cluster.kubeconfig) as client:
            await job_objects.prepare(client, _quotas(plan), names)
            harness = _Harness(client, plan, names)
            before = usages(cluster)
            await harness.run()
            used = usage_by_process(
                before,
                [(status.name, status.usage) for status in cluster.status()]
                + [(HARNESS, processes.current().usage())],
            )
        result = {**harness.result(), "processes": used}
        is_done = result["done"] == plan.jobs and result["failed"] == 0
        return result, not plan.queue or (is_done and result.get("raises_stopped", 0) == plan.raises)


class _Harness:
    """Submit the Jobs, end their pods, and count."""

    def __init__(self, client: Client, plan: Plan, names: Names) -> None:
        self._client = client
        self._plan = plan
        self._names = names
        self._random = random.Random(plan.seed)  # noqa: S311 - run times, not secrets
        self._jobs: dict[str, _Job] = {}
        self._running = AmountOverTime()
        self._pending = AmountOverTime()
        self._outcomes = {"done": 0, "failed": 0}
        self._raises = Raises(client, plan, names)
        self._over = asyncio.Event()
        self._enders = asyncio.Semaphore(_ENDERS)
        self._end_waits: list[float] = []
        """Seconds from the end of each pod's run time until its write was sent."""
        self._ending: set[asyncio.Task[None]] = set()
        self._begin = 0.0
        self._end = 0.0

    async def run(self) -> None:
        """Run until every Job has ended, or until the timeout."""
        watchers = [
            self._watcher(JOBS, self._job_changed),
            self._watcher(PODS, self._running_changed, "status.phase=Running"),
            self._watcher(PODS, self._unbound_changed, "spec.nodeName="),
        ]
        async with tasks_beside(*(watcher.run() for watcher in watchers)):
            for watcher in watchers:
                await watcher.synced.wait()
            self._begin = time.monotonic()
            for level in (self._running, self._pending):
                level.begin(self._begin)
            async with tasks_beside(self._report()):
                async with stopped_after(self._plan.patience_s), asyncio.TaskGroup() as group:
                    group.create_task(self._raises.run())
                    await self._submit_all()
                    await self._over.wait()
                self._end = time.monotonic()
            for task in self._ending:
                task.cancel()

    def result(self) -> dict[str, Any]:
        """Return the figures of a finished run."""
        wall_s = self._end - self._begin
        waits = [
            job.admitted_at - job.submitted_at for job in self._jobs.values() if job.admitted_at is not None
        ]
        mean_running = self._running.mean(self._end)
        plan = self._plan
        return {
            "benchmark": "seed",
            "setting": plan.setting,
            "scale": plan.scale,
            "queue": plan.queue,
            "nodes": plan.nodes,
            "node_cpu": plan.node_cpu,
            "slots": plan.slots,
            "deadline_s": plan.deadline_s,
            "jobs": plan.jobs,
            "done": self._outcomes["done"],
            "failed": self._outcomes["failed"],
            "unfinished": plan.jobs - sum(self._outcomes.values()),
            "wall_s": round(wall_s, 1),
            "bound_s": round(plan.bound_s, 1),
            "ratio": round(wall_s / plan.bound_s, 3),
            "mean_running_pods": round(mean_running, 1),
            "peak_running_pods": self._running.peak,
            "mean_use_of_slots": round(mean_running / plan.slots, 3),
            "peak_pending_pods": self._pending.peak,
            "jobs_per_s": round(self._outcomes["done"] / wall_s, 2),
            **{
                f"admit_p{percent}_s": _rounded(percentile_of_unsorted(waits, percent))
                for percent in (50, 90, 99)
            },
            "harness": {"end_wait_s": summary(self._end_waits)},
            **self._raises.result(),
        }

    def _watcher(
        self, resource: Resource, handler: Callable[[ObjectChange], None], field_selector: str | None = None
    ) -> Watcher:
        return Watcher(
            self._client,
            resource,
            Store(resource, transform=_trim),
            namespace=NAMESPACE,
            field_selector=field_selector,
            handlers=(handler,),
        )

    async def _submit_all(self) -> None:
        numbers = iter(range(self._plan.jobs))

        async def submit() -> None:
            for number in numbers:
                name = f"job-{number}"
                self._jobs[name] = _Job(submitted_at=time.monotonic())
                job = _job(name, self._plan, self._names)
                await until_done(lambda job=job: self._client.create(JOBS, job))

        async with asyncio.TaskGroup() as group:
            for _ in range(_SUBMITTERS):
                group.create_task(submit())

    def _job_changed(self, change: ObjectChange) -> None:
        self._raises.job_changed(change)
        job = self._jobs.get(change.key.name)
        if job is None or change.new is None:
            return
        now = time.monotonic()
        if job.admitted_at is None and not change.new["spec"].get("suspend"):
            job.admitted_at = now
        if job.outcome is None:
            conditions = change.new.get("status", {}).get("conditions") or ()
            ended = {entry["type"] for entry in conditions if entry["status"] == "True"}
            if "Complete" in ended or "Failed" in ended:
                job.outcome = "done" if "Complete" in ended else "failed"
                self._outcomes[job.outcome] += 1
                if sum(self._outcomes.values()) == self._plan.jobs:
                    self._over.set()

    def _running_changed(self, change: ObjectChange) -> None:
        now = time.monotonic()
        pod = change.object
        job = self._jobs.get(pod["metadata"]["labels"].get("batch.kubernetes.io/job-name", ""))
        if job is None:
            return
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if change.kind == "added":
            self._running.change(+1, now)
        elif change.kind == "deleted":
            self._running.change(-1, now)
            job.running.pop(uid, None)
        if change.new is not None and _is_ready(pod):
            job.running[uid] = name
        if not job.released and len(job.running) == PODS_PER_JOB:
            job.released = True
            self._release(job)

    def _unbound_changed(self, change: ObjectChange) -> None:
        by = {"added": +1, "modified": 0, "deleted": -1}[change.kind]
        self._pending.change(by, time.monotonic())

    def _release(self, job: _Job) -> None:
        """Start the run time of a Job's pods: all of them are ready."""
        loop = asyncio.get_running_loop()
        for name in job.running.values():
            run_time = self._plan.run_time_s * (1 + JITTER * self._random.random())
            due = loop.time() + run_time
            loop.call_at(due, self._begin_end, name, due)

    def _begin_end(self, name: str, due: float) -> None:
        task = asyncio.ensure_future(self._end_pod(name, due))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end_pod(self, name: str, due: float) -> None:
        async with self._enders:
            self._end_waits.append(asyncio.get_running_loop().time() - due)
            try:
                await self._client.merge_patch(PODS, name, {"status": _ended()}, NAMESPACE, "status")
            except ApiError as error:
                # The pod may be deleted before the end of its run time.
                if not error.is_not_found:
                    to_stderr(f"pod {name} could not be ended: {error}")

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_EVERY_S)
            admitted = sum(job.admitted_at is not None for job in self._jobs.values())
            to_stderr(
                f"{time.monotonic() - self._begin:6.0f} s  submitted {len(self._jobs)}, admitted {admitted}, "
                f"running {self._running.value} of {self._plan.slots} pods, pending {self._pending.value}, "
                f"done {self._outcomes['done']}, failed {self._outcomes['failed']}"
            )


class Raises:
    """Raise running Jobs beyond their admission, and measure the time until each is stopped.

    The time is from the answer to the write until the watch shows the suspended Job.
    """

    def __init__(self, client: Client, plan: Plan, names: Names) -> None:
        self._client = client
        self._plan = plan
        self._names = names
        self._suspended: dict[str, asyncio.Event] = {}
        self._running: dict[str, asyncio.Event] = {}
        self._seconds: list[float] = []

    async def run(self) -> None:
        """Raise Jobs, a few at a time, until there were as many as planned."""
        numbers = iter(range(self._plan.raises))

        async def raise_some() -> None:
            for number in numbers:
                await self._raise(f"raise-{number}")

        async with asyncio.TaskGroup() as group:
            for _ in range(_RAISERS):
                group.create_task(raise_some())

    def job_changed(self, change: ObjectChange) -> None:
        """Process a change of any Job."""
        name, new = change.key.name, change.new
        if name not in self._running or new is None:
            return
        if not new["spec"].get("suspend"):
            if new["status"].get("active"):
                self._running[name].set()
        elif self._running[name].is_set():
            self._suspended[name].set()

    def result(self) -> dict[str, Any]:
        """Return the figures, or none without raises."""
        if not self._plan.raises:
            return {}
        times = {f"p{percent}": percentile_of_unsorted(self._seconds, percent) for percent in (50, 90, 99)}
        times["max"] = max(self._seconds, default=None)
        return {
            "raises": self._plan.raises,
            "raises_stopped": len(self._seconds),
            **{f"raise_stop_{name}_s": _rounded(value) for name, value in times.items()},
        }

    async def _raise(self, name: str) -> None:
        job = _job(name, self._plan, self._names)
        job["metadata"]["labels"] = {self._names.queue_name: _RAISES_QUEUE}
        job["spec"] |= {"parallelism": 1, "completions": RAISED_TO}
        running, suspended = asyncio.Event(), asyncio.Event()
        self._running[name], self._suspended[name] = running, suspended
        await until_done(lambda: self._client.create(JOBS, job))
        await running.wait()
        raised = {"spec": {"parallelism": RAISED_TO}}
        await until_done(lambda: self._client.merge_patch(JOBS, name, raised, NAMESPACE))
        written = time.monotonic()
        await suspended.wait()
        self._seconds.append(time.monotonic() - written)
        await until_done(lambda: self._client.delete(JOBS, name, NAMESPACE, propagation="Background"))


def _quotas(plan: Plan) -> dict[str, int]:
    """Return the quota of each queue: CPUs, and as many Gi."""
    # The quota of raises is sufficient for their Jobs as created, but not for a raised Job.
    raises = {_RAISES_QUEUE: _RAISERS * 2} if plan.raises else {}
    return {_QUEUE: plan.nodes * plan.node_cpu, **raises} if plan.queue else {}


def _job(name: str, plan: Plan, names: Names) -> dict[str, Any]:
    queue = _QUEUE if plan.queue else None
    job = job_objects.job(name, PODS_PER_JOB, plan.pod, queue=queue, names=names)
    job["spec"]["activeDeadlineSeconds"] = plan.deadline_s
    return job


def _ended() -> dict[str, Any]:
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    terminated = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
    return {
        "phase": "Succeeded",
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": now},
            {"type": "Initialized", "status": "True", "lastTransitionTime": now},
            {"type": "Ready", "status": "False", "reason": "PodCompleted", "lastTransitionTime": now},
            {
                "type": "ContainersReady",
                "status": "False",
                "reason": "PodCompleted",
                "lastTransitionTime": now,
            },
        ],
        "containerStatuses": [
            {
                "name": "work",
                "image": "example.com/work:1",
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": {"terminated": terminated},
            }
        ],
    }


def _trim(obj: dict[str, Any]) -> dict[str, Any]:
    """Return only the fields that the handlers read, so that a store of ten thousand pods stays small."""
    metadata, spec, status = obj["metadata"], obj.get("spec", {}), obj.get("status", {})
    return {
        "metadata": {
            key: metadata[key]
            for key in ("name", "namespace", "uid", "resourceVersion", "labels")
            if key in metadata
        },
        "spec": {"suspend": spec.get("suspend", False)},
        "status": {"conditions": status.get("conditions") or [], "active": status.get("active", 0)},
    }


def _is_ready(pod: dict[str, Any]) -> bool:
    return any(
        entry["type"] == "Ready" and entry["status"] == "True" for entry in pod["status"]["conditions"]
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
