import asyncio
import errno
import gc
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from admitq.asking.branch_processes import BranchDeadlineExceeded, BranchFailed, ChildLimits, Send
from admitq.asking.branches import ask, ask_for_parts, ask_in_background, branch_of
from admitq.core.events import CyclesRequested
from admitq.core.instructions import ReserveQuota
from admitq.core.state import AdmissionState, CycleInProgressError
from tests.unit.core.small_cluster import SmallCluster, queue

ENOUGH_S = 60.0
"""A deadline that only a defect exceeds."""


@pytest.fixture
def state() -> AdmissionState:
    cluster = SmallCluster()
    cluster.put(queue("a", 2))
    for name in ("one", "two", "three"):
        cluster.submit(name, "a")
    return cluster.state


def answer(state: AdmissionState, question: Callable[[AdmissionState], Any], deadline_s: float) -> Any:
    return ask(state, question, deadline_s=deadline_s)


def answer_in_loop(
    state: AdmissionState, question: Callable[[AdmissionState], Any], deadline_s: float
) -> Any:
    return asyncio.run(ask_in_background(state, question, deadline_s=deadline_s))


both = pytest.mark.parametrize("put", [answer, answer_in_loop], ids=["waiting", "in event loop"])
Put = Callable[[AdmissionState, Callable[[AdmissionState], Any], float], Any]


def reservations(state: AdmissionState) -> list[str]:
    decided = state.handle(CyclesRequested(), now=10**12)
    return [each.key.name for each in decided if isinstance(each, ReserveQuota)]


def wait_for_ever(_state: AdmissionState) -> None:
    signal.pause()


async def text_of(path: Path) -> str:
    """Return the text of a file once it exists."""
    async with asyncio.timeout(ENOUGH_S):
        while not (text := text_if_exists(path)):
            await asyncio.sleep(0.001)
    return text


