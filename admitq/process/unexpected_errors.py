"""Handling of unexpected exceptions: an exception on one item of work never ends the work on other items.

A long-lived task works on one item after another: a report, an event, a metric, a status. If a bug shows on
one item, only that item is lost. The exception is logged with its traceback, and counted in a metric for
alerts. If the state after the exception is unknown, as in the core, it is rebuilt (``manager.recovery``).
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Final, Self

from admitq.process.logs import logger

log = logger(__name__)


class ErrorPart(StrEnum):
    """What the process was doing: label ``part`` of the metric ``unexpected_errors_total``."""

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
        count: receives the part and the route of each exception, in any thread.
    """

    count: Callable[[ErrorPart, str], None] = lambda *_: None

    def report(self, part: ErrorPart, error: BaseException, item: object = "", route: str = "") -> None:
        """Log an exception with its traceback, and count it. Never raises.

        Args:
            part: what the process was doing.
            error: the exception.
            item: what it was working on, for the log.
            route: the path of the webhook, for reviews; empty for other parts.
        """
        fields = {"part": str(part), "item": str(item)} | ({"route": route} if route else {})
        log.error("unexpected error", exc_info=error, **fields)
        self.add(part, route)

    def add(self, part: ErrorPart, route: str = "") -> None:
        """Count an exception that the caller logs. Never raises."""
        try:
            self.count(part, route)
        except Exception:
            log.exception("error metric not incremented", part=str(part))

    def contain(self, part: ErrorPart, item: object = "") -> "Contained":
        """Return a context manager that reports exceptions and continues after the block.

        Exceptions that end a task, such as a cancellation, are raised as usual.

        Args:
            part: what the block does.
            item: what the block works on, for the log.
        """
        return Contained(self, part, item)


LOG_ONLY: Final = UnexpectedErrors()
"""Logs unexpected exceptions, and counts none."""


@dataclass(slots=True)
class Contained:
    """A context manager that reports an exception of its block instead of raising it."""

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
