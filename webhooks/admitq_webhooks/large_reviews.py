"""Reviews of large objects: a child process reviews one at a time; too many large objects are rejected."""

import asyncio
import inspect
import re
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from admitq.process.unexpected_errors import LOG_ONLY, ErrorPart, UnexpectedErrors
from admitq.serving.http import JSON, Handler, HttpRequest, HttpResponse, text
from admitq.serving.server import MEBIBYTE
from admitq_webhooks.lookups import ClusterLookups, LookupFailed
from admitq_webhooks.review import encode_rejection
from admitq_webhooks.review_child import (
    LENGTH_BYTES,
    LOOKUPS,
    LookupMessage,
    LookupResult,
    ReviewAnswer,
    ReviewMessage,
    StartMessage,
    decode,
    encode,
)
from admitq_webhooks.routes import REVIEW_SECONDS, ReviewObserver

LARGE_BYTES: Final = 128 * 1024
"""The child reviews bodies of at least this size; parsing of a smaller body takes a few milliseconds."""

MAX_HELD_BYTES: Final = 16 * MEBIBYTE
"""Limit of the bytes of all large bodies that are reviewed or wait; further large bodies are rejected.

The review of a mebibyte takes about 40 ms, so each body gets its verdict in time even on a busy machine.
"""

STUCK_SECONDS: Final = 60.0
"""The time after which a review is aborted. It is longer than the API server waits, see
`_wait_for_review`."""

COMMAND: Final = (sys.executable, "-c", "from admitq_webhooks.review_child import main; main()")

_UID: Final = re.compile(rb'"uid"\s*:\s*"([^"\\]{1,128})"')
_UID_SEARCH_BYTES: Final = 4096
"""The uid of a review is within these first bytes of the body."""


class _ChildEnded(Exception):
    """The child has ended, or sent an invalid message."""


