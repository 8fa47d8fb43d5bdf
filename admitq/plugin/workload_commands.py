"""``hold``, ``release`` and ``move``: commands for workloads that wait for admission."""

from functools import partial
from typing import Final

from admitq.plugin.command import Arguments, Command, Parameter
from admitq.plugin.object_kinds import LOCAL_QUEUE, WORKLOAD
from admitq.plugin.options import CLUSTER, ClusterOptions

NAME: Final = Parameter(("name",), "The name of the Workload.", "NAME", completes=WORKLOAD.plural)
GATES: Final = Parameter(
    ("--gate",), "An admission gate to remove. It can be repeated.", "GATE", is_repeated=True
)
TARGET: Final = Parameter(
    ("--to",),
    "The LocalQueue that it moves to, in the same namespace.",
    "NAME",
    is_required=True,
    completes=LOCAL_QUEUE.plural,
)


def _run(action: str, arguments: Arguments) -> None:
    from admitq.plugin import workload_changes
    from admitq.plugin.cluster_access import call_cluster

    change = {
        "hold": lambda access: workload_changes.hold(access, arguments.name),
        "release": lambda access: workload_changes.release(access, arguments.name, arguments.gate),
        "move": lambda access: workload_changes.move(access, arguments.name, arguments.to),
    }[action]
    print(call_cluster(ClusterOptions.of(arguments), change, about=WORKLOAD))


def _command(action: str, text: str, *options: Parameter) -> Command:
    parameters = (NAME, *options, *CLUSTER)
    return Command((action, WORKLOAD.name), text, parameters, partial(_run, action), WORKLOAD.aliases)


WORKLOAD_COMMANDS: Final = (
    _command(
        "hold",
        "Let a Workload that waits not be admitted until it is released.\n\n"
        "Use stop for a Workload that is admitted.",
    ),
    _command("release", "Let a held Workload be admitted, or remove its admission gates.", GATES),
    _command(
        "move",
        "Let a Workload wait in another LocalQueue.\n\n"
        "The label of its job is changed, so the right to patch the job is needed. A Workload that has quota "
        "cannot move.",
        TARGET,
    ),
)
