"""The processes of `hack/bench webhook`: webhooks, loads, and processes that keep cores busy."""

import asyncio
import concurrent.futures
import contextlib
import multiprocessing
import os
import sys
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.webhook_load import ReplicaAddress
from benchmarks.webhook_server import IN_PROCESS
from localcluster.processes import Usage, current

_END_OF_CERTIFICATE: Final = b"-----END CERTIFICATE-----\n"
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
# Fields of the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal.
_BUSY_FIELDS: Final = (1, 2, 3, 6, 7, 8)
_SPINS: Final = 100_000


class WebhookFailed(Exception):
    """The webhook did not start, or rejected an ordinary job."""


@dataclass(frozen=True)
class WebhookProcess:
    """A running webhook."""

    pid: int
    address: ReplicaAddress

    @property
    def child_pids(self) -> list[int]:
        """The processes that review its large objects."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]


@contextlib.asynccontextmanager
async def running_webhook(cores: Sequence[int], *, in_process: bool) -> AsyncGenerator[WebhookProcess]:
    """Run a webhook, and its child process, on these cores.

    The system divides CPU time between sessions, as it does between containers. In the session of a process
    that keeps another core busy, the webhook would have to wait for every other session of its core.

    Raises:
        WebhookFailed: the webhook did not start.
    """
    command = [sys.executable, "-m", "benchmarks.webhook_server", *([IN_PROCESS] if in_process else [])]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    try:
        # Threads and child processes that start later inherit the cores.
        os.sched_setaffinity(process.pid, cores)
        if process.stdin is None or process.stdout is None:
            raise WebhookFailed("the webhook has no pipes")
        try:
            port = int(await process.stdout.readuntil())
            authority = await process.stdout.readuntil(_END_OF_CERTIFICATE)
        except (asyncio.IncompleteReadError, ValueError) as error:
            raise WebhookFailed("the webhook did not start") from error
        yield WebhookProcess(process.pid, ReplicaAddress(port, authority))
        process.stdin.close()
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@contextlib.contextmanager
def load_process(
    cores: Sequence[int], niceness: int
) -> Generator[tuple[concurrent.futures.ProcessPoolExecutor, int]]:
    """Run a process for one load at a time on these cores; yield its executor and its id."""
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(
        1, spawn, initializer=settle, initargs=(cores, niceness)
    ) as pool:
        yield pool, pool.submit(os.getpid).result()


@contextlib.contextmanager
def busy_processes(cores: Iterable[int]) -> Generator[list[int]]:
    """Keep each of these cores busy with a process; yield the ids of the processes."""
    spawn = multiprocessing.get_context("spawn")
    started = [spawn.Process(target=_keep_busy, args=(core, os.getpid()), daemon=True) for core in cores]
    try:
        for process in started:
            process.start()
        yield [process.pid for process in started if process.pid is not None]
    finally:
        for process in started:
            process.kill()
            process.join()


def settle(cores: Sequence[int], niceness: int) -> None:
    """Run this process on these cores in its own session, with this niceness if the system permits it."""
    os.setsid()
    os.sched_setaffinity(0, cores)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, niceness)


def _keep_busy(core: int, parent: int) -> None:
    os.setsid()
    os.sched_setaffinity(0, [core])
    while os.getppid() == parent:
        for _ in range(_SPINS):
            pass


def usage_of(pids: Iterable[int]) -> Usage:
    """Return the sum of the usage of running processes."""
    usages = [usage for pid in pids if (usage := current(pid).usage()) is not None]
    return Usage(
        cpu_seconds=sum(usage.cpu_seconds for usage in usages),
        rss_mib=sum(usage.rss_mib for usage in usages),
        peak_rss_mib=sum(usage.peak_rss_mib for usage in usages),
    )


def machine_cpu_seconds() -> float:
    """Return the CPU time of all processes of the machine since its start."""
    return busy_seconds(Path("/proc/stat").read_text())


def busy_seconds(stat: str) -> float:
    """Return the CPU time in the content of ``/proc/stat``, including time stolen by the hypervisor."""
    fields = stat.split("\n", 1)[0].split()
    return sum(int(fields[index]) for index in _BUSY_FIELDS) / _TICKS_PER_SECOND
