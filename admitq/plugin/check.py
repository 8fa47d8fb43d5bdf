"""``check``: would objects of files be accepted, and would their jobs run?"""

from typing import Final

from admitq.plugin.command import Arguments, Command, Parameter
from admitq.plugin.options import CLUSTER
from admitq.plugin.questions import CONFIG, FROM, OUTPUT

EXIT_WAITS: Final = 3
"""The exit status if all objects are accepted, and a job would wait."""

EXIT_REFUSED: Final = 4
"""The exit status if an object is refused, or a job would never be admitted."""


def _check(arguments: Arguments) -> int:
    from admitq.plugin.checking import check_files
    from admitq.plugin.checks import exit_status, print_checks

    checks = check_files(arguments)
    print_checks(checks, arguments.output)
    return exit_status(checks)


CHECK: Final = Command(
    ("check",),
    "Show whether objects would be accepted, and whether their jobs would run.\n\n"
    "The API server validates the objects in a dry run, with all webhooks and policies. Then the visibility "
    "API answers which queue and flavors each job would get and when, or what blocks it. If the cluster does "
    "not serve it, the plugin lists the objects of the cluster and answers itself. This needs the right to "
    "list Workloads, queues and flavors of all namespaces. Nothing is created. With --from, no cluster is "
    "called: only the schemas of admitq's kinds and the rules of its webhooks for jobs are checked.\n\n"
    f"The exit status is 0 if all jobs would be admitted now, {EXIT_WAITS} if a job would wait, and "
    f"{EXIT_REFUSED} if an object is refused or a job would never be admitted. It is 1 if the command fails, "
    "and 2 if the command line is invalid.",
    (
        Parameter(
            ("--filename", "-f"),
            "A file with the objects, a folder with files, or - for standard input. It can be repeated.",
            "PATH",
            is_repeated=True,
            is_required=True,
            completes="files",
        ),
        OUTPUT,
        FROM,
        CONFIG,
        *CLUSTER,
    ),
    _check,
)
