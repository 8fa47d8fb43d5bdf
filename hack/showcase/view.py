"""The progress of the samples as tables and lines of text."""

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table

from showcase.progress import FlavorUse, JobProgress, JobStage, QueueProgress

_STYLES = {
    JobStage.HELD: "yellow",
    JobStage.ADMITTED: "cyan",
    JobStage.RUNNING: "green",
    JobStage.FINISHED: "dim",
    JobStage.FAILED: "red",
}


def live_view(queues: Sequence[QueueProgress], jobs: Sequence[JobProgress]) -> Group:
    """Return two tables: the ClusterQueues and the Jobs."""
    of_queues = Table("ClusterQueue", "Pending", "Admitted", "CPU used of quota", title_justify="left")
    for queue in queues:
        use = "   ".join(_use(flavor) for flavor in queue.flavors)
        of_queues.add_row(queue.name, str(queue.pending), str(queue.admitted), use)
    of_jobs = Table("Job", "State", "Pods ready", "Flavor", "Why it waits")
    for job in jobs:
        state = f"[{_STYLES[job.stage]}]{job.stage}[/]"
        ready = "" if job.stage.over else f"{job.ready} of {job.pods}"
        of_jobs.add_row(job.name, state, ready, ", ".join(job.flavors), job.reason)
    return Group(of_queues, of_jobs)


class Story:
    """The progress of Jobs as lines of text: one for each change of stage.

    Args:
        begin: the instant, in seconds, from which times in the lines count.
    """

    def __init__(self, begin: float) -> None:
        self._begin = begin
        self._reported: dict[str, JobProgress] = {}

    def lines(self, jobs: Sequence[JobProgress], now: float) -> list[str]:
        """Return the lines since the last call."""
        fresh: list[str] = []
        for job in jobs:
            before = self._reported.get(job.name)
            # The reason is written shortly after the Job, and says more than the stage.
            if before is None or before.stage is not job.stage or (job.reason and not before.reason):
                fresh.append(f"{now - self._begin:6.1f} s  {job.name:<16} {_sentence(job)}")
                self._reported[job.name] = job
        return fresh


def _sentence(job: JobProgress) -> str:
    flavor = f" on {', '.join(job.flavors)}" if job.flavors else ""
    match job.stage:
        case JobStage.HELD:
            return f"held: {job.reason}" if job.reason else "held"
        case JobStage.ADMITTED:
            return f"admitted{flavor}"
        case JobStage.RUNNING:
            return f"running{flavor}, {job.ready} of {job.pods} pods ready"
        case JobStage.FINISHED:
            return "finished"
        case JobStage.FAILED:
            return "failed"


def _use(use: FlavorUse) -> str:
    borrowed = f" ({use.borrowed} borrowed)" if use.borrowed not in {"", "0"} else ""
    return f"{use.flavor} {use.used} of {use.nominal}{borrowed}"
