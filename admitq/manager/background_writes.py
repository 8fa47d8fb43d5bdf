"""Writes that run as tasks in the background."""

import asyncio
from collections.abc import Awaitable

from admitq.core.model import ObjectKey
from admitq.process.logs import logger
from admitq.process.unexpected_errors import ErrorPart, UnexpectedErrors
from admitq.runtime.errors import ApiError, NotLeadingError

log = logger(__name__)


class BackgroundWrites:
    """Runs writes as tasks, and reports those that fail.

    Args:
        errors: reports unexpected exceptions.
    """

    def __init__(self, errors: UnexpectedErrors) -> None:
        self._errors = errors
        self._tasks: set[asyncio.Future[None]] = set()

    def start(self, work: Awaitable[None]) -> "asyncio.Future[None]":
        """Start a task."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._report_result)
        return task

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()

    def report_failure(self, event: str, workload: ObjectKey | None, error: BaseException) -> None:
        """Log an error of the API server; report any other as unexpected."""
        if isinstance(error, ApiError | NotLeadingError):
            log.warning(event, workload=str(workload or ""), error=str(error))
        else:
            self._errors.report(ErrorPart.WRITE, error, workload or "")

    def _report_result(self, task: "asyncio.Future[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.report_failure("background write failed", None, error)
