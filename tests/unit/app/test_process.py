"""Signals that a process handles."""

import asyncio
import os
import signal

import pytest
from structlog.testing import capture_logs

from admitq.app import process


async def test_state_signal_does_not_end_process_without_core() -> None:
    # Without a handler the signal would end these tests.
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        with capture_logs() as lines:
            running = asyncio.create_task(process._run_until_signal([], None))  # type: ignore[reportPrivateUsage]
            await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGUSR2)
            async with asyncio.timeout(10):
                while not lines:
                    await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(process.ProcessStopped):
                await running
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert [line["event"] for line in lines] == ["process has no state to dump", "process is stopping"]
