"""Wait until a manager is at rest, so that a measurement begins without work that is left over."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from benchmarks.throughput_connection import ThroughputFailed

QUIET_S: Final = 10.0
"""A manager is at rest after this time without a write and nearly without CPU time."""
PATIENCE_S: Final = 600.0
"""The seconds within which a manager must be at rest."""

_IDLE_SHARE: Final = 0.1
"""The share of a CPU that a manager at rest may use."""
_LOOK_EVERY_S: Final = 0.5
_LOOK_CPU_S: Final = 0.1


async def until_rest(
    cpu_seconds: Callable[[], float], count_writes: Callable[[], int], *, quiet_s: float = QUIET_S
) -> float:
    """Wait until a manager is at rest, and return since when it has been, as monotonic time.

    Args:
        cpu_seconds: returns the CPU time of the manager so far.
        count_writes: returns the number of its writes so far.
        quiet_s: the seconds that it must be quiet.

    Raises:
        ThroughputFailed: it is not at rest in time.
    """
    quiet_since = began = time.monotonic()
    cpu_then, count_then = cpu_seconds(), count_writes()
    while (now := time.monotonic()) - quiet_since < quiet_s:
        if now - began > PATIENCE_S:
            raise ThroughputFailed(f"the manager was not at rest within {PATIENCE_S:.0f} s")
        await asyncio.sleep(_LOOK_EVERY_S)
        cpu, count = cpu_seconds(), count_writes()
        idle_cpu = _LOOK_CPU_S + _IDLE_SHARE * (time.monotonic() - quiet_since)
        if count > count_then or cpu - cpu_then > idle_cpu:
            quiet_since, cpu_then, count_then = time.monotonic(), cpu, count
    return quiet_since
