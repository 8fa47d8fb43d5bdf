"""A controller retries failing keys, and quarantines keys that keep failing."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from admitq.runtime.controller import QUARANTINE_AFTER, Controller, ReconcileReport, ReconcileResult
from admitq.runtime.errors import ApiError, NotLeadingError, PermanentRejection
from localcluster.waiting import eventually


@asynccontextmanager
async def running(controller: Controller[str]) -> AsyncGenerator[None]:
    task = asyncio.create_task(controller.run())
    try:
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def wait_until(predicate: Callable[[], Any]) -> Any:
    return eventually(predicate, interval=0.005)


class Reconciler:
    """Raises the scripted errors of each key in order, then succeeds."""

    def __init__(self, **scripts: list[Exception]) -> None:
        self.scripts = scripts
        self.calls: Counter[str] = Counter()
        self.results: list[ReconcileResult] = []

    async def __call__(self, key: str) -> float | None:
        self.calls[key] += 1
        if self.scripts.get(key):
            raise self.scripts[key].pop(0)
        return None

    def observe(self, reconciled: ReconcileReport) -> None:
        self.results.append(reconciled.result)


CONFLICT = ApiError(409, "Conflict", "changed")
UNAVAILABLE = ApiError(503, "ServiceUnavailable", "down")


@pytest.mark.parametrize(
    ("failures", "results"),
    [
        ([], [ReconcileResult.SUCCESS]),
        ([CONFLICT] * 7, [ReconcileResult.CONFLICT] * 7 + [ReconcileResult.SUCCESS]),
        ([UNAVAILABLE] * 6, [ReconcileResult.TRANSIENT] * 6 + [ReconcileResult.SUCCESS]),
        ([RuntimeError("bug")] * 4, [ReconcileResult.ERROR] * 4 + [ReconcileResult.SUCCESS]),
        ([ApiError(422, "Invalid", "no")], [ReconcileResult.ERROR, ReconcileResult.SUCCESS]),
    ],
)
async def test_failing_key_is_retried_until_success(
    failures: list[Exception], results: list[ReconcileResult]
):
    reconciler = Reconciler(a=list(failures))
    controller = Controller("test", reconciler, observe=reconciler.observe)
    async with running(controller):
        controller.add("a")
        await wait_until(lambda: reconciler.results == results)
    assert not controller.quarantined


async def test_key_that_keeps_failing_is_quarantined_and_others_are_reconciled():
    reconciler = Reconciler(bad=[RuntimeError("bug")] * 100)
    controller = Controller("test", reconciler)
    async with running(controller):
        controller.add("bad")
        await wait_until(lambda: "bad" in controller.quarantined)
        controller.add("good")
        await wait_until(lambda: reconciler.calls["good"] == 1)
    assert reconciler.calls["bad"] == QUARANTINE_AFTER
    assert controller.quarantined == {"bad": "RuntimeError: bug"}


async def test_quarantine_ends_when_key_is_added_and_not_by_timer():
    reconciler = Reconciler(a=[RuntimeError("bug")] * QUARANTINE_AFTER)
    reports: list[tuple[str, str, str | None]] = []
    controller = Controller(
        "test",
        reconciler,
        on_quarantine=lambda source, key: reports.append((source.name, key, source.quarantined.get(key))),
    )
    async with running(controller):
        controller.add("a")
        await wait_until(lambda: "a" in controller.quarantined)
        controller.add_after("a", 0.001)
        controller.add_after("other", 0.002)
        await wait_until(lambda: reconciler.calls["other"] == 1)
        assert reconciler.calls["a"] == QUARANTINE_AFTER
        controller.add("a")
        await wait_until(lambda: reconciler.calls["a"] == QUARANTINE_AFTER + 1)
    assert not controller.quarantined
    assert reports == [("test", "a", "RuntimeError: bug"), ("test", "a", None)]


async def test_key_quarantined_after_refusals_of_api_server_is_retried():
    refused = ApiError(403, "Forbidden", "exceeded quota")
    reconciler = Reconciler(a=[refused] * (QUARANTINE_AFTER + 2))
    quarantined: list[int] = []
    controller = Controller(
        "test",
        reconciler,
        on_quarantine=lambda source, _: quarantined.append(len(source.quarantined)),
        rejected_retry=0.01,
    )
    async with running(controller):
        controller.add("a")
        await wait_until(lambda: reconciler.calls["a"] == QUARANTINE_AFTER + 3)
        await wait_until(lambda: not controller.quarantined)
    assert quarantined == [1, 0]


async def test_d24_permanently_rejected_key_is_quarantined_at_once_without_stack_trace():
    reconciler = Reconciler(a=[PermanentRejection("no podsets")] * 2)
    controller = Controller("test", reconciler, observe=reconciler.observe, rejected_retry=0.001)
    with capture_logs() as lines:
        async with running(controller):
            controller.add("a")
            await wait_until(lambda: "a" in controller.quarantined)
            assert controller.quarantined == {"a": "no podsets"}
            controller.add_after("a", 0.001)
            await wait_until(lambda: len(reconciler.results) == 2)
            assert reconciler.calls["a"] == 1
            controller.add("a")
            await wait_until(lambda: reconciler.calls["a"] == 2)
            controller.add("a")
            await wait_until(lambda: reconciler.calls["a"] == 3)
            await wait_until(lambda: not controller.quarantined)
    expected = ("invalid object, waiting for change", False)
    assert [(line["event"], "exc_info" in line) for line in lines] == [expected] * 2


async def test_d24_key_added_during_permanent_rejection_is_reconciled_again():
    calls = 0

    async def reconcile(key: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            controller.add(key)
            raise PermanentRejection("no podsets")

    controller = Controller("test", reconcile)
    async with running(controller):
        controller.add("a")
        await wait_until(lambda: calls == 2)
    assert not controller.quarantined


async def test_key_added_during_last_failure_is_reconciled_again():
    calls = 0

    async def reconcile(key: str) -> None:
        nonlocal calls
        calls += 1
        if calls == QUARANTINE_AFTER:
            controller.add(key)
        if calls <= QUARANTINE_AFTER:
            raise RuntimeError("bug")

    controller = Controller("test", reconcile)
    async with running(controller):
        controller.add("a")
        await wait_until(lambda: calls == QUARANTINE_AFTER + 1)


async def test_success_resets_failure_count():
    pattern: list[Any] = ([RuntimeError("bug")] * 3 + [None]) * 4

    async def reconcile(key: str) -> None:
        if pattern:
            failure = pattern.pop(0)
            if failure is not None:
                raise failure
            controller.add(key)

    controller = Controller("test", reconcile)
    async with running(controller):
        controller.add("a")
        await wait_until(lambda: not pattern)
    assert not controller.quarantined


async def test_key_is_reconciled_again_after_returned_seconds():
    calls = 0

    async def reconcile(key: str) -> float | None:
        nonlocal calls
        calls += 1
        return 0.01 if calls < 3 else None

    controller = Controller("test", reconcile)
    async with running(controller):
        controller.add("a")
        await wait_until(lambda: calls == 3)


async def test_hanging_reconcile_is_cancelled_and_counts_as_error():
    results: list[ReconcileResult] = []

    async def reconcile(key: str) -> None:
        if key == "hangs":
            await asyncio.Event().wait()

    controller = Controller("test", reconcile, deadline=0.02, observe=lambda r: results.append(r.result))
    async with running(controller):
        controller.add("hangs")
        controller.add("fine")
        await wait_until(lambda: ReconcileResult.SUCCESS in results)
        assert results[0] is ReconcileResult.ERROR


async def test_key_is_reconciled_by_one_worker_at_a_time():
    running_calls: Counter[str] = Counter()
    most_running_calls = 0

    async def reconcile(key: str) -> None:
        nonlocal most_running_calls
        running_calls[key] += 1
        most_running_calls = max(most_running_calls, running_calls[key])
        await asyncio.sleep(0.001)
        running_calls[key] -= 1
        done.append(key)

    done: list[str] = []
    controller = Controller("test", reconcile, workers=4)
    async with running(controller):
        for _ in range(5):
            for key in ("a", "b"):
                controller.add(key)
            await asyncio.sleep(0)
        await wait_until(lambda: {"a", "b"} <= set(done) and not controller.queue.working)
    assert most_running_calls == 1


async def test_key_is_retried_without_failure_if_lease_is_not_held():
    reconciler = Reconciler(a=[NotLeadingError("lease")])
    controller = Controller("test", reconciler, observe=reconciler.observe)
    async with running(controller):
        controller.add("a")
        await wait_until(lambda: reconciler.results == [ReconcileResult.TRANSIENT, ReconcileResult.SUCCESS])


async def test_retry_waits_for_retry_after_of_server():
    slow = ApiError(429, "TooManyRequests", "slow down", retry_after=0.2)
    times: list[float] = []

    async def reconcile(key: str) -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            raise slow

    controller = Controller("test", reconcile)
    async with running(controller):
        controller.add("a")
        await wait_until(lambda: len(times) == 2)
    assert times[1] - times[0] >= 0.19


async def test_urgent_key_is_reconciled_while_all_workers_are_busy():
    started: list[str] = []
    both_started = asyncio.Event()

    async def reconcile(key: str) -> None:
        started.append(key)
        if len(started) == 2:
            both_started.set()
        await asyncio.Event().wait()

    controller: Controller[str] = Controller("c", reconcile, workers=1, urgent_workers=1)
    controller.add("a")
    async with running(controller):
        await wait_until(lambda: started)
        controller.add("b")
        controller.add("c", urgent=True)
        await asyncio.wait_for(both_started.wait(), 60)
        assert started == ["a", "c"]


async def test_reconciles_without_calls_leave_turns_to_other_tasks() -> None:
    reconciled: list[int] = []

    async def reconcile(key: int) -> None:
        reconciled.append(key)

    controller = Controller[int]("many", reconcile, workers=2)
    for key in range(1000):
        controller.add(key)
    task = asyncio.create_task(controller.run())
    while not reconciled:
        await asyncio.sleep(0)
    assert len(reconciled) < 10
    await wait_until(lambda: len(reconciled) == 1000)
    task.cancel()


async def test_refreshed_key_is_reconciled_at_most_once_in_the_interval():
    reconciler = Reconciler()
    controller = Controller("test", reconciler, refresh_interval=3600)
    async with running(controller):
        controller.refresh("a")
        await wait_until(lambda: reconciler.calls["a"] == 1)
        for _ in range(3):
            controller.refresh("a")
        controller.refresh("b")
        await wait_until(lambda: reconciler.calls["b"] == 1)
        assert (reconciler.calls["a"], controller.queue.delayed) == (1, 1)
        controller.add("a")
        await wait_until(lambda: reconciler.calls["a"] == 2)


async def test_refreshed_key_is_reconciled_again_when_the_interval_ends():
    reconciler = Reconciler()
    controller = Controller("test", reconciler, refresh_interval=0.02)
    async with running(controller):
        controller.refresh("a")
        await wait_until(lambda: reconciler.calls["a"] == 1)
        controller.refresh("a")
        await wait_until(lambda: reconciler.calls["a"] == 2)
        await wait_until(lambda: not controller.queue.delayed and not len(controller.queue))


async def test_refresh_ends_quarantine():
    reconciler = Reconciler(a=[RuntimeError("bug")] * QUARANTINE_AFTER)
    controller = Controller("test", reconciler)
    async with running(controller):
        controller.refresh("a")
        await wait_until(lambda: "a" in controller.quarantined)
        controller.refresh("a")
        await wait_until(lambda: reconciler.calls["a"] == QUARANTINE_AFTER + 1)
    assert not controller.quarantined
