"""The steps of a tour beside a running admitq: create the queues of a sample, and follow its Jobs."""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from admitq_api.labels import Names
from localcluster import processes
from localcluster.api import Api, ApiFailure
from showcase import samples
from showcase.objects import apply, delete, path_of
from showcase.progress import JobProgress, read_jobs, read_queues
from showcase.samples import Sample
from showcase.view import Story, live_view

_PATIENCE_S = 180.0
_SET_UP_PATIENCE_S = 60.0
_REFRESH_S = 0.25


class TourError(Exception):
    """The Jobs of a sample did not get to their last stages. The message names them."""


@dataclass(frozen=True)
class Tour:
    """A tour with the objects of one sample.

    Attributes:
        sample: the sample.
        api: the cluster, which has the nodes of the sample and runs admitq.
        names: the names of the API group.
        queues: the objects that the Jobs need, in the order of their creation.
        jobs: the Jobs, in the order of their creation.
    """

    sample: Sample
    api: Api
    names: Names
    queues: Sequence[dict[str, Any]]
    jobs: Sequence[dict[str, Any]]

    @classmethod
    def of_manifests(cls, sample: Sample, api: Api, names: Names, manifests: dict[str, Path]) -> "Tour":
        """Return the tour with the manifests of a sample, by file name."""
        queues, jobs = (samples.objects(manifests[name]) for name in ("queues.yaml", "jobs.yaml"))
        return cls(sample, api, names, queues, jobs)

    def set_up(self) -> None:
        """Create the queues, and delete the Jobs of an earlier tour.

        Raises:
            TourError: this takes too long.
        """
        for obj in self.queues:
            # The API server may need a moment to load the webhooks' certificate.
            _until(
                functools.partial(_is_applied, self.api, obj),
                f"{obj['kind']} {obj['metadata']['name']} to be accepted",
            )
        queues = [obj for obj in self.queues if obj["kind"] in {"ClusterQueue", "LocalQueue"}]
        _until(
            lambda: all(_is_active(self.api.request("GET", path_of(obj))) for obj in queues),
            "the queues to be active",
        )
        namespaces = [obj["metadata"]["name"] for obj in self.queues if obj["kind"] == "Namespace"]
        accounts = [f"/api/v1/namespaces/{name}/serviceaccounts/default" for name in namespaces]
        _until(
            lambda: all(map(self.api.healthy, accounts)),
            f"the namespaces of API group {self.names.group} to take pods",
        )
        self.delete_jobs()

    def delete_jobs(self) -> None:
        """Delete the Jobs, and wait until they are gone."""
        for job in self.jobs:
            delete(self.api, job)
        _until(
            lambda: not any(self.api.healthy(path_of(job)) for job in self.jobs),
            "the Jobs of an earlier tour to go",
        )

    def follow(self, console: Console) -> None:
        """Create the Jobs one after another, and show their progress until each is in its last stage.

        Raises:
            TourError: a Job does not get there in time, or fails.
        """
        names_of_jobs = [_namespace_and_name(job) for job in self.jobs]
        begin = time.monotonic()
        story = Story(begin)
        to_submit = list(self.jobs)
        progress: list[JobProgress] = []
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while True:
                # In this order, and not by chance: which Job gets quota and a place can depend on it.
                if to_submit and all(job.is_decided for job in progress):
                    apply(self.api, to_submit.pop(0))
                progress = read_jobs(self.api, self.names, names_of_jobs)
                now = time.monotonic()
                for line in story.lines(progress, now):
                    live.console.print(line, markup=False, highlight=False, soft_wrap=True)
                if len(progress) == len(names_of_jobs) and all(map(self._is_over, progress)):
                    break
                if console.is_terminal:
                    live.update(live_view(read_queues(self.api, self.names), progress), refresh=True)
                if now - begin > _PATIENCE_S:
                    raise TourError(
                        f"not every Job was in its last stage within {_PATIENCE_S:.0f} s: "
                        f"{self._unfinished(progress)}"
                    )
                time.sleep(_REFRESH_S if not to_submit else _REFRESH_S / 5)
        # The counts of the queues change shortly after the Jobs.
        processes.wait(lambda: self._is_counted(progress), timeout_s=3.0, interval_s=0.2)
        console.print(live_view(read_queues(self.api, self.names), progress))
        if wrong := [job for job in progress if job.stage is not self.sample.last_stage(job.name)]:
            raise TourError(", ".join(f"{job.name} is {job.stage}" for job in wrong))

    def _is_over(self, job: JobProgress) -> bool:
        return job.stage.over or (job.stage is self.sample.last_stage(job.name) and job.is_settled)

    def _is_counted(self, progress: Sequence[JobProgress]) -> bool:
        unfinished = sum(not job.stage.over for job in progress)
        own = {obj["metadata"]["name"] for obj in self.queues if obj["kind"] == "ClusterQueue"}
        queues = [queue for queue in read_queues(self.api, self.names) if queue.name in own]
        return sum(queue.pending + queue.admitted for queue in queues) == unfinished

    def _unfinished(self, progress: Sequence[JobProgress]) -> str:
        return ", ".join(
            f"{job.name} is {job.stage} {job.reason}".rstrip() for job in progress if not self._is_over(job)
        )


def _is_applied(api: Api, obj: dict[str, Any]) -> bool:
    apply(api, obj)
    return True


def _namespace_and_name(job: dict[str, Any]) -> tuple[str, str]:
    return job["metadata"]["namespace"], job["metadata"]["name"]


def _is_active(obj: dict[str, Any]) -> bool:
    conditions = obj.get("status", {}).get("conditions", [])
    return any(entry["type"] == "Active" and entry["status"] == "True" for entry in conditions)


def _until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition. While the API server refuses a call, the condition does not hold."""
    refusal = ""

    def holds() -> bool:
        nonlocal refusal
        try:
            return condition()
        except ApiFailure as failure:
            refusal = f": {failure}"
            return False

    if not processes.wait(holds, timeout_s=_SET_UP_PATIENCE_S, interval_s=0.1):
        raise TourError(f"waited {_SET_UP_PATIENCE_S:.0f} s for {what} without success{refusal}")
