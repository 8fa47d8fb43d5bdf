"""Child processes that have a copy of an admission state: how they begin, what they send, and how they end.

``os.fork`` creates a child process, which shares the memory of its parent until one of both writes to it. The
child calls a function with the state, sends *parts* of an answer through a pipe, and ends. The state of the
parent never changes. ``branches`` has the functions for callers.

A fork of a running process has dangers. This module handles them as follows:

- *Threads.* Only the thread that calls ``os.fork`` exists in the child. Locks that other threads held stay
  locked for ever. Questions must therefore take no locks: they call only the core and pure functions, which
  must have been imported before. Python itself releases its own locks, and those of ``logging``. A question
  that waits for a lock nevertheless is killed at its deadline.
- *The event loop.* The child never returns to it, and closes its descriptors without a call to it. Else the
  child would change the epoll set that it shares with its parent.
- *Signals.* The child restores the default actions before it receives any signal. Else a handler would run
  the shutdown of the parent, or write into the parent's event loop.
- *Descriptors.* The child keeps only its pipe, and replaces all other descriptors by ``/dev/null``. Else a
  connection that the parent closes would stay open, and a lock on a file would stay locked. Standard output
  is among them, so that buffers of the parent are not written twice. Logs of a question are lost. The numbers
  of the descriptors stay in use, because libraries remember them: in a child of the child, the event loop
  (libuv) closes two descriptors by their numbers. It would close the pipe if that had one of these numbers.
- *Exit.* The child ends by ``os._exit``: no destructors, exit functions or ``finally`` blocks of callers run.
- *Garbage collection* is off in the child. A collection writes to all objects, and so would copy all memory.
- *Memory.* The child needs memory only for what it changes. If memory runs out, the kernel kills the child
  before the parent, because the child raises its own ``oom_score_adj``. The caller gets ``BranchFailed``.
- *Orphans.* On Linux, the kernel kills the child when the thread that created it ends, for example because
  its process was killed. A child of the child ends likewise. On other systems, only the CPU time of an orphan
  is limited: to its deadline and a second. A thread that creates a child must wait for its end.
- *Zombies.* The parent waits for every child, also after a deadline, an error or a cancellation.

Each child needs a processor of its own. Callers limit how many questions run at once.
"""

import ctypes
import gc
import os
import pickle
import resource
import signal
import struct
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, cast

from admitq.core.state import AdmissionState, CycleInProgressError

Send = Callable[[object], None]
"""Sends a part of an answer to the parent. Only the part must be picklable."""

_CHUNK: Final = 1 << 18
"""The number of bytes to read at once."""

_STANDARD_STREAMS: Final = 3
"""Descriptors below this number are standard input, output and error."""

_DESCRIPTORS: Final = "/dev/fd"
"""The folder that lists the descriptors of a process, on Linux and on macOS."""

_LENGTH: Final = struct.Struct("<Q")
"""The number of bytes of a part. It is sent before the part."""

_PR_SET_PDEATHSIG: Final = 1
"""The operation of ``prctl`` that sets the signal which a process gets when its parent ends."""

_prctl: Final[Any] = getattr(ctypes.CDLL(None), "prctl", None)
"""The system call of Linux; None on other systems."""


class BranchError(Exception):
    """A branch gave no answer."""


class BranchFailed(BranchError):
    """The child process ended without an answer, or its answer cannot be sent."""


class BranchDeadlineExceeded(BranchError):
    """The child process had no answer before its deadline, and was killed."""


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """What a child process, with its own children, may use.

    Attributes:
        deadline_s: seconds after which the caller kills it. Its CPU time is limited to a second more.
        nice: how much lower its priority is than that of its parent, as of ``os.nice``.
        new_memory: the most bytes of address space that it may use beside the memory that it shares with its
            parent; None: no limit.
    """

    deadline_s: float
    nice: int = 0
    new_memory: int | None = None


# --- the parent ---------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """What a child sends: a part of an answer, or the error that ended it with its traceback."""

    value: object
    error: BaseException | None = None
    trace: str = ""


