"""``history``: what happened to a Workload and its job, in order."""

from typing import TYPE_CHECKING, Final

from admitq.plugin.command import Arguments, Command, Parameter
from admitq.plugin.documents import print_document
from admitq.plugin.object_kinds import WORKLOAD
from admitq.plugin.options import CLUSTER, ClusterOptions

if TYPE_CHECKING:
    from admitq.plugin.cluster_access import ClusterAccess
    from admitq.plugin.timeline import Moment

TABLE: Final = "table"


def _history(arguments: Arguments) -> None:
    import time

    from admitq.plugin.cluster_access import call_cluster

    async def read(access: "ClusterAccess") -> "list[Moment]":
        from admitq.plugin.rows import owners_of
        from admitq.plugin.timeline import is_about, moments_of
        from admitq.runtime.resources import EVENTS

        workload = await access.client.get(access.kinds.workloads, arguments.name, access.namespace)
        uids = {workload["metadata"]["uid"], *(str(owner.get("uid")) for owner in owners_of(workload))}
        events, _ = await access.client.list(EVENTS, access.namespace)
        return moments_of(workload, (event for event in events if is_about(event, uids)))

    moments = call_cluster(ClusterOptions.of(arguments), read, about=WORKLOAD)
    if arguments.output != TABLE:
        from admitq.plugin.timeline import history_document

        print_document(history_document(moments), arguments.output)
        return
    from admitq.plugin.tables import has_colors, render_table
    from admitq.plugin.timeline import TITLES, history_rows

    print(render_table(TITLES, history_rows(moments, time.time_ns()), colored=has_colors()))


HISTORY: Final = Command(
    ("history",),
    "Show what happened to a Workload and its job, in order.\n\n"
    "It shows conditions and admission checks, each with its last change, and the events that the cluster "
    "still has. By default, a cluster keeps events for one hour.",
    (
        Parameter(("name",), "The name of the Workload.", "NAME", completes=WORKLOAD.plural),
        Parameter(("--output", "-o"), "Format.", choices=(TABLE, "json", "yaml"), default=TABLE),
        *CLUSTER,
    ),
    _history,
)
