"""``check``: would objects of files be accepted, and would their jobs run?"""

from typing import Final

from admitq.plugin.command import Arguments, Command, Parameter
from admitq.plugin.options import CLUSTER
from admitq.plugin.questions import CONFIG, FROM, OUTPUT

WAITS: Final = 3
"""The exit status if all objects are accepted, and a job would wait."""

REFUSED: Final = 4
"""The exit status if an object is refused, or a job would never be admitted."""


def _check(arguments: Arguments) -> int:
    from admitq.plugin.checking import check_files
    from admitq.plugin.checks import print_checks

    checks = check_files(arguments)
    print_checks(checks, arguments.output)
    return checks.status


CHECK: Final = Command(
    ("check",),
    "Show whether objects would be accepted, and whether their jobs would run.\n\n"
    "The API server validates the objects in a dry run, with all webhooks and policies. Then the plugin "
    "lists the objects of the cluster, and shows which queue and flavors each job would get and when, or "
    "what blocks it. Nothing is created. With --from, no cluster is called: only the schemas of admitq's "
    "kinds and the rules of its webhooks for jobs are checked.\n\nThe exit status is 0 if all jobs would be "
    f"admitted now, {WAITS} if a job would wait, and {REFUSED} if an object is refused or a job would never "
    "be admitted. It is 1 if the command fails, and 2 if the command line is invalid.",
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
