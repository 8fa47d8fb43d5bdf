"""The benchmarks of `hack/bench` and the shapes of `hack/bench throughput`: their options, and what they run.

Each command has one place for its options. A benchmark that is also a shape is the same command.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvloop

from admitq_api.labels import DEFAULT_GROUP, GROUPS
from benchmarks import (
    ask,
    calibration,
    core,
    depth,
    pods,
    restart,
    seed,
    start,
    throughput,
    topology,
    topology_end_to_end,
    webhook,
    writes,
)
from benchmarks.etcd_gateway import EtcdFailed
from benchmarks.pods_forms import FORMS
from benchmarks.throughput_connection import ThroughputFailed
from benchmarks.throughput_shapes import SHAPES as WORKLOAD_SHAPES
from benchmarks.webhook_cases import CASES
from benchmarks.webhook_processes import WebhookFailed
from localcluster import ClusterError
from localcluster.crds import DefinitionsError
from localcluster.installation import InstallationError

FAILURES: Final = (
    ClusterError,
    DefinitionsError,
    InstallationError,
    ThroughputFailed,
    seed.SettingError,
    EtcdFailed,
    core.MeasurementFailed,
    start.NotInTime,
    WebhookFailed,
    writes.WritesFailed,
)
"""The errors that end a benchmark without a result."""


@dataclass(frozen=True)
class BenchmarkCommand:
    """A benchmark, or a shape of `hack/bench throughput`.

    Attributes:
        help: what it measures, as in a list of commands.
        add_options: adds its options to a parser.
        run: runs it with parsed options; returns the result, and whether all figures are within their bounds.
    """

    help: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], tuple[dict[str, Any], bool]]


def _seed(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    plan = seed.Plan(
        setting=options.setting,
        scale=options.scale,
        jobs=options.jobs,
        nodes=options.nodes,
        node_cpu=options.node_cpu,
        deadline_s=options.deadline,
        timeout_s=options.timeout,
        queue=not options.no_queue,
        seed=options.seed,
        raises=options.raises,
    )
    return uvloop.run(seed.run(plan))


def _core(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    effort = core.Effort(options.scale, options.repeats)
    return {"benchmark": "core", **core.measure(options.only or (), effort)}, True


def _topology(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    if options.end_to_end:
        return topology_end_to_end.run(topology_end_to_end.EndToEndLoad(options.scale, options.timeout))
    return topology.run(topology.TopologyLoad(options.scale), tuple(options.only or ()))


def _ask(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    return ask.run(ask.AskLoad(options.pending, options.questions))


def _calibration(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    return calibration.run(
        calibration.CalibrationLoad(options.jobs, options.questions, options.answer_seconds)
    )


def _start(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    return start.run(options.count)


def _throughput(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    plan = throughput.ThroughputPlan(
        shape=options.shape,
        scale=options.scale,
        timeout_s=options.timeout,
        api_group=options.api_group,
        command=options.manager_command,
    )
    return throughput.run(plan)


def _depth(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    load = depth.DepthLoad(
        depths=depth.scaled_depths(options.scale),
        newcomers=options.newcomers,
        api_group=options.api_group,
        command=options.manager_command,
    )
    return depth.run(load)


def _restart(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    load = restart.RestartLoad(
        pending=round(restart.PENDING * options.scale), finished=round(restart.FINISHED * options.scale)
    )
    return uvloop.run(restart.run(load))


def _pods(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    plan = pods.PodsPlan(
        forms=tuple(options.form or FORMS),
        variants=(pods.QUEUE, pods.NO_QUEUE) if options.check else options.variants,
        scale=options.scale,
        timeout_s=options.timeout,
        api_group=options.api_group,
        checks=options.check,
    )
    return pods.run(plan)


def _webhook(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    load = webhook.WebhookLoad(
        cases=tuple(options.only or ()),
        seconds=options.seconds,
        rate=options.rate,
        hostile_rate=options.hostile_rate,
        in_process=options.in_process,
        keeps_busy=not options.idle,
        checks=options.check,
    )
    return webhook.run(load)


def _writes(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    effort = writes.Effort(
        tuple(options.only or ()), options.writes, options.rounds, options.seconds, options.profile
    )
    return writes.run(effort), True


def _add_seed_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--setting",
        choices=sorted(seed.SETTINGS),
        default="literal",
        help="size of a pod: literal is 2 CPU and 2 Gi, ten-minute is 333m and 333 Mi (default literal)",
    )
    parser.add_argument(
        "--scale", type=_positive, default=1.0, metavar="X", help="divisor of run times (default 1)"
    )
    parser.add_argument(
        "--jobs", type=_count, default=1000, metavar="N", help="number of Jobs (default 1000)"
    )
    parser.add_argument(
        "--nodes", type=_count, default=100, metavar="N", help="number of nodes (default 100)"
    )
    parser.add_argument(
        "--node-cpu",
        type=_count,
        default=10,
        metavar="N",
        help="CPUs and Gi of memory of a node (default 10)",
    )
    parser.add_argument(
        "--deadline",
        type=_count,
        default=900,
        metavar="S",
        help="activeDeadlineSeconds of each Job, without the scale (default 900)",
    )
    parser.add_argument(
        "--timeout",
        type=_positive,
        default=None,
        metavar="S",
        help="seconds after which the run stops (default: three times the bound, at least 1800)",
    )
    parser.add_argument(
        "--raises",
        type=_count,
        default=0,
        metavar="N",
        help="also raise this many running Jobs beyond their admission, and measure how long it "
        "takes to stop each (default 0)",
    )
    parser.add_argument(
        "--no-queue", action="store_true", help="run the same load on a cluster without admitq"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the run times (default 1)")


def _add_core_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scale", type=_positive, default=1.0, metavar="X", help="share of the workloads to use (default 1)"
    )
    parser.add_argument(
        "--repeats",
        type=_count,
        default=3,
        metavar="N",
        help="runs of each figure, median or best (default 3)",
    )
    _add_only(parser, "figure", core.FIGURES)


def _add_only(parser: argparse.ArgumentParser, what: str, names: Iterable[str]) -> None:
    names = tuple(names)
    parser.add_argument(
        "--only",
        action="append",
        choices=names,
        metavar=what.upper(),
        help=f"measure only this {what}; can be repeated: {', '.join(names)}",
    )


def _add_topology_options(parser: argparse.ArgumentParser) -> None:
    _add_scale(parser)
    _add_only(parser, "part", topology.PARTS)
    parser.add_argument(
        "--end-to-end",
        action="store_true",
        help="run in place of the parts the shapes baseline and topology of `hack/bench throughput`, and "
        "compare their times",
    )
    _add_timeout(parser, of="each shape of --end-to-end")


def _add_ask_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pending",
        type=_count,
        default=ask.PENDING,
        metavar="N",
        help="number of pending workloads (default 10000)",
    )
    parser.add_argument(
        "--questions", type=_count, default=100, metavar="N", help="questions of each kind (default 100)"
    )


def _add_calibration_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jobs",
        type=_count,
        default=3000,
        metavar="N",
        help="number of jobs of the generated trace (default 3000)",
    )
    parser.add_argument(
        "--questions", type=_count, default=200, metavar="N", help="questions of each trace (default 200)"
    )
    parser.add_argument(
        "--answer-seconds",
        type=_positive,
        default=2.0,
        metavar="S",
        help="seconds for each answer (default 2)",
    )


def _add_start_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=_count, default=5, metavar="N", help="number of starts (default 5)")


def _add_webhook_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only",
        action="append",
        choices=tuple(CASES),
        metavar="CASE",
        help=f"measure only this case; can be repeated: {', '.join(CASES)}",
    )
    parser.add_argument(
        "--seconds",
        type=_positive,
        default=20.0,
        metavar="S",
        help="length of each measurement; a step of a search takes a quarter (default 20)",
    )
    parser.add_argument(
        "--rate",
        type=_positive,
        default=300.0,
        metavar="X",
        help="reviews of ordinary jobs a second, from which the other rates follow (default 300)",
    )
    parser.add_argument(
        "--hostile-rate",
        type=_positive,
        default=5.0,
        metavar="X",
        help="hostile objects a second (default 5)",
    )
    parser.add_argument(
        "--in-process",
        action="store_true",
        help="for comparison, review large objects in the serving process",
    )
    parser.add_argument(
        "--idle", action="store_true", help="for comparison, do not keep the cores without a webhook busy"
    )
    parser.add_argument("--check", action="store_true", help="end with status 1 if any target is missed")


def _add_writes_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only",
        action="append",
        choices=writes.PARTS,
        metavar="PART",
        help=f"compare only this part; can be repeated: {', '.join(writes.PARTS)}",
    )
    parser.add_argument(
        "--writes",
        type=_count,
        default=25,
        metavar="N",
        help="writes of a kind in a round of a variant (default 25)",
    )
    parser.add_argument(
        "--rounds", type=_count, default=40, metavar="N", help="highest number of rounds (default 40)"
    )
    parser.add_argument(
        "--seconds",
        type=_positive,
        default=120.0,
        metavar="S",
        help="start no round after this time (default 120)",
    )
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="FILE",
        help="also write a CPU profile of the API server, during writes of today, to this file",
    )


def _add_scale(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scale",
        type=_positive,
        default=1.0,
        metavar="X",
        help="share of the load (default 1)",
    )


def _add_timeout(parser: argparse.ArgumentParser, *, of: str) -> None:
    parser.add_argument(
        "--timeout",
        type=_positive,
        default=1800.0,
        metavar="S",
        help=f"seconds after which {of} stops (default 1800)",
    )


def _add_api_group(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--api-group",
        choices=GROUPS,
        default=DEFAULT_GROUP,
        help=f"API group of the queues and workloads (default {DEFAULT_GROUP})",
    )


def _add_manager_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--manager-command",
        metavar="CMD",
        help="shell command of a queue manager to measure in place of admitq. The CRDs are installed, and "
        "KUBECONFIG gives the command all permissions",
    )
    _add_api_group(parser)


def _add_throughput_options(parser: argparse.ArgumentParser) -> None:
    _add_scale(parser)
    _add_timeout(parser, of="the load")
    _add_manager_options(parser)


def _add_depth_options(parser: argparse.ArgumentParser) -> None:
    _add_scale(parser)
    parser.add_argument(
        "--newcomers",
        type=_count,
        default=300,
        metavar="N",
        help="Workloads that fit, beside each number of Workloads that wait (default 300)",
    )
    _add_manager_options(parser)


def _add_pods_options(parser: argparse.ArgumentParser) -> None:
    _add_scale(parser)
    _add_timeout(parser, of="a form")
    parser.add_argument(
        "--form",
        action="append",
        choices=tuple(FORMS),
        metavar="FORM",
        help=f"run only this form, Jobs x pods of each; can be repeated: {', '.join(FORMS)}",
    )
    variants = parser.add_mutually_exclusive_group()
    variants.add_argument(
        "--no-queue",
        dest="variants",
        action="store_const",
        const=(pods.NO_QUEUE,),
        default=(pods.QUEUE,),
        help="run the same load on a cluster without admitq",
    )
    variants.add_argument(
        "--compare",
        dest="variants",
        action="store_const",
        const=(pods.QUEUE, pods.NO_QUEUE),
        help="run each form with admitq, and then without it",
    )
    variants.add_argument(
        "--check",
        action="store_true",
        help="as --compare, and end with status 1 if a rate of pods is below "
        f"{pods.RATE_RATIO * 100:.0f}%% of that without admitq",
    )
    _add_api_group(parser)


def _positive(text: str) -> float:
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError("must be greater than 0")
    return number


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


BENCHMARKS: Final[Mapping[str, BenchmarkCommand]] = {
    "topology": BenchmarkCommand(
        "measure placement in topologies, without a control plane unless --end-to-end is set",
        _add_topology_options,
        _topology,
    ),
    "core": BenchmarkCommand("measure the decision core, without a control plane", _add_core_options, _core),
    "ask": BenchmarkCommand(
        "measure answers to questions about pending workloads, without a control plane",
        _add_ask_options,
        _ask,
    ),
    "calibration": BenchmarkCommand(
        "compare forecasts of starts with the starts of three simulated traces",
        _add_calibration_options,
        _calibration,
    ),
    "seed": BenchmarkCommand(
        "run Jobs of ten pods that end only after all ten are ready", _add_seed_options, _seed
    ),
    "start": BenchmarkCommand(
        "measure how soon a process is ready, and frees its ports after SIGTERM", _add_start_options, _start
    ),
    "webhook": BenchmarkCommand(
        "measure the webhook, without a control plane", _add_webhook_options, _webhook
    ),
    "writes": BenchmarkCommand(
        "measure what a status write of a Workload costs the API server, by parts",
        _add_writes_options,
        _writes,
    ),
}
"""The benchmarks by name, without `throughput`."""

SHAPES: Final[Mapping[str, BenchmarkCommand]] = {
    **{
        name: BenchmarkCommand(
            f"run {shape.workloads:,} Workloads, without jobs and pods", _add_throughput_options, _throughput
        )
        for name, shape in WORKLOAD_SHAPES.items()
    },
    depth.SHAPE: BenchmarkCommand(
        "admit Workloads that fit, beside few and very many that wait", _add_depth_options, _depth
    ),
    pods.SHAPE: BenchmarkCommand(
        "run 10,000 pods of Jobs on a complete control plane with room for all", _add_pods_options, _pods
    ),
    restart.SHAPE: BenchmarkCommand(
        "start a manager beside very many Workloads at rest", _add_scale, _restart
    ),
    "seed": BENCHMARKS["seed"],
    "webhook": BENCHMARKS["webhook"],
}
"""The shapes of `hack/bench throughput` by name."""
