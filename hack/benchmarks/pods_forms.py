"""The forms of `hack/bench throughput --shape pods`, as data, and the pods of their Jobs that run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.job_objects import PodSize

POD: Final = PodSize(100, 100)
"""The size of each pod."""
NODE_CPU: Final = 20
"""CPUs of each node, and Gi of its memory: two hundred pods."""
_PODS_PER_NODE: Final = 100
_LEAST_NODES: Final = 2
_JOB_LABEL: Final = "batch.kubernetes.io/job-name"


@dataclass(frozen=True, slots=True)
class PodsForm:
    """A number of Jobs with equal numbers of pods.

    Attributes:
        jobs: the number of Jobs.
        pods_per_job: the number of pods of each.
    """

    jobs: int
    pods_per_job: int

    @property
    def name(self) -> str:
        """The form as JOBSxPODS."""
        return f"{self.jobs}x{self.pods_per_job}"

    @property
    def pods(self) -> int:
        """The number of pods of all Jobs."""
        return self.jobs * self.pods_per_job

    @property
    def nodes(self) -> int:
        """The number of nodes: with all pods, they are half full."""
        return max(_LEAST_NODES, math.ceil(self.pods / _PODS_PER_NODE))

    def scaled(self, share: float) -> "PodsForm":
        """Return the form with this share of the pods, at least one.

        There are fewer Jobs of the same size. If not even one remains, there is one smaller Job.
        """
        if self.jobs * share >= 1:
            return PodsForm(round(self.jobs * share), self.pods_per_job)
        return PodsForm(1, max(1, round(self.pods * share)))


FORMS: Final[Mapping[str, PodsForm]] = {
    form.name: form
    for form in (PodsForm(10_000, 1), PodsForm(500, 20), PodsForm(20, 500), PodsForm(1, 10_000))
}
"""The forms by name: 10,000 pods each."""


class RunningPods:
    """The pods of each Job that run, as a watch of running pods shows them.

    Times are seconds of any clock that never goes back.

    Attributes:
        starts: for each Job of which all pods ran, the seconds from its creation until then.
    """

    def __init__(self, form: PodsForm) -> None:
        self._form = form
        self._created_at: dict[str, float] = {}
        self._running: dict[str, set[str]] = {}
        self._count = 0
        self.starts: dict[str, float] = {}

    @property
    def count(self) -> int:
        """The number of pods that run."""
        return self._count

    @property
    def are_complete(self) -> bool:
        """Whether all pods of all Jobs run."""
        return self._count == self._form.pods

    def create(self, job: str, now: float) -> None:
        """Register a Job before its creation is sent."""
        self._created_at[job] = now
        self._running[job] = set()

    def observe(self, kind: str, pod: dict[str, Any], now: float) -> None:
        """Process an event of the watch: ADDED, MODIFIED or DELETED. It contains only pods that run."""
        metadata = pod["metadata"]
        job = metadata.get("labels", {}).get(_JOB_LABEL, "")
        running = self._running.get(job)
        if running is None:
            return
        before = len(running)
        if kind == "DELETED":
            running.discard(metadata["uid"])
        else:
            running.add(metadata["uid"])
        self._count += len(running) - before
        if len(running) == self._form.pods_per_job and job not in self.starts:
            self.starts[job] = now - self._created_at[job]
