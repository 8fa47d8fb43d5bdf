"""Objects that ``check`` has checked, as text and as JSON values."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from admitq.asking.submissions import SubmissionAnswer
from admitq.core.asking.submission import SubmissionVerdict
from admitq.manifests.documents import Document
from admitq.plugin.answering import paint_line
from admitq.plugin.check import REFUSED, WAITS
from admitq.plugin.documents import print_document
from admitq.plugin.questions import TABLE
from admitq.plugin.tables import GREEN, RED, YELLOW, has_colors, paint, safe_text
from admitq.translate.submissions import verdict_text
from admitq_api.json_objects import text_at

ACCEPTED: Final = "Accepted"
REFUSED_OBJECT: Final = "Refused"
NOT_QUEUED: Final = "NotQueued"
"""Verdicts about objects without a workload: no job, refused by the API server, or a job without a queue."""

_STATUSES: Final = {
    SubmissionVerdict.WAITS: WAITS,
    SubmissionVerdict.NEVER: REFUSED,
    REFUSED_OBJECT: REFUSED,
}
_WORDS: Final = {
    ACCEPTED: "accepted",
    REFUSED_OBJECT: "refused",
    NOT_QUEUED: "accepted, and not queued, because it names no queue",
}
_COLORS: Final = {
    SubmissionVerdict.ADMITTED: GREEN,
    ACCEPTED: GREEN,
    NOT_QUEUED: YELLOW,
    SubmissionVerdict.WAITS: YELLOW,
    SubmissionVerdict.NEVER: RED,
    REFUSED_OBJECT: RED,
}


@dataclass(slots=True, eq=False)
class Check:
    """An object, and what becomes of it.

    Attributes:
        document: the object.
        problems: why it is refused; empty if it is accepted.
        answer: what becomes of its Workload; None if it has none.
        is_queued: whether admitq queues it, if it is a job.
        note: what else is to be said about it; may be empty.
    """

    document: Document
    problems: tuple[str, ...] = ()
    answer: SubmissionAnswer | None = None
    is_queued: bool = True
    note: str = ""

    @property
    def name(self) -> str:
        """The name of the object, or the begin of a generated one."""
        value = self.document.value
        return text_at(value, ("metadata", "name")) or text_at(value, ("metadata", "generateName"))

    @property
    def namespace(self) -> str:
        """The namespace of the object; empty without one."""
        return text_at(self.document.value, ("metadata", "namespace"))

    @property
    def kind(self) -> str:
        """The kind of the object."""
        return text_at(self.document.value, ("kind",))

    def __str__(self) -> str:
        return f"{self.kind} {'/'.join(filter(None, (self.namespace, self.name)))}"

    @property
    def verdict(self) -> str:
        """The verdict about the object."""
        if self.problems:
            return REFUSED_OBJECT
        if self.answer is not None:
            return self.answer.verdict
        return ACCEPTED if self.is_queued else NOT_QUEUED


@dataclass(slots=True, eq=False)
class Checks:
    """The checked objects, and what was not checked."""

    checks: list[Check]
    not_checked: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        """The exit status: that of the worst verdict."""
        return max((_STATUSES.get(check.verdict, 0) for check in self.checks), default=0)

    @property
    def accepted(self) -> list[Check]:
        """The objects without problems."""
        return [check for check in self.checks if not check.problems]


# --- output -----------------------------------------------------------------------------------------------


def print_checks(checks: Checks, output: str) -> None:
    """Print what becomes of objects as text, or as ``json`` or ``yaml``."""
    if output == TABLE:
        for line in _lines(checks, colored=has_colors()):
            print(line)
    else:
        print_document(checks_document(checks), output)


def checks_document(checks: Checks) -> dict[str, Any]:
    """Return what becomes of objects as JSON values."""
    return {
        "exitStatus": checks.status,
        "objects": [
            {
                "apiVersion": text_at(check.document.value, ("apiVersion",)),
                "kind": check.kind,
                "namespace": check.namespace,
                "name": check.name,
                **({} if check.answer is None else check.answer.json),
                "verdict": str(check.verdict),
                "problems": list(check.problems),
            }
            for check in checks.checks
        ],
        "notChecked": list(checks.not_checked),
        "text": [*_lines(checks, colored=False)],
    }


def _lines(checks: Checks, *, colored: bool) -> Iterator[str]:
    for check in checks.checks:
        words = (
            _WORDS[check.verdict]
            if check.answer is None or check.problems
            else verdict_text(check.answer.verdict)
        )
        color = _COLORS[check.verdict] if colored else ""
        yield f"{safe_text(str(check))}: {paint(words, color)}"
        lines = [
            *check.problems,
            *(() if check.answer is None else check.answer.lines),
            *filter(None, [check.note]),
        ]
        for line in (part for text in lines for part in text.splitlines()):
            yield f"  {paint_line(safe_text(line), colored=colored)}"
    if checks.not_checked:
        yield f"Not checked: {', '.join(checks.not_checked)}"