@dataclass(slots=True, eq=False)
class Child:
    """A child process, and the end of its pipe from which the parent reads."""

    pid: int
    pipe: int
    _received: bytearray = field(default_factory=bytearray)
    _status: int | None = None
    """The status of its end, as of ``os.waitpid``."""

    def read(self) -> bool:
        """Read what the child has sent so far. Return whether it may send more."""
        while True:
            try:
                read = os.read(self.pipe, _CHUNK)
            except BlockingIOError:
                return True
            if not read:
                return False
            self._received += read

    def take_parts(self) -> Iterator[object]:
        """Yield the parts that have been read and not taken yet.

        Raises:
            BaseException: the error that ended the child.
        """
        while (end := self._end_of_part()) is not None:
            part = cast("_Part", pickle.loads(self._received[_LENGTH.size : end]))  # noqa: S301 our own child
            del self._received[:end]
            if part.error is not None:
                part.error.add_note(f"In the child process:\n{part.trace}")
                raise part.error
            yield part.value

    def _end_of_part(self) -> int | None:
        """Return how many bytes the next part has with its length; None if not all of them have been read."""
        if len(self._received) < _LENGTH.size:
            return None
        end = _LENGTH.size + int(_LENGTH.unpack_from(self._received)[0])
        return end if len(self._received) >= end else None

    def kill(self) -> None:
        """End the child at once."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Close the pipe, and wait for the end of the child."""
        os.close(self.pipe)
        # If SIGCHLD is ignored, the kernel forgets the child at its end: there is nothing to wait for.
        with suppress(ChildProcessError):
            _, self._status = os.waitpid(self.pid, 0)

    def check_end(self) -> None:
        """Check that the child has ended as it should, after its last part was taken.

        Raises:
            BranchFailed: it was killed, it failed, or its last part is not complete.
        """
        code = 0 if self._status is None else os.waitstatus_to_exitcode(self._status)
        if code:
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            raise BranchFailed(f"the child process ended with {how}")
        if self._received:
            raise BranchFailed("the child process sent no complete answer")


def start_child(
    state: AdmissionState, talk: Callable[[AdmissionState, Send], None], limits: ChildLimits
) -> Child:
    """Create a child process. It calls a function, which sends the parts of an answer.

    Args:
        state: the state, of which the child has a copy.
        talk: the function. It may change its state.
        limits: what the child may use. The caller must kill it at its deadline.

    Raises:
        CycleInProgressError: a cycle of the state that runs in steps has not ended.
        BranchFailed: no process can be created.
    """
    if state.is_in_cycle:
        raise CycleInProgressError("a cycle has not ended")
    parent = os.getpid()
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
            _run_child(parent, state, talk, writer, limits)
    except OSError as error:
        os.close(reader)
        raise BranchFailed(f"no process can be created: {error}") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        os.close(writer)
    return Child(pid, reader)


# --- the child ----------------------------------------------------------------------------------------


def _run_child(
    parent: int,
    state: AdmissionState,
    talk: Callable[[AdmissionState, Send], None],
    writer: int,
    limits: ChildLimits,
) -> NoReturn:
    """Send the answer, and end this process. Nothing may return or raise into the parent's code."""
    code = 1
    try:
        gc.disable()
        _end_with(parent)
        _separate_from_parent(writer)
        _limit(limits)
        try:
            talk(state, lambda value: _send(writer, _encoded(_Part(value))))
        except BaseException as error:  # noqa: BLE001 the caller gets it
            trace = "".join(traceback.format_exception(error))
            _send(writer, _encoded(_Part(None, _sendable(error), trace)))
        code = 0
    finally:
        os._exit(code)


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends. End it now if the parent has ended already."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _separate_from_parent(writer: int) -> None:
    """Give up signals and descriptors of the parent."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        # A pipe that the parent has closed must raise, so that the child ends with its own exit code.
        action = signal.SIG_IGN if number == signal.SIGPIPE else signal.SIG_DFL
        with suppress(OSError, ValueError):
            signal.signal(number, action)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    null = os.open(os.devnull, os.O_RDWR)
    present = {int(path.name) for path in Path(_DESCRIPTORS).iterdir()}
    for descriptor in {*range(_STANDARD_STREAMS), *present} - {writer, null}:
        os.dup2(null, descriptor)


def _limit(limits: ChildLimits) -> None:
    """Limit this process and its children. Limits that the system does not have, or has already, stay."""
    seconds = ceil(time.process_time() + limits.deadline_s) + 1
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    if limits.nice:
        with suppress(OSError):
            os.nice(limits.nice)
    if limits.new_memory is not None:
        with suppress(OSError, ValueError):
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            most = pages * resource.getpagesize() + limits.new_memory
            resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _encoded(part: _Part) -> bytes:
    try:
        return pickle.dumps(part, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise BranchFailed(f"the answer cannot be sent: {error!r}") from error


def _sendable(error: BaseException) -> BaseException:
    """Return the error, or a description of it if it cannot be sent to the parent."""
    try:
        copy: Any = pickle.loads(pickle.dumps(error))  # noqa: S301 our own value
    except Exception:  # noqa: BLE001 whatever an error raises that cannot be pickled
        copy = None
    return error if type(copy) is type(error) else BranchFailed(f"the question failed: {error!r}")


def _send(writer: int, message: bytes) -> None:
    for piece in (_LENGTH.pack(len(message)), message):
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(writer, rest) :]
