"""Branches of an admission state: child processes that answer one question each, and end.

A question may change the state that it gets, for example by hypothetical events and cycles. A copy of a state
with 10,000 pending workloads takes longer than most answers. So ``os.fork`` creates a child process, which
shares the memory of its parent until one of both writes to it. The child calls the question with the state,
sends the answer through a pipe, and ends. The state of the parent never changes.

A fork of a running process has dangers. This module handles them as follows:

- *Threads.* Only the thread that calls ``os.fork`` exists in the child. Locks that other threads held stay
  locked for ever. Questions must therefore take no locks: they call only the core and pure functions, which
  must have been imported before. Python itself releases its own locks, and those of ``logging``. A question
  that waits for a lock nevertheless is killed at its deadline.
- *The event loop.* The child never returns to it, and closes its descriptors without a call to it. Else the
  child would change the epoll set that it shares with its parent.
- *Signals.* The child restores the default actions before it receives any signal. Else a handler would run
  the shutdown of the parent, or write into the parent's event loop.
- *Descriptors.* The child closes all but its pipe. Else a connection that the parent closes would stay open,
  and a lock on a file would stay locked. Standard input and output are ``/dev/null``, so that buffers of the
  parent are not written twice. Logs of a question are lost.
- *Exit.* The child ends by ``os._exit``: no destructors, exit functions or ``finally`` blocks of callers run.
- *Garbage collection* is off in the child. A collection writes to all objects, and so would copy all memory.
- *Memory.* The child needs memory only for what it changes. If memory runs out, the kernel kills the child
  before the parent, because the child raises its own ``oom_score_adj``. The caller gets ``BranchFailed``.
- *Orphans.* If the parent dies, the child ends soon: its CPU time is limited to its deadline and a second.
- *Zombies.* The parent waits for every child, also after a deadline, an error or a cancellation.

Each child needs a processor of its own. Callers limit how many questions run at once.
"""

import asyncio
import gc
import os
import pickle
import resource
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, cast

from admitq.core.asking.branch import Branch
from admitq.core.state import AdmissionState, CycleInProgressError

Answer = TypeVar("Answer")

_CHUNK: Final = 1 << 18
"""The number of bytes to read at once."""

_STANDARD_STREAMS: Final = 3
"""Descriptors below this number are standard input, output and error."""


class BranchError(Exception):
    """A branch gave no answer."""


class BranchFailed(BranchError):
    """The child process ended without an answer, or its answer cannot be sent."""


class BranchDeadlineExceeded(BranchError):
    """The child process had no answer before its deadline, and was killed."""


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
    child = _start(state, question, deadline_s)
    try:
        if not _has_ended(child, ends_at):
            raise BranchDeadlineExceeded(_deadline_message(deadline_s))  # noqa: TRY301 the child is killed
    except BaseException:
        child.kill()
        raise
    finally:
        child.end()
    return cast("Answer", child.answer())


async def ask_in_background(
    state: AdmissionState, question: Callable[[AdmissionState], Answer], *, deadline_s: float
) -> Answer:
    """As ``ask``, for callers in an event loop: it blocks the loop only while the child process is created.

    The child has a copy of the state as it is at the call, before the first ``await``. Other questions can
    run at the same time. If the caller is cancelled, the child is killed.
    """
    loop = asyncio.get_running_loop()
    child = _start(state, question, deadline_s)
    ended: asyncio.Future[None] = loop.create_future()

    def read() -> None:
        if not child.read() and not ended.done():
            loop.remove_reader(child.pipe)
            ended.set_result(None)

    try:
        loop.add_reader(child.pipe, read)
        try:
            async with asyncio.timeout(deadline_s):
                await ended
        except TimeoutError:
            raise BranchDeadlineExceeded(_deadline_message(deadline_s)) from None
    except BaseException:
        child.kill()
        raise
    finally:
        loop.remove_reader(child.pipe)
        # The child frees its memory before it closes the pipe. So this wait is short, also after a kill.
        child.end()
    return cast("Answer", child.answer())


def _has_ended(child: "_Child", ends_at: float) -> bool:
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


# --- the parent ---------------------------------------------------------------------------------------


class _Result(NamedTuple):
    """What a child sends: an answer, or the error of the question with its traceback."""

    answer: object
    error: BaseException | None = None
    trace: str = ""


