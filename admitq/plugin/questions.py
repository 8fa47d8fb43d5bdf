"""``explain`` and ``eta``: why a workload waits, and when it starts."""

from functools import partial
from typing import Final

from admitq.plugin.command import Arguments, Command, Parameter
from admitq.plugin.options import CLUSTER

TABLE: Final = "table"

TARGET: Final = Parameter(
    ("target",),
    "A Workload, or the job of a Workload: NAME, workload NAME, job/NAME, rayjob.ray.io/NAME.",
    "NAME|TYPE[.GROUP]/NAME",
    is_repeated=True,
    is_required=True,
    completes="questions",
)
OUTPUT: Final = Parameter(("--output", "-o"), "Format.", choices=(TABLE, "json", "yaml"), default=TABLE)
FROM: Final = Parameter(
    ("--from",),
    "Ask about stored objects in a file or folder, as kubectl get -o yaml prints them, or about a log with a "
    "state dump. It can be repeated. No cluster is called.",
    "PATH",
    is_repeated=True,
    completes="files",
)
CONFIG: Final = Parameter(
    ("--config",),
    "Configuration file of the manager; without one, that in the ConfigMap of the cluster or the files, or "
    "else the defaults.",
    "FILE",
    completes="files",
)
WAIT: Final = Parameter(
    ("--wait",),
    "How long to wait until it is known when half of the simulations have started the workload; 0 asks once.",
    "DURATION",
    default="15s",
)


def _ask(subresource: str, arguments: Arguments) -> None:
    from admitq.plugin.answering import ask_about_workload, print_answer

    print_answer(ask_about_workload(subresource, arguments), arguments.output)


def _command(word: str, subresource: str, text: str, *options: Parameter) -> Command:
    parameters = (TARGET, *options, OUTPUT, FROM, CONFIG, *CLUSTER)
    return Command((word,), text, parameters, partial(_ask, subresource))


QUESTIONS: Final = (
    _command(
        "explain",
        "explanation",
        "Show why a workload waits, and the cheapest changes that admit it.\n\n"
        "The visibility API answers, if the cluster serves it. Otherwise the plugin lists the objects of the "
        "cluster and answers itself. This needs the right to list Workloads, queues and flavors of all "
        "namespaces.",
    ),
    _command(
        "eta",
        "eta",
        "Show when a workload starts.\n\n"
        "The answer is simulated: running workloads end after run times like those of finished workloads, "
        "and no other workloads are submitted. Behind many pending workloads, this takes more than a second. "
        "The visibility API then simulates the whole cohort tree, and the plugin asks again each second. If "
        "the plugin answers itself, it simulates for as long, and for five seconds at least.",
        WAIT,
    ),
)
