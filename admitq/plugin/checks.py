"""The output of ``check``: its exit status, and text in colours, or JSON and YAML."""

from typing import Final

from admitq.asking.object_checks import ACCEPTED, NOT_QUEUED, REFUSED, ObjectCheck, ObjectChecks
from admitq.core.asking.submission import SubmissionVerdict
from admitq.plugin.answering import paint_line
from admitq.plugin.check import EXIT_REFUSED, EXIT_WAITS
from admitq.plugin.documents import print_document
from admitq.plugin.questions import TABLE
from admitq.plugin.tables import GREEN, RED, YELLOW, has_colors, paint, safe_text

_STATUSES: Final = {
    SubmissionVerdict.WAITS: EXIT_WAITS,
    SubmissionVerdict.NEVER: EXIT_REFUSED,
    REFUSED: EXIT_REFUSED,
}
_COLORS: Final = {
    SubmissionVerdict.ADMITTED: GREEN,
    ACCEPTED: GREEN,
    NOT_QUEUED: YELLOW,
    SubmissionVerdict.WAITS: YELLOW,
    SubmissionVerdict.NEVER: RED,
    REFUSED: RED,
}


def exit_status(checks: ObjectChecks) -> int:
    """Return the exit status: that of the worst verdict."""
    return max((_STATUSES.get(check.verdict, 0) for check in checks.checks), default=0)


def print_checks(checks: ObjectChecks, output: str) -> None:
    """Print what becomes of objects as text, or as ``json`` or ``yaml``."""
    if output != TABLE:
        print_document({"exitStatus": exit_status(checks), **checks.to_json()}, output)
        return
    colored = has_colors()

    def show_words(check: ObjectCheck) -> str:
        return paint(check.words, _COLORS[check.verdict] if colored else "")

    for line in checks.list_lines(show_words, lambda text: paint_line(safe_text(text), colored=colored)):
        print(line)
