"""The command line of `hack/cluster`."""

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Sequence

from localcluster import binaries, nodes, operator_builds
from localcluster.cluster import LocalCluster, all_clusters, reclaim_orphans, to_stderr
from localcluster.cluster_processes import ALL_COMPONENTS, COMPONENTS, ClusterError
from localcluster.nodes import NodeOptionError, NodePool
from localcluster.operator_builds import OperatorBuildError
from localcluster.operator_processes import run_operators
from localcluster.operator_table import OPERATORS, UnknownOperatorError, with_needs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Return 0 for success, 1 for a failure, 2 for wrong use."""
    options = _parser().parse_args(arguments)
    try:
        return _COMMANDS[options.command](options)
    except (
        ClusterError,
        NodeOptionError,
        binaries.BuildError,
        OperatorBuildError,
        UnknownOperatorError,
    ) as error:
        to_stderr(f"hack/cluster {options.command}: {error}")
        return 1
    except BrokenPipeError:
        # The reader has closed the pipe. At exit, buffered output cannot be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        to_stderr("interrupted")
        return 130


def _up(options: argparse.Namespace) -> int:
    reclaim_orphans()
    calls_pods = any(operator.calls_pods for operator in with_needs(options.operators))
    cluster = LocalCluster(options.name)
    pool = NodePool(
        count=options.nodes,
        cpu=options.cpu,
        memory=options.memory,
        pods=options.pods,
        labels=dict(nodes.parse_label(text) for text in options.node_label),
        taints=tuple(nodes.parse_taint(text) for text in options.node_taint),
        resources=dict(nodes.parse_label(text) for text in options.node_resource),
    )
    started = cluster.start(
        (pool,),
        component_names=ALL_COMPONENTS if calls_pods else COMPONENTS,
        api_server_arguments=options.apiserver_arg,
    )
    to_stderr(f"cluster {cluster.name} {'runs' if started else 'ran already'} at {cluster.server}")
    run_operators(cluster, options.operators)
    to_stderr(f'use it: eval "$(hack/cluster env --name {cluster.name})"')
    return 0


def _down(options: argparse.Namespace) -> int:
    clusters = all_clusters() if options.all else [LocalCluster(options.name)]
    for cluster in clusters:
        stopped = cluster.stop()
        to_stderr(f"cluster {cluster.name} {'stopped and removed' if stopped else 'did not exist'}")
    return 0


def _status(options: argparse.Namespace) -> int:
    clusters = [LocalCluster(options.name)] if options.name else all_clusters()
    if not clusters:
        print("no cluster runs; start one: hack/cluster up")
    all_well = True
    for cluster in clusters:
        if not cluster.exists():
            print(f"{cluster.name}: does not run; start it: hack/cluster up --name {cluster.name}")
            all_well = False
            continue
        all_well &= _print_status(cluster)
    return 0 if all_well else 1


def _print_status(cluster: LocalCluster) -> bool:
    print(f"{cluster.name}  {cluster.server}  {cluster.kubeconfig}")
    statuses = cluster.status()
    for status in statuses:
        if status.usage is None:
            print(f"  {status.name:<26} DEAD     pid {status.pid}, log {status.log}")
        else:
            print(
                f"  {status.name:<26} running  pid {status.pid}, "
                f"{status.usage.cpu_seconds:.1f} CPU-s, {status.usage.rss_mib:.0f} MiB"
            )
    for status in statuses:
        if not status.alive:
            print(f"  last lines of the log of {status.name}:")
            print("\n".join(f"    {line}" for line in cluster.last_words(status.name).splitlines()))
    alive = all(status.alive for status in statuses)
    if alive and not cluster.healthy():
        print("  every process runs, but the API server is not ready")
        return False
    return alive


def _env(options: argparse.Namespace) -> int:
    cluster = LocalCluster(options.name)
    inherited = os.pathsep + os.environ.get("PATH", os.defpath) + os.pathsep
    for name, value in cluster.environment().items():
        if name == "PATH":
            before, _, after = value.partition(inherited)
            print(f'export PATH={shlex.quote(before)}:"$PATH":{shlex.quote(after)}')
        else:
            print(f"export {name}={shlex.quote(value)}")
    return 0


def _build(options: argparse.Namespace) -> int:
    operators = with_needs(options.operators)
    binaries.build()
    operator_builds.build(operators, to_stderr)
    return 0


def _built(options: argparse.Namespace) -> int:
    missing = [each.name for each in with_needs(options.operators) if not operator_builds.is_built(each)]
    if missing:
        to_stderr(
            f"not built: {', '.join(missing)}; build: hack/cluster build --operators {','.join(missing)}"
        )
    return 1 if missing else 0


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "up": _up,
    "down": _down,
    "status": _status,
    "env": _env,
    "build": _build,
    "built": _built,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hack/cluster",
        description="Run a real Kubernetes control plane on this machine, with simulated nodes.",
    )
    commands = parser.add_subparsers(dest="command", required=True)

    up = commands.add_parser("up", help="start a cluster; build missing programs first")
    _add_name(up)
    up.add_argument("--nodes", type=_count, default=100, metavar="N", help="number of nodes (default 100)")
    up.add_argument("--cpu", default="10", metavar="Q", help="allocatable CPU of a node (default 10)")
    up.add_argument(
        "--memory", default="10Gi", metavar="Q", help="allocatable memory of a node (default 10Gi)"
    )
    up.add_argument(
        "--pods", type=_count, default=110, metavar="N", help="maximum number of pods of a node (default 110)"
    )
    up.add_argument(
        "--node-label", action="append", default=[], metavar="KEY=VALUE", help="label of the nodes"
    )
    up.add_argument(
        "--node-taint",
        action="append",
        default=[],
        metavar="KEY=VALUE:EFFECT",
        help="taint of the nodes",
    )
    up.add_argument(
        "--node-resource",
        action="append",
        default=[],
        metavar="NAME=Q",
        help="further resource of the nodes",
    )
    up.add_argument(
        "--apiserver-arg",
        action="append",
        default=[],
        metavar="ARG",
        help="add an argument of kube-apiserver: --apiserver-arg=--v=4",
    )
    _add_operators(up, "start these operators, with their CRDs and webhooks")

    down = commands.add_parser("down", help="stop a cluster and delete its state")
    _add_name(down)
    down.add_argument("--all", action="store_true", help="stop every cluster of this checkout")

    status = commands.add_parser("status", help="show the processes, and the last log lines of dead ones")
    status.add_argument("--name", default=None, help="only this cluster")

    env = commands.add_parser("env", help='print variables for a shell: eval "$(hack/cluster env)"')
    _add_name(env)

    build = commands.add_parser("build", help="build the programs only")
    _add_operators(build, "also build these operators")

    built = commands.add_parser("built", help="fail unless operators are built")
    _add_operators(built, "check these operators")
    return parser


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", default="default", help="name of the cluster (default: default)")


def _add_operators(parser: argparse.ArgumentParser, what: str) -> None:
    available = ", ".join(operator.name for operator in OPERATORS)
    parser.add_argument(
        "--operators",
        type=_names,
        default=[],
        metavar="NAME,…",
        help=f"{what}, with those that they need; available: {available}",
    )


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return number


if __name__ == "__main__":
    sys.exit(main())
