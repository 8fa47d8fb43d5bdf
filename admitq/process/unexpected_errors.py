"""Keeps an unexpected exception in one item of work from ending the work on all others.

A long-lived task works on one item after another: a report, an event, a metric, a status. A bug that shows
on one item must cost that item alone. The exception is logged with its traceback, and counted in a metric
that an alert watches. Where the state after the exception is not known, as in the core, it is made anew
(``recovery``).
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Final, Self

from admitq.process.logs import logger

log = logger(__name__)


class ErrorPart(StrEnum):
    """What a process was doing: the label ``part`` of ``unexpected_errors_total``."""

    CERTIFICATES = "certificates"
    EVENT = "event"
    KIND = "kind"
    LEASE = "lease"
    METRICS = "metrics"
    OBSERVATION = "observation"
    REPORT = "report"
    REVIEW = "review"
    SERVER = "server"
    WATCH = "watch"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class UnexpectedErrors:
    """Logs and counts unexpected exceptions.

    Args:
        count: called with the part and the route for each exception; may be called from any thread.
    """

    count: Callable[[ErrorPart, str], None] = lambda *_: None

    def report(self, part: ErrorPart, error: BaseException, item: object = "", route: str = "") -> None:
        """Log an exception with its traceback, and count it. Never raises.

        Args:
            part: what the process was doing.
            error: the exception.
            item: what it was working on, for the log.
            route: the path of the webhook that was asked; empty for other parts than reviews.
        """
        fields = {"part": str(part), "item": str(item)} | ({"route": route} if route else {})
        log.error("unexpected error", exc_info=error, **fields)
        self.add(part, route)

    def add(self, part: ErrorPart, route: str = "") -> None:
        """Count an exception that is logged elsewhere. Never raises."""
        try:
            self.count(part, route)
        except Exception:
            log.exception("unexpected error was not counted", part=str(part))

    def contain(self, part: ErrorPart, item: object = "") -> "Contained":
        """Give a context out of which no exception comes but those that end a task, such as a cancellation.

        Args:
            part: what is done in the context.
            item: what it is done to, for the log.
        """
        return Contained(self, part, item)


LOG_ONLY: Final = UnexpectedErrors()
"""Logs unexpected exceptions, and counts none."""


@dataclass(slots=True)
class Contained:
    """A context that reports an exception instead of passing it on."""

    errors: UnexpectedErrors
    part: ErrorPart
    item: object

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.errors.report(self.part, error, self.item)
        return True