def text_if_exists(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@contextmanager
def no_child_left() -> Generator[None]:
    """Check that children which were created in the block have ended, and have been waited for."""
    children: list[int] = []
    fork = os.fork

    def recorded() -> int:
        pid = fork()
        children.append(pid)
        return pid

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fork", recorded)
        yield
    for pid in children:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@both
def test_question_changes_only_its_branch(put: Put, state: AdmissionState) -> None:
    with no_child_left():
        assert put(state, reservations, ENOUGH_S) == ["one", "two"]
        assert put(state, reservations, ENOUGH_S) == ["one", "two"]
    assert reservations(state) == ["one", "two"]


@both
def test_branch_without_answer_is_killed_at_its_deadline(put: Put, state: AdmissionState) -> None:
    with no_child_left(), pytest.raises(BranchDeadlineExceeded, match=r"no answer within 0\.050 s"):
        put(state, wait_for_ever, 0.05)


class UnusualError(Exception):
    """Cannot be created from its arguments, so it cannot be unpickled."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(first + second)


@both
def test_exception_of_question_is_raised_with_traceback_of_child(put: Put, state: AdmissionState) -> None:
    def fail(_state: AdmissionState) -> None:
        raise KeyError("no such workload")

    with no_child_left(), pytest.raises(KeyError, match="no such workload") as raised:
        put(state, fail, ENOUGH_S)
    (note,) = raised.value.__notes__
    assert "In the child process" in note
    assert "in fail" in note


@both
def test_exception_that_cannot_be_pickled_is_described(put: Put, state: AdmissionState) -> None:
    def fail(_state: AdmissionState) -> None:
        raise UnusualError(1, 2)

    with no_child_left(), pytest.raises(BranchFailed, match=r"the question failed: UnusualError\(3\)"):
        put(state, fail, ENOUGH_S)


@both
def test_answer_that_cannot_be_pickled_is_an_error(put: Put, state: AdmissionState) -> None:
    with no_child_left(), pytest.raises(BranchFailed, match="the answer cannot be sent"):
        put(state, lambda _: threading.Lock(), ENOUGH_S)


@both
def test_killed_child_is_an_error(put: Put, state: AdmissionState) -> None:
    def die(_state: AdmissionState) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with no_child_left(), pytest.raises(BranchFailed, match="ended with signal SIGKILL"):
        put(state, die, ENOUGH_S)


@both
def test_child_that_ends_early_is_an_error(put: Put, state: AdmissionState) -> None:
    with no_child_left(), pytest.raises(BranchFailed, match="ended with exit code 3"):
        put(state, lambda _: os._exit(3), ENOUGH_S)


@both
def test_answer_larger_than_pipe_arrives_whole(put: Put, state: AdmissionState) -> None:
    size = 20_000_000
    with no_child_left():
        assert put(state, lambda _: b"x" * size, ENOUGH_S) == b"x" * size


async def test_event_loop_runs_while_several_branches_work(state: AdmissionState, tmp_path: Path) -> None:
    """Each child runs until the event loop, which learns its process id from a file, ends it."""

    def report_then_wait(path: Path) -> Callable[[AdmissionState], None]:
        def question(_state: AdmissionState) -> None:
            path.write_text(str(os.getpid()))
            path.rename(path.with_suffix(".written"))
            signal.pause()

        return question

    asked = [
        asyncio.create_task(
            ask_in_background(state, report_then_wait(tmp_path / str(number)), deadline_s=ENOUGH_S)
        )
        for number in range(3)
    ]
    for number in range(3):
        os.kill(int(await text_of(tmp_path / f"{number}.written")), signal.SIGTERM)
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [str(each) for each in results] == ["the child process ended with signal SIGTERM"] * 3


async def test_cancelled_caller_leaves_no_child(state: AdmissionState) -> None:
    asked = asyncio.create_task(ask_in_background(state, wait_for_ever, deadline_s=ENOUGH_S))
    await asyncio.sleep(0)  # The task starts its child before it waits.
    asked.cancel()
    with no_child_left(), pytest.raises(asyncio.CancelledError):
        await asked


def test_child_inherits_no_descriptors_but_its_pipe(state: AdmissionState) -> None:
    first, other = socket.socketpair()
    with first, other:

        def list_open_files(_state: AdmissionState) -> list[str]:
            numbers = [number for number in range(200) if is_open(number)]
            return [str(Path(f"/proc/self/fd/{number}").readlink()) for number in numbers]

        def is_open(number: int) -> bool:
            with suppress(OSError):
                os.fstat(number)
                return True
            return False

        (pipe,) = set(ask(state, list_open_files, deadline_s=ENOUGH_S)) - {os.devnull}
        assert pipe.startswith("pipe:")


def test_questions_of_questions_have_answers_in_the_event_loop_of_the_processes(
    state: AdmissionState,
) -> None:
    """In each child process, this event loop closes two descriptors by their numbers, and opens a pipe."""
    loops = pytest.importorskip("uvloop")

    def ask_deeper(_state: AdmissionState, depth: int) -> int:
        if not depth:
            return 0
        return 1 + ask(state, partial(ask_deeper, depth=depth - 1), deadline_s=ENOUGH_S)

    with asyncio.Runner(loop_factory=loops.new_event_loop) as runner:
        asked = ask_in_background(state, partial(ask_deeper, depth=5), deadline_s=ENOUGH_S)
        assert runner.run(asked) == 5


def test_output_of_child_is_discarded(state: AdmissionState, capfd: pytest.CaptureFixture[str]) -> None:
    sys.stdout.write("once ")
    ask(state, lambda _: [os.write(stream, b"from the child") for stream in (1, 2)], deadline_s=ENOUGH_S)
    sys.stdout.flush()
    assert capfd.readouterr() == ("once ", "")


def test_signal_to_child_does_not_run_handlers_of_parent(state: AdmissionState) -> None:
    received: list[int] = []
    former = signal.signal(signal.SIGTERM, lambda number, _frame: received.append(number))
    try:
        with pytest.raises(BranchFailed, match="ended with signal SIGTERM"):
            ask(state, lambda _: os.kill(os.getpid(), signal.SIGTERM), deadline_s=ENOUGH_S)
    finally:
        signal.signal(signal.SIGTERM, former)
    assert received == []
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_child_collects_no_garbage_and_its_cpu_time_is_limited(state: AdmissionState) -> None:
    def look(_state: AdmissionState) -> tuple[bool, tuple[int, int]]:
        return gc.isenabled(), resource.getrlimit(resource.RLIMIT_CPU)

    assert ask(state, look, deadline_s=5.5) == (False, (7, 7))


def test_question_is_answered_while_other_threads_hold_locks(state: AdmissionState) -> None:
    held, release = threading.Event(), threading.Event()

    lock = threading.Lock()

    def hold() -> None:
        with lock:
            held.set()
            release.wait(ENOUGH_S)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(ENOUGH_S)
        assert ask(state, reservations, deadline_s=ENOUGH_S) == ["one", "two"]
    finally:
        release.set()
        thread.join()


def test_question_in_the_middle_of_a_cycle_is_refused(state: AdmissionState) -> None:
    steps = state.cycle_steps(CyclesRequested(), now=10**12)
    next(steps)
    with no_child_left(), pytest.raises(CycleInProgressError):
        ask(state, reservations, deadline_s=ENOUGH_S)


def test_failed_fork_is_an_error_and_closes_the_pipe(
    state: AdmissionState, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, "too many processes")

    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(os, "fork", fork)
    with pytest.raises(BranchFailed, match="too many processes"):
        ask(state, reservations, deadline_s=ENOUGH_S)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_branch_asks_several_questions_of_the_same_state_within_one_deadline(state: AdmissionState) -> None:
    branch = branch_of(state, deadline_s=ENOUGH_S)
    assert [branch(reservations), branch(reservations)] == [["one", "two"]] * 2
    with pytest.raises(BranchDeadlineExceeded):
        branch_of(state, deadline_s=0)(wait_for_ever)


def test_branch_of_a_branch_answers(state: AdmissionState) -> None:
    def question(copy: AdmissionState) -> list[list[str]]:
        branch = branch_of(copy, deadline_s=ENOUGH_S)
        return [branch(reservations), reservations(copy), branch_of(copy, deadline_s=ENOUGH_S)(reservations)]

    assert ask(state, question, deadline_s=ENOUGH_S) == [["one", "two"], ["one", "two"], []]


# --- answers in parts -------------------------------------------------------------------------------------


async def parts_of(
    state: AdmissionState, question: Callable[[AdmissionState, Send], None], deadline_s: float = ENOUGH_S
) -> list[object]:
    """Return the parts of an answer. Those that arrive before an error are notes of the error."""
    parts: list[object] = []
    try:
        await ask_for_parts(state, question, parts.append, ChildLimits(deadline_s))
    except Exception as error:
        error.add_note(f"parts: {parts}")
        raise
    return parts


async def test_parts_of_an_answer_arrive_in_order_and_whole(state: AdmissionState) -> None:
    def question(copy: AdmissionState, send: Send) -> None:
        send(reservations(copy))
        for size in (0, 3_000_000, 1):
            send(b"x" * size)

    with no_child_left():
        assert await parts_of(state, question) == [["one", "two"], b"", b"x" * 3_000_000, b"x"]
        assert await parts_of(state, lambda _state, _send: None) == []


async def test_part_arrives_while_the_child_works_on_the_next_one(state: AdmissionState) -> None:
    """The child sends its process id and waits. The caller ends it once it has received this part."""

    def question(_state: AdmissionState, send: Send) -> None:
        send(os.getpid())
        signal.pause()

    with no_child_left(), pytest.raises(BranchFailed, match="ended with signal SIGTERM"):
        await ask_for_parts(
            state, question, lambda pid: os.kill(int(str(pid)), signal.SIGTERM), ChildLimits(ENOUGH_S)
        )


def send_then(end: Callable[[], object]) -> Callable[[AdmissionState, Send], None]:
    def question(_state: AdmissionState, send: Send) -> None:
        send("first")
        end()

    return question


def fail() -> None:
    raise KeyError("no such workload")


@pytest.mark.parametrize(
    ("end", "deadline_s", "error", "words"),
    [
        (fail, ENOUGH_S, KeyError, "no such workload"),
        (lambda: os._exit(3), ENOUGH_S, BranchFailed, "ended with exit code 3"),
        (signal.pause, 0.5, BranchDeadlineExceeded, r"no answer within 0\.500 s"),
    ],
)
async def test_parts_before_an_error_arrive(
    state: AdmissionState, end: Callable[[], object], deadline_s: float, error: type[Exception], words: str
) -> None:
    with no_child_left(), pytest.raises(error, match=words) as raised:
        await parts_of(state, send_then(end), deadline_s=deadline_s)
    assert "parts: ['first']" in raised.value.__notes__


async def test_error_of_the_receiver_ends_the_child(state: AdmissionState) -> None:
    def refuse(part: object) -> None:
        raise ValueError(part)

    with no_child_left(), pytest.raises(ValueError, match="first"):
        await ask_for_parts(state, send_then(signal.pause), refuse, ChildLimits(ENOUGH_S))


async def test_child_and_its_children_have_low_priority_and_limited_memory(state: AdmissionState) -> None:
    def look(_state: AdmissionState) -> tuple[int, bool]:
        try:
            return os.nice(0), len(bytearray(1 << 30)) == 0
        except MemoryError:
            return os.nice(0), True

    def question(copy: AdmissionState, send: Send) -> None:
        send(look(copy))
        send(branch_of(copy, deadline_s=ENOUGH_S)(look))

    nice = min(19, os.nice(0) + 7)
    parts: list[object] = []
    await ask_for_parts(state, question, parts.append, ChildLimits(ENOUGH_S, nice=7, new_memory=1 << 26))
    assert parts == [(nice, True)] * 2


# --- orphans ----------------------------------------------------------------------------------------------

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends orphans")


async def until_ended(pid: int) -> None:
    """Wait until a process has ended, whether or not another process has waited for it."""
    async with asyncio.timeout(ENOUGH_S):
        while text_if_exists(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[:1] not in ([], ["Z"]):
            await asyncio.sleep(0.001)


@needs_linux
async def test_grandchild_of_a_killed_child_ends(state: AdmissionState, tmp_path: Path) -> None:
    def wait(_state: AdmissionState) -> None:
        (tmp_path / "new").write_text(str(os.getpid()))
        (tmp_path / "new").rename(tmp_path / "pid")
        signal.pause()

    asked = asyncio.create_task(
        ask_in_background(state, lambda copy: branch_of(copy, deadline_s=ENOUGH_S)(wait), deadline_s=ENOUGH_S)
    )
    grandchild = int(await text_of(tmp_path / "pid"))
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    await until_ended(grandchild)


_PROGRAM = """
import asyncio, os, signal
from admitq.asking.branch_processes import ChildLimits
from admitq.asking.branches import ask_for_parts, branch_of
from admitq.core.state import AdmissionState

def question(state, send):
    send(os.getpid())
    branch_of(state, deadline_s=60)(lambda copy: signal.pause())

asyncio.run(
    ask_for_parts(AdmissionState(), question, lambda pid: print(pid, flush=True), ChildLimits(60))
)
"""
"""A program with a child that prints its process id, and has a child itself."""


@needs_linux
async def test_no_child_outlives_a_killed_process() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _PROGRAM, stdout=subprocess.PIPE)
    assert process.stdout is not None
    child = int(await process.stdout.readline())
    grandchild = int(await text_of(Path(f"/proc/{child}/task/{child}/children")))
    process.kill()
    await process.wait()
    await until_ended(child)
    await until_ended(grandchild)