@dataclass(frozen=True, slots=True)
class _Child:
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class LargeReviews:
    """Answers reviews by a child process, which starts with the first review and is replaced if it fails.

    Args:
        start: the first message to the child.
        lookups: executes the lookups of the child.
        observe: called after each review.
        errors: reports unexpected exceptions of the child and of this process, and the end of a child.
        seconds: the longest time for a verdict, including the wait for earlier reviews.
        command: the command of the child.

    Attributes:
        seconds: as above.
        stuck_seconds: a review that takes longer is aborted, and the child is replaced.
        held_bytes: bytes of the large bodies that are reviewed or wait.
    """

    def __init__(
        self,
        start: StartMessage,
        lookups: ClusterLookups,
        *,
        observe: ReviewObserver | None = None,
        errors: UnexpectedErrors = LOG_ONLY,
        seconds: float = REVIEW_SECONDS,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._start = start
        self._lookups = lookups
        self._observe = observe
        self._errors = errors
        self.seconds = seconds
        self.stuck_seconds = STUCK_SECONDS
        self._command = command
        self._child: _Child | None = None
        self._one_at_a_time = asyncio.Lock()
        self._current: asyncio.Task[Any] | None = None
        self.held_bytes = 0

    def wrap(self, handler: Handler) -> Handler:
        """Return a handler that passes small bodies to ``handler`` and large bodies to the child."""

        async def handle(request: HttpRequest) -> HttpResponse:
            if len(request.body) < LARGE_BYTES or request.method != "POST":
                return await handler(request)
            return await self._answer(request)

        return handle

    @property
    def process(self) -> asyncio.subprocess.Process | None:
        """The child; None before the first large object."""
        return None if self._child is None else self._child.process

    async def stop(self) -> None:
        """End the child; an unfinished review fails."""
        child, self._child = self._child, None
        if child is not None:
            child.writer.close()
            with suppress(ProcessLookupError):
                child.process.kill()
            await child.process.wait()

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        started, size = time.monotonic(), len(request.body)
        if self.held_bytes + size > MAX_HELD_BYTES:
            problem = "too many large objects at once; try again later or make this object smaller"
            answer = ReviewAnswer(_reject(request, problem, 429, "TooManyRequests"), is_allowed=False)
        else:
            self.held_bytes += size
            review = asyncio.create_task(self._review(request))
            review.add_done_callback(lambda _: self._release(size))
            try:
                async with asyncio.timeout(self.seconds):
                    answer = await self._wait_for_review(review)
            except TimeoutError:
                problem = "the review of this large object took too long; try again later or make it smaller"
                answer = ReviewAnswer(_reject(request, problem, 504, "Timeout"), is_allowed=False)
            except _ChildEnded:
                problem = "the review of this large object failed; the log of the webhook has the traceback"
                answer = ReviewAnswer(_reject(request, problem, 500, "InternalError"), is_allowed=False)
        if self._observe is not None and answer.is_allowed is not None:
            self._observe(request.path, answer.is_allowed, time.monotonic() - started)
        return answer.response

    def _release(self, size: int) -> None:
        self.held_bytes -= size

    async def _wait_for_review(self, review: asyncio.Task[ReviewAnswer]) -> ReviewAnswer:
        """Wait for a review. A late review continues: the start of another child would take longer."""
        try:
            return await asyncio.shield(review)
        except asyncio.CancelledError:
            if review is not self._current:
                review.cancel()
            raise

    async def _review(self, request: HttpRequest) -> ReviewAnswer:
        async with self._one_at_a_time:
            self._current = asyncio.current_task()
            try:
                async with asyncio.timeout(self.stuck_seconds):
                    return await self._exchange_messages(await self._running_child(), request)
            except (OSError, EOFError, TimeoutError, _ChildEnded) as error:
                self._errors.report(ErrorPart.REVIEW, error, "review process", request.path)
                await self.stop()
                raise _ChildEnded from error
            except BaseException:
                # The child is in the middle of a review, so the next review needs another child.
                await self.stop()
                raise

    async def _exchange_messages(self, child: _Child, request: HttpRequest) -> ReviewAnswer:
        child.writer.write(encode(ReviewMessage(request.path, request.body)))
        while True:
            length = int.from_bytes(await child.reader.readexactly(LENGTH_BYTES), "big")
            match decode(await child.reader.readexactly(length)):
                case ReviewAnswer() as answer:
                    for _ in range(answer.unexpected_errors):
                        self._errors.add(ErrorPart.REVIEW, request.path)
                    return answer
                case LookupMessage() as lookup:
                    child.writer.write(encode(await self._look_up(lookup, request.path)))
                case other:
                    raise _ChildEnded(f"a child does not send a {type(other).__name__}")

    async def _look_up(self, lookup: LookupMessage, route: str) -> LookupResult:
        if lookup.method not in LOOKUPS:
            raise _ChildEnded(f"a child may not call {lookup.method}")
        try:
            value = getattr(self._lookups, lookup.method)(*lookup.arguments)
            return LookupResult(await value if inspect.isawaitable(value) else value)
        except LookupFailed as error:
            return LookupResult(failed=str(error))
        except Exception as error:  # noqa: BLE001 one object must not end the child that answers for others
            self._errors.report(ErrorPart.REVIEW, error, lookup.method, route)
            return LookupResult(failed="internal error; the log of the webhook has the traceback")

    async def _running_child(self) -> _Child:
        if self._child is not None and self._child.process.returncode is None:
            return self._child
        await self.stop()
        parent_socket, child_socket = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(*self._command, stdin=child_socket.fileno())
        except BaseException:
            parent_socket.close()
            raise
        finally:
            child_socket.close()
        reader, writer = await asyncio.open_connection(sock=parent_socket)
        self._child = _Child(process, reader, writer)
        writer.write(encode(self._start))
        return self._child


def _reject(request: HttpRequest, message: str, code: int, reason: str) -> HttpResponse:
    uid_match = _UID.search(request.body, 0, _UID_SEARCH_BYTES)
    if uid_match is None:
        return text(503, message)
    return HttpResponse(
        200, encode_rejection(uid_match[1].decode(errors="replace"), message, code, reason), JSON
    )
