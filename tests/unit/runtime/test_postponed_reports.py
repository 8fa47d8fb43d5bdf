"""A controller postpones reports while the API server has no time for them."""

from contextlib import nullcontext

from admitq.runtime.adaptive_limit import LimitBounds
from admitq.runtime.controller import Controller, ReconcileReport, ReconcileResult
from admitq.runtime.rate_limit import CallPriority
from admitq.runtime.write_scheduler import WriteScheduler
from tests.unit.runtime.test_controller import running, wait_until

STATUS = CallPriority.STATUS


class Reporter:
    """Reports on each key, in a free slot; keys that begin with ``decide`` need none."""

    def __init__(self) -> None:
        self.scheduler = WriteScheduler({STATUS: LimitBounds(1, 1, 10)})
        self.reports: list[tuple[str, str]] = []
        self.results: list[ReconcileResult] = []
        self.reason = "first"

    async def __call__(self, key: str) -> float | None:
        with nullcontext() if key.startswith("decide") else self.scheduler.free_slot(STATUS):
            self.reports.append((key, self.reason))
        return None

    def observe(self, reconciled: ReconcileReport) -> None:
        self.results.append(reconciled.result)

    def controller(self) -> Controller[str]:
        return Controller("test", self, observe=self.observe, scheduler=self.scheduler)


async def test_report_waits_for_a_slot_and_states_what_is_true_then() -> None:
    reporter = Reporter()
    controller = reporter.controller()
    slot = await reporter.scheduler.take(STATUS)
    async with running(controller):
        controller.add("a")
        await wait_until(lambda: reporter.results == [ReconcileResult.POSTPONED])
        reporter.reason = "second"
        reporter.scheduler.release(slot)
        await wait_until(lambda: reporter.results[1:] == [ReconcileResult.SUCCESS])
    assert reporter.reports == [("a", "second")]
    assert not controller.quarantined


async def test_postponed_reports_occupy_no_worker() -> None:
    reporter = Reporter()
    controller = reporter.controller()
    await reporter.scheduler.take(STATUS)
    async with running(controller):
        for key in ("a", "b", "c", "decide"):
            controller.add(key)
        await wait_until(lambda: reporter.reports == [("decide", "first")])


async def test_slot_is_released_after_each_report() -> None:
    reporter = Reporter()
    controller = reporter.controller()
    slot = await reporter.scheduler.take(STATUS)
    async with running(controller):
        for key in "abcd":
            controller.add(key)
        await wait_until(lambda: len(reporter.results) == 4)
        reporter.scheduler.release(slot)
        await wait_until(lambda: len(reporter.reports) == 4)
    assert [key for key, _ in reporter.reports] == list("abcd")
    with reporter.scheduler.free_slot(STATUS):
        pass  # It would raise if no slot was free.


async def test_key_that_is_postponed_again_is_reported_once() -> None:
    reporter = Reporter()
    controller = reporter.controller()
    slot = await reporter.scheduler.take(STATUS)
    async with running(controller):
        for postponed in range(1, 4):
            controller.add("a")
            await wait_until(lambda count=postponed: len(reporter.results) == count)
        reporter.scheduler.release(slot)
        await wait_until(lambda: reporter.reports)
    assert reporter.reports == [("a", "first")]


async def test_refreshed_key_that_is_postponed_is_not_reconciled_before_its_slot() -> None:
    reporter = Reporter()
    controller = reporter.controller()
    slot = await reporter.scheduler.take(STATUS)
    async with running(controller):
        controller.refresh("a")
        await wait_until(lambda: reporter.results == [ReconcileResult.POSTPONED])
        controller.refresh("a")
        controller.refresh("decide")
        await wait_until(lambda: reporter.reports == [("decide", "first")])
        assert reporter.results == [ReconcileResult.POSTPONED, ReconcileResult.SUCCESS]
        reporter.reason = "second"
        reporter.scheduler.release(slot)
        await wait_until(lambda: ("a", "second") in reporter.reports)
        controller.refresh("a")
        await wait_until(lambda: reporter.reports.count(("a", "second")) == 2)


async def test_slots_of_a_stopped_controller_are_released() -> None:
    reporter = Reporter()
    controller = reporter.controller()
    slot = await reporter.scheduler.take(STATUS)
    async with running(controller):
        controller.add("a")
        await wait_until(lambda: reporter.results)
    reporter.scheduler.release(slot)
    with reporter.scheduler.free_slot(STATUS):
        pass  # It would raise if no slot was free.
