"""Branches of an admission state: child processes that answer one question each, and end.

A question may change the state that it gets, for example by hypothetical events and cycles. A copy of a state
with 10,000 pending workloads takes longer than most answers. So ``os.fork`` creates a child process, which
shares the memory of its parent until one of both writes to it. The child calls the question with the state,
sends the answer through a pipe, and ends. The state of the parent never changes. An answer can have parts:
each arrives when it is known.

A fork of a running process has dangers. ``branch_processes`` describes how they are handled. A question must
take no locks, and calls only modules that are imported already.

Each child needs a processor of its own. Callers limit how many questions run at once.
"""

import asyncio
import select
import time
from collections.abc import Callable
from math import ceil
from typing import TypeVar, cast

from admitq.asking.branch_processes import (
    BranchDeadlineExceeded,
    BranchFailed,
    Child,
    ChildLimits,
    Send,
    start_child,
)
from admitq.core.asking.branch import Branch
from admitq.core.state import AdmissionState

Answer = TypeVar("Answer")


def ask(state: AdmissionState, question: Callable[[AdmissionState], Answer], *, deadline_s: float) -> Answer:
    """Return the answer to a question about a copy of a state. The caller waits for it.

    Args:
        state: the state to ask. It does not change.
        question: the question. It may change its state. Only its answer must be picklable.
        deadline_s: seconds after which the child process is killed.

    Raises:
        BranchFailed: the child process ended without an answer.
        BranchDeadlineExceeded: the deadline passed.
        CycleInProgressError: a cycle of the state that runs in steps has not ended.
        Exception: the exception of the question, with the traceback of the child as a note.
    """
    ends_at = time.monotonic() + deadline_s
    child = start_child(state, _answering(question), ChildLimits(deadline_s))
    try:
        if not _has_ended(child, ends_at):
            raise BranchDeadlineExceeded(_deadline_message(deadline_s))  # noqa: TRY301 the child is killed
    except BaseException:
        child.kill()
        raise
    finally:
        child.end()
    return cast("Answer", _only_part(list(child.take_parts()), child))


async def ask_in_background(
    state: AdmissionState, question: Callable[[AdmissionState], Answer], *, deadline_s: float
) -> Answer:
    """As ``ask``, for callers in an event loop: it blocks the loop only while the child process is created.

    The child has a copy of the state as it is at the call, before the first ``await``. Other questions can
    run at the same time. If the caller is cancelled, the child is killed.
    """
    parts: list[object] = []
    child = await _receive_parts(state, _answering(question), parts.append, ChildLimits(deadline_s))
    return cast("Answer", _only_part(parts, child))


async def ask_for_parts(
    state: AdmissionState,
    question: Callable[[AdmissionState, Send], None],
    receive: Callable[[object], object],
    limits: ChildLimits,
) -> None:
    """As ``ask_in_background``, for an answer in parts. It returns after the last part.

    Args:
        state: the state to ask. It does not change.
        question: the question. It sends the parts of its answer, each of which must be picklable.
        receive: receives each part when it arrives.
        limits: what the child process may use.

    Raises:
        BranchFailed: the child process ended before the question did. Parts may have arrived.
        BranchDeadlineExceeded: the deadline passed. Parts may have arrived.
        CycleInProgressError: a cycle of the state that runs in steps has not ended.
        Exception: the exception of the question, with the traceback of the child as a note.
    """
    child = await _receive_parts(state, question, receive, limits)
    child.check_end()


async def _receive_parts(
    state: AdmissionState,
    question: Callable[[AdmissionState, Send], None],
    receive: Callable[[object], object],
    limits: ChildLimits,
) -> Child:
    """Return the child that has answered, and has ended in some way."""
    loop = asyncio.get_running_loop()
    child = start_child(state, question, limits)
    ended: asyncio.Future[None] = loop.create_future()

    def read() -> None:
        if ended.done():
            return
        try:
            may_send_more = child.read()
            for part in child.take_parts():
                receive(part)
        except BaseException as error:  # noqa: BLE001 the caller gets it
            loop.remove_reader(child.pipe)
            ended.set_exception(error)
            return
        if not may_send_more:
            loop.remove_reader(child.pipe)
            ended.set_result(None)

    try:
        loop.add_reader(child.pipe, read)
        try:
            async with asyncio.timeout(limits.deadline_s):
                await ended
        except TimeoutError:
            raise BranchDeadlineExceeded(_deadline_message(limits.deadline_s)) from None
    except BaseException:
        child.kill()
        raise
    finally:
        loop.remove_reader(child.pipe)
        # The child frees its memory before it closes the pipe. So this wait is short, also after a kill.
        child.end()
    return child


def _answering(question: Callable[[AdmissionState], object]) -> Callable[[AdmissionState, Send], None]:
    """Return a function that sends the answer to a question as its only part."""
    return lambda state, send: send(question(state))


def _only_part(parts: list[object], child: Child) -> object:
    child.check_end()
    if not parts:
        raise BranchFailed("the child process sent no complete answer")
    return parts[0]


def _has_ended(child: Child, ends_at: float) -> bool:
    """Read what the child sends, until a time of the monotonic clock. Return whether it ended."""
    poll = select.poll()
    poll.register(child.pipe, select.POLLIN)
    while (remaining_s := ends_at - time.monotonic()) > 0:
        if poll.poll(ceil(remaining_s * 1000)) and not child.read():
            return True
    return False


def branch_of(state: AdmissionState, *, deadline_s: float) -> Branch:
    """Return a function that asks questions about a state by ``ask``, for functions of the core.

    Args:
        state: the state to ask.
        deadline_s: seconds for all questions together.
    """
    ends_at = time.monotonic() + deadline_s

    def branch(question: Callable[[AdmissionState], Answer]) -> Answer:
        return ask(state, question, deadline_s=max(0.0, ends_at - time.monotonic()))

    return branch


def _deadline_message(deadline_s: float) -> str:
    return f"no answer within {deadline_s:.3f} s"
