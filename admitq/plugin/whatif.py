"""``whatif``: what hypothetical changes of objects would change. Nothing is written."""

from typing import Final

from admitq.plugin.command import Arguments, Command, Parameter
from admitq.plugin.object_kinds import CLUSTER_QUEUE
from admitq.plugin.options import CLUSTER
from admitq.plugin.questions import CONFIG, FROM, OUTPUT

FILES: Final = Parameter(
    ("--filename", "-f"),
    "Manifests to apply: jobs, Workloads, queues, cohorts, flavors, priority classes; - is standard input. "
    "It can be repeated.",
    "FILE",
    is_repeated=True,
    completes="files",
)
QUOTA: Final = Parameter(
    ("--quota",),
    "New nominal quota: CQ:FLAVOR:RESOURCE=AMOUNT. It can be repeated, as all options below.",
    "QUOTA",
    is_repeated=True,
    completes=CLUSTER_QUEUE.plural,
)
COHORT: Final = Parameter(
    ("--cohort",),
    "Move a ClusterQueue to another cohort: CQ=COHORT; CQ= removes it from its cohort.",
    "CQ=COHORT",
    is_repeated=True,
    completes=CLUSTER_QUEUE.plural,
)
STOP: Final = Parameter(
    ("--stop",), "Stop a queue, and its workloads: cq/NAME or lq/NAME.", "TYPE/NAME", is_repeated=True
)
DELETE: Final = Parameter(
    ("--delete",), "Delete an object: TYPE[.GROUP]/NAME, such as job/train.", "TYPE/NAME", is_repeated=True
)
PRIORITY: Final = Parameter(
    ("--priority",), "Change the priority of a Workload: WORKLOAD=N.", "WORKLOAD=N", is_repeated=True
)
WAIT: Final = Parameter(
    ("--wait",),
    "How long the plugin simulates changes of starts if it answers itself; at least five seconds.",
    "DURATION",
    default="5s",
)


def _what_if(arguments: Arguments) -> None:
    from admitq.plugin.answering import print_answer
    from admitq.plugin.hypothetical_changes import ask_what_if

    print_answer(ask_what_if(arguments), arguments.output)


WHAT_IF: Final = Command(
    ("whatif",),
    "Show what changes of objects would change: admissions, preemptions, positions, use.\n\n"
    "Nothing is written. A manifest replaces the whole object of its name. The visibility API answers, if "
    "the cluster serves it. Otherwise the plugin lists the objects of the cluster and answers itself. This "
    "needs the right to list Workloads, queues and flavors of all namespaces.",
    (FILES, QUOTA, COHORT, STOP, DELETE, PRIORITY, WAIT, OUTPUT, FROM, CONFIG, *CLUSTER),
    _what_if,
)
