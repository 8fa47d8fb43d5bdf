"""``top``: reserved quota and waiting workloads, by queue and cohort."""

import sys
from typing import TYPE_CHECKING, Any, Final

from admitq.plugin.command import Arguments, Command, Parameter
from admitq.plugin.documents import print_document
from admitq.plugin.object_kinds import CLUSTER_QUEUE
from admitq.plugin.options import CLUSTER, ClusterOptions
from admitq.plugin.remedies import CommandError

if TYPE_CHECKING:
    from admitq.plugin.cluster_access import ClusterAccess
    from admitq.plugin.usage_tree import UsageNode

TABLE: Final = "table"
WIDE: Final = "wide"
CLEAR: Final = "\033[H\033[J"
"""Moves the cursor of a terminal to its first line, and clears what follows."""


def _top(arguments: Arguments) -> None:
    from admitq.plugin.cluster_access import call_cluster

    interval = _interval(arguments.interval)

    async def show(access: "ClusterAccess") -> None:
        import asyncio

        from admitq.runtime.errors import ApiError

        _print(await _read(access), arguments.output)
        while arguments.watch:
            sys.stdout.flush()
            await asyncio.sleep(interval)
            try:
                tree = await _read(access)
            except ApiError as error:
                if not error.is_transient:
                    raise
                print(f"warning: {error.message}", file=sys.stderr)
                continue
            if sys.stdout.isatty():
                print(CLEAR, end="")
            elif arguments.output in {TABLE, WIDE}:
                print()
            _print(tree, arguments.output)

    call_cluster(ClusterOptions.of(arguments), show, about=CLUSTER_QUEUE)


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0.1 <= seconds <= 3600:
        raise CommandError(f"--interval: {text!r} is not a number of seconds from 0.1 to 3600")
    return seconds


async def _read(access: "ClusterAccess") -> "list[UsageNode]":
    """Return the tree, or the LocalQueues of the namespace if the user may not list ClusterQueues."""
    from admitq.plugin.usage_tree import build_tree, queue_node
    from admitq.runtime.errors import ApiError

    try:
        queues, _ = await access.client.list(access.kinds.cluster_queues)
        cohorts, _ = await access.client.list(access.kinds.cohorts)
    except ApiError as error:
        if not error.is_forbidden:
            raise
        print(f"warning: only LocalQueues are shown: {error.message}", file=sys.stderr)
        queues, _ = await access.client.list(access.kinds.local_queues, access.namespace)
        return sorted(map(queue_node, queues), key=lambda node: node.name)
    return build_tree(queues, cohorts)


def _print(tree: "list[UsageNode]", output: str) -> None:
    from admitq.plugin.tables import has_colors, render_table
    from admitq.plugin.usage_tree import tree_document, usage_rows

    if output not in {TABLE, WIDE}:
        document: list[dict[str, Any]] = [*map(tree_document, tree)]
        print_document(document, output)
    elif tree:
        titles, rows = usage_rows(tree, by_flavor=output == WIDE)
        print(render_table(titles, rows, colored=has_colors()))
    else:
        print("No queues found.", file=sys.stderr)


TOP: Final = Command(
    ("top",),
    "Show reserved quota and waiting workloads, by cohort and ClusterQueue.\n\n"
    "An amount is the reserved quota, and after / the nominal quota. That of a cohort is the sum of its own "
    "and of what is below it. Without the right to list ClusterQueues and Cohorts, it shows the LocalQueues "
    "of the namespace.",
    (
        Parameter(("--watch", "-w"), "Show it again and again, until it is interrupted.", is_switch=True),
        Parameter(("--interval",), "Seconds between two readings with --watch.", "SECONDS", default="2"),
        Parameter(
            ("--output", "-o"),
            "Format; wide has a column for each flavor.",
            choices=(TABLE, WIDE, "json", "yaml"),
            default=TABLE,
        ),
        *CLUSTER,
    ),
    _top,
)