@dataclass(slots=True, eq=False)
class _Child:
    """A child process, and the end of its pipe from which the parent reads."""

    pid: int
    pipe: int
    received: bytearray
    status: int | None = None
    """The status of its end, as of ``os.waitpid``."""

    def read(self) -> bool:
        """Read what the child has sent so far. Return whether it may send more."""
        while True:
            try:
                part = os.read(self.pipe, _CHUNK)
            except BlockingIOError:
                return True
            if not part:
                return False
            self.received += part

    def kill(self) -> None:
        """End the child at once."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Close the pipe, and wait for the end of the child."""
        os.close(self.pipe)
        # If SIGCHLD is ignored, the kernel forgets the child at its end: there is nothing to wait for.
        with suppress(ChildProcessError):
            _, self.status = os.waitpid(self.pid, 0)

    def answer(self) -> object:
        """Return the answer of a child that has ended.

        Raises:
            BranchFailed: the child sent no complete answer.
            BaseException: the error of the question.
        """
        code = 0 if self.status is None else os.waitstatus_to_exitcode(self.status)
        if code:
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            raise BranchFailed(f"the child process ended with {how}")
        try:
            result = cast("_Result", pickle.loads(self.received))  # noqa: S301 from our own child
        except (pickle.UnpicklingError, EOFError) as error:
            raise BranchFailed("the child process sent no complete answer") from error
        if result.error is not None:
            result.error.add_note(f"In the child process:\n{result.trace}")
            raise result.error
        return result.answer


def _start(state: AdmissionState, question: Callable[[AdmissionState], object], deadline_s: float) -> _Child:
    """Create a child process for a question.

    Raises:
        CycleInProgressError: a cycle of the state that runs in steps has not ended.
        BranchFailed: no process can be created.
    """
    if state.is_in_cycle:
        raise CycleInProgressError("a cycle has not ended")
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    # The child must get no signal before it has restored the default actions.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        with warnings.catch_warnings():
            # Python warns of a fork with threads. The description of this module says why it is safe here.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            _run_child(state, question, writer, deadline_s)
    except OSError as error:
        os.close(reader)
        raise BranchFailed(f"no process can be created: {error}") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        os.close(writer)
    return _Child(pid, reader, bytearray())


# --- the child ----------------------------------------------------------------------------------------


def _run_child(
    state: AdmissionState, question: Callable[[AdmissionState], object], writer: int, deadline_s: float
) -> NoReturn:
    """Answer the question, and end this process. Nothing may return or raise into the parent's code."""
    code = 1
    try:
        gc.disable()
        _separate_from_parent(writer, deadline_s)
        _send(writer, _encoded(_result_of(state, question)))
        code = 0
    finally:
        os._exit(code)


def _separate_from_parent(writer: int, deadline_s: float) -> None:
    """Give up signals, descriptors and limits of the parent."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        # A pipe that the parent has closed must raise, so that the child ends with its own exit code.
        action = signal.SIG_IGN if number == signal.SIGPIPE else signal.SIG_DFL
        with suppress(OSError, ValueError):
            signal.signal(number, action)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(_STANDARD_STREAMS):
        if stream != writer:
            os.dup2(null, stream)
    os.closerange(_STANDARD_STREAMS, writer)
    os.closerange(max(writer + 1, _STANDARD_STREAMS), os.sysconf("SC_OPEN_MAX"))
    seconds = ceil(time.process_time() + deadline_s) + 1
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _result_of(state: AdmissionState, question: Callable[[AdmissionState], object]) -> _Result:
    try:
        return _Result(question(state))
    except BaseException as error:  # noqa: BLE001 the caller gets it
        return _Result(None, _sendable(error), "".join(traceback.format_exception(error)))


def _encoded(result: _Result) -> bytes:
    try:
        return pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 whatever an answer raises that cannot be pickled
        failure = BranchFailed(f"the answer cannot be sent: {error!r}")
        return pickle.dumps(_Result(None, failure, "".join(traceback.format_exception(error))))


def _sendable(error: BaseException) -> BaseException:
    """Return the error, or a description of it if it cannot be sent to the parent."""
    try:
        copy: Any = pickle.loads(pickle.dumps(error))  # noqa: S301 our own value
    except Exception:  # noqa: BLE001 whatever an error raises that cannot be pickled
        copy = None
    return error if type(copy) is type(error) else BranchFailed(f"the question failed: {error!r}")


def _send(writer: int, message: bytes) -> None:
    rest = memoryview(message)
    while rest:
        rest = rest[os.write(writer, rest) :]
