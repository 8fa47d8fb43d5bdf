"""The command line of `hack/up`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from admitq_api.labels import DEFAULT_GROUP, GROUPS, Names, names_for
from localcluster import ClusterError, LocalCluster
from localcluster.api import ApiFailure
from localcluster.cluster import reclaim_orphans, to_stderr
from localcluster.installation import Installation, InstallationError
from showcase import samples
from showcase.samples import DEFAULT_SAMPLE, Sample
from showcase.tour import Tour, TourError

CLUSTER = "up"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tour. Return 0 if every Job of the sample got to its last stage."""
    options = _parser().parse_args(arguments)
    cluster, sample = LocalCluster(CLUSTER), samples.load(options.sample)
    manifests = cluster.folder / "samples" / options.sample
    try:
        _tour(cluster, names_for(options.api_group), options.sample, sample, manifests)
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
        _say_what_next(sample, manifests)
    return 0


def _tour(cluster: LocalCluster, names: Names, name: str, sample: Sample, folder: Path) -> None:
    reclaim_orphans()
    if Installation(cluster).api_group() not in {None, names.group}:
        to_stderr("admitq runs with another API group there: starting again")
        cluster.stop()
    count = sum(pool.count for pool in sample.nodes)
    to_stderr(f"1/4 the control plane, with {count} simulated nodes")
    # A cluster that runs keeps the nodes and Jobs of other samples.
    cluster.start(())
    for pool in sample.nodes:
        cluster.add_nodes(pool)
    to_stderr(f"    {cluster.server}")
    to_stderr("2/4 admitq: the chart by helm, and its processes with the tokens of the chart's accounts")
    installation = Installation(cluster)
    installation.stop()
    installation.install(api_group=names.group)
    installation.start()
    with cluster.api() as api:
        to_stderr(f"3/4 the sample {name}: {sample.summary}")
        tour = Tour.of_manifests(sample, api, names, samples.write(name, names.group, folder))
        tour.set_up()
        to_stderr("4/4 the Jobs in progress")
        tour.follow(Console(stderr=True))


def _say_what_next(sample: Sample, folder: Path) -> None:
    print("\nThe cluster continues to run. Try next:\n")
    for command in (f'eval "$(hack/cluster env --name {CLUSTER})"', *sample.commands_in(folder)):
        print(f"  {command}")
    print("\nhack/down stops and deletes everything.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hack/up",
        description="Set up a cluster with admitq from a clean clone, and show the progress of sample Jobs.",
        epilog="samples:\n"
        + "\n".join(f"  {name:<10} {samples.load(name).summary}" for name in samples.names()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--sample",
        choices=samples.names(),
        default=DEFAULT_SAMPLE,
        help=f"nodes, queues and Jobs to create (default {DEFAULT_SAMPLE})",
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
