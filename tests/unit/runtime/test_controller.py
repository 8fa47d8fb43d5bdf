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


def soon(predicate: Callable[[], Any]) -> Any:
    return eventually(predicate, interval=0.005)


class Reconciler:
    """Fails on each key with what is scripted for it, then succeeds."""

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
async def test_a_failing_key_is_retried_until_it_succeeds(
    failures: list[Exception], results: list[ReconcileResult]
):
    reconciler = Reconciler(a=list(failures))
    controller = Controller("test", reconciler, observe=reconciler.observe)
    async with running(controller):
        controller.add("a")
        await soon(lambda: reconciler.results == results)
    assert not controller.quarantined


async def test_a_key_that_keeps_failing_is_set_aside_while_others_go_on():
    reconciler = Reconciler(bad=[RuntimeError("bug")] * 100)
    controller = Controller("test", reconciler)
    async with running(controller):
        controller.add("bad")
        await soon(lambda: "bad" in controller.quarantined)
        controller.add("good")
        await soon(lambda: reconciler.calls["good"] == 1)
    assert reconciler.calls["bad"] == QUARANTINE_AFTER
    assert controller.quarantined == {"bad": "RuntimeError: bug"}


async def test_a_quarantine_ends_when_the_input_changes_and_not_by_a_timer():
    reconciler = Reconciler(a=[RuntimeError("bug")] * QUARANTINE_AFTER)
    told: list[tuple[str, str, str | None]] = []
    controller = Controller(
        "test", reconciler, on_quarantine=lambda of, key: told.append((of.name, key, of.quarantined.get(key)))
    )
    async with running(controller):
        controller.add("a")
        await soon(lambda: "a" in controller.quarantined)
        controller.add_after("a", 0.001)
        controller.add_after("other", 0.002)
        await soon(lambda: reconciler.calls["other"] == 1)
        assert reconciler.calls["a"] == QUARANTINE_AFTER
        controller.add("a")
        await soon(lambda: reconciler.calls["a"] == QUARANTINE_AFTER + 1)
    assert not controller.quarantined
    assert told == [("test", "a", "RuntimeError: bug"), ("test", "a", None)]


async def test_what_the_api_server_refused_is_asked_again_after_a_while():
    refused = ApiError(403, "Forbidden", "exceeded quota")
    reconciler = Reconciler(a=[refused] * (QUARANTINE_AFTER + 2))
    told: list[int] = []
    controller = Controller(
        "test", reconciler, on_quarantine=lambda of, _: told.append(len(of.quarantined)), refused_retry=0.01
    )
    async with running(controller):
        controller.add("a")
        await soon(lambda: reconciler.calls["a"] == QUARANTINE_AFTER + 3)
        await soon(lambda: not controller.quarantined)
    assert told == [1, 0]


async def test_d24_permanently_refused_key_is_quarantined_at_once_without_a_stack_trace():
    reconciler = Reconciler(a=[PermanentRejection("no podsets")] * 2)
    controller = Controller("test", reconciler, observe=reconciler.observe, refused_retry=0.001)
    with capture_logs() as lines:
        async with running(controller):
            controller.add("a")
            await soon(lambda: "a" in controller.quarantined)
            assert controller.quarantined == {"a": "no podsets"}
            controller.add_after("a", 0.001)
            await soon(lambda: len(reconciler.results) == 2)
            assert reconciler.calls["a"] == 1
            controller.add("a")
            await soon(lambda: reconciler.calls["a"] == 2)
            controller.add("a")
            await soon(lambda: reconciler.calls["a"] == 3)
            await soon(lambda: not controller.quarantined)
    expected = ("key quarantined until it changes", False)
    assert [(line["event"], "exc_info" in line) for line in lines] == [expected] * 2


async def test_d24_change_during_a_permanent_refusal_is_not_lost():
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
        await soon(lambda: calls == 2)
    assert not controller.quarantined


async def test_a_change_during_the_last_failure_is_not_lost():
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
        await soon(lambda: calls == QUARANTINE_AFTER + 1)


async def test_a_success_clears_the_count_of_failures():
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
        await soon(lambda: not pattern)
    assert not controller.quarantined


async def test_the_returned_seconds_bring_the_key_back():
    calls = 0

    async def reconcile(key: str) -> float | None:
        nonlocal calls
        calls += 1
        return 0.01 if calls < 3 else None

    controller = Controller("test", reconcile)
    async with running(controller):
        controller.add("a")
        await soon(lambda: calls == 3)


async def test_a_reconcile_that_hangs_is_ended_and_counts_as_a_failure():
    results: list[ReconcileResult] = []

    async def reconcile(key: str) -> None:
        if key == "hangs":
            await asyncio.Event().wait()

    controller = Controller("test", reconcile, deadline=0.02, observe=lambda r: results.append(r.result))
    async with running(controller):
        controller.add("hangs")
        controller.add("fine")
        await soon(lambda: ReconcileResult.SUCCESS in results)
        assert results[0] is ReconcileResult.ERROR


async def test_a_key_is_worked_on_by_one_worker_at_a_time():
    at_work: Counter[str] = Counter()
    most = 0

    async def reconcile(key: str) -> None:
        nonlocal most
        at_work[key] += 1
        most = max(most, at_work[key])
        await asyncio.sleep(0.001)
        at_work[key] -= 1
        done.append(key)

    done: list[str] = []
    controller = Controller("test", reconcile, workers=4)
    async with running(controller):
        for _ in range(5):
            for key in ("a", "b"):
                controller.add(key)
            await asyncio.sleep(0)
        await soon(lambda: {"a", "b"} <= set(done) and not controller.queue.working)
    assert most == 1


async def test_without_the_lease_a_key_is_neither_lost_nor_blamed():
    reconciler = Reconciler(a=[NotLeadingError("lease")])
    controller = Controller("test", reconciler, observe=reconciler.observe)
    async with running(controller):
        controller.add("a")
        await soon(lambda: reconciler.results == [ReconcileResult.TRANSIENT, ReconcileResult.SUCCESS])


async def test_the_servers_retry_after_is_respected():
    slow = ApiError(429, "TooManyRequests", "slow down", retry_after=0.2)
    times: list[float] = []

    async def reconcile(key: str) -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            raise slow

    controller = Controller("test", reconcile)
    async with running(controller):
        controller.add("a")
        await soon(lambda: len(times) == 2)
    assert times[1] - times[0] >= 0.19


async def test_urgent_key_is_worked_on_while_all_workers_are_busy():
    begun: list[str] = []
    both = asyncio.Event()

    async def reconcile(key: str) -> None:
        begun.append(key)
        if len(begun) == 2:
            both.set()
        await asyncio.Event().wait()

    controller: Controller[str] = Controller("c", reconcile, workers=1, urgent_workers=1)
    controller.add("a")
    async with running(controller):
        await soon(lambda: begun)
        controller.add("b")
        controller.add("c", urgent=True)
        await asyncio.wait_for(both.wait(), 60)
        assert begun == ["a", "c"]
