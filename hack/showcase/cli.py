"""The command line of `hack/up`."""

import argparse
import functools
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from admitq_api.labels import DEFAULT_GROUP, GROUPS, Names, names_for
from localcluster import ClusterError, LocalCluster, NodePool, processes
from localcluster.api import Api, ApiFailure
from localcluster.cluster import reclaim_orphans, to_stderr
from localcluster.installation import Installation, InstallationError
from localcluster.nodes import NodeTaint
from showcase import samples
from showcase.progress import JobProgress, read_jobs, read_queues
from showcase.view import Story, live_view

CLUSTER = "up"
_PATIENCE_S = 180.0
_SET_UP_PATIENCE_S = 60.0
_REFRESH_S = 0.25
_POOLS = (
    NodePool(count=4, cpu="4", memory="16Gi", prefix="on-demand", labels={"example.com/pool": "on-demand"}),
    NodePool(
        count=4,
        cpu="4",
        memory="16Gi",
        prefix="spot",
        labels={"example.com/pool": "spot"},
        taints=(NodeTaint("example.com/spot", "true", "NoSchedule"),),
    ),
)


class TourError(Exception):
    """The samples did not finish as they must. The message names them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tour. Return 0 if every sample Job finished."""
    options = _parser().parse_args(arguments)
    cluster = LocalCluster(CLUSTER)
    try:
        _tour(cluster, names_for(options.api_group))
    except (ClusterError, InstallationError, TourError, ApiFailure) as error:
        to_stderr(f"hack/up: {error}")
        return 1
    except KeyboardInterrupt:
        to_stderr("interrupted; hack/down stops everything")
        return 130
    finally:
        if options.down_after:
            cluster.stop()
            to_stderr("everything is stopped and removed")
    if not options.down_after:
        _say_what_next(cluster, names_for(options.api_group))
    return 0


def _tour(cluster: LocalCluster, names: Names) -> None:
    reclaim_orphans()
    if Installation(cluster).api_group() not in {None, names.group}:
        to_stderr("admitq runs with another API group there: starting again")
        cluster.stop()
    to_stderr("1/4 the control plane, with 8 simulated nodes")
    cluster.start(_POOLS)
    to_stderr(f"    {cluster.server}")
    to_stderr("2/4 admitq: the chart by helm, and its processes with the tokens of the chart's accounts")
    installation = Installation(cluster)
    installation.stop()
    installation.install(api_group=names.group)
    installation.start()
    with cluster.api() as api:
        to_stderr("3/4 the samples: two teams' queues, two flavors, a priority class, six Jobs")
        manifests = samples.write(names.group, _samples_folder(cluster))
        jobs = samples.objects(manifests["jobs.yaml"])
        _set_up_queues(api, names, manifests["queues.yaml"])
        _clear_jobs(api, jobs)
        to_stderr("4/4 the Jobs in progress")
        _follow(api, names, jobs)


def _set_up_queues(api: Api, names: Names, manifest: Path) -> None:
    queues = samples.objects(manifest)
    for obj in queues:
        # The API server may need a moment to load the webhooks' certificate.
        _until(
            functools.partial(_accepts, api, obj), f"{obj['kind']} {obj['metadata']['name']} to be accepted"
        )
    queue_objects = [obj for obj in queues if obj["kind"] in {"ClusterQueue", "LocalQueue"}]
    _until(
        lambda: all(_is_active(api.request("GET", samples.path_of(obj))) for obj in queue_objects),
        "the queues to be active",
    )
    accounts = [obj["metadata"]["name"] for obj in queues if obj["kind"] == "Namespace"]
    _until(
        lambda: all(api.healthy(f"/api/v1/namespaces/{name}/serviceaccounts/default") for name in accounts),
        f"the namespaces of API group {names.group} to take pods",
    )


def _accepts(api: Api, obj: dict[str, Any]) -> bool:
    samples.apply(api, obj)
    return True


def _clear_jobs(api: Api, jobs: Sequence[dict[str, Any]]) -> None:
    for job in jobs:
        samples.delete(api, job)
    _until(
        lambda: not any(api.healthy(samples.path_of(job)) for job in jobs),
        "the Jobs of an earlier tour to go",
    )


def _follow(api: Api, names: Names, jobs: Sequence[dict[str, Any]]) -> None:
    console = Console(stderr=True)
    names_of_jobs = [_namespace_and_name(job) for job in jobs]
    begin = time.monotonic()
    story = Story(begin)
    to_submit = list(jobs)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            if to_submit:
                samples.apply(api, to_submit.pop(0))
            progress = read_jobs(api, names, names_of_jobs)
            now = time.monotonic()
            for line in story.lines(progress, now):
                live.console.print(line, markup=False, highlight=False, soft_wrap=True)
            if len(progress) == len(names_of_jobs) and all(job.stage.over for job in progress):
                break
            if console.is_terminal:
                live.update(live_view(read_queues(api, names), progress), refresh=True)
            if now - begin > _PATIENCE_S:
                raise TourError(f"not every Job finished within {_PATIENCE_S:.0f} s: {_unfinished(progress)}")
            if not to_submit:
                time.sleep(_REFRESH_S)
    # The counts of the queues change shortly after the Jobs.
    processes.wait(
        lambda: all(queue.idle for queue in read_queues(api, names)), timeout_s=3.0, interval_s=0.2
    )
    console.print(live_view(read_queues(api, names), progress))
    if failed := [job.name for job in progress if job.stage != "finished"]:
        raise TourError(f"failed: {', '.join(failed)}")


def _unfinished(progress: Sequence[JobProgress]) -> str:
    return ", ".join(
        f"{job.name} is {job.stage} {job.reason}".rstrip() for job in progress if not job.stage.over
    )


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


def _say_what_next(cluster: LocalCluster, names: Names) -> None:
    kubectl = (
        f"KUBECONFIG={shlex.quote(str(cluster.kubeconfig))} {shlex.quote(str(cluster.program('kubectl')))}"
    )
    one_more = shlex.quote(str(_samples_folder(cluster) / "one-more.yaml"))
    print("\nThe cluster continues to run. Try next:\n")
    print(f"  {kubectl} create -f {one_more}")
    kinds = ",".join(f"{plural}.{names.group}" for plural in ("clusterqueues", "localqueues", "workloads"))
    print(f"  {kubectl} get {kinds} -A -o wide")
    print(f"  {kubectl} describe job urgent -n team-a\n")
    print("hack/down stops and deletes everything.")


def _samples_folder(cluster: LocalCluster) -> Path:
    return cluster.folder / "samples"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hack/up",
        description="Set up a cluster with admitq from a clean clone, and show the progress of sample Jobs.",
    )
    parser.add_argument(
        "--api-group",
        choices=GROUPS,
        default=DEFAULT_GROUP,
        help=f"API group of all kinds of admitq (default {DEFAULT_GROUP})",
    )
    parser.add_argument("--down-after", action="store_true", help="stop and delete everything at the end")
    return parser


if __name__ == "__main__":
    sys.exit(main())
