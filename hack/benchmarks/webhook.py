"""Measure the webhook alone: the latency of reviews at a constant rate, and the highest rate.

Each webhook and each load is a process. If there are enough cores, each webhook has a core of its own, and
processes without work keep the other cores busy.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.webhook_cases import (
    CASES,
    TARGETS,
    ReviewCase,
    find_highest_rate,
    holds,
    is_late,
    latency_figures,
    plan_cores,
)
from benchmarks.webhook_load import ReviewLoad, SentReviews, send_reviews
from benchmarks.webhook_processes import (
    WebhookFailed,
    WebhookProcess,
    busy_processes,
    load_process,
    machine_cpu_seconds,
    running_webhook,
    usage_of,
)

_NICENESS_OF_LOAD: Final = -10
"""Loads send reviews in time although they share their cores with processes that keep these busy."""
_STEP_SHARE: Final = 0.25
"""The length of a step of a search, as a share of the length of a measurement."""
_MIB: Final = 1.048576


@dataclass(frozen=True)
class WebhookLoad:
    """The settings of the benchmark.

    Attributes:
        cases: names of cases; empty for all.
        seconds: length of each measurement. A step of a search takes a quarter of it.
        rate: reviews of ordinary jobs a second. The rates of other cases, and the beginning of each search,
            follow from it.
        hostile_rate: hostile objects a second beside; each is two reviews.
        in_process: whether the serving process reviews large objects itself.
        keeps_busy: whether processes without work keep those cores busy that have no webhook.
        checks: whether a missed target fails the benchmark.
    """

    cases: tuple[str, ...] = ()
    seconds: float = 20.0
    rate: float = 300.0
    hostile_rate: float = 5.0
    in_process: bool = False
    keeps_busy: bool = True
    checks: bool = False


def run(load: WebhookLoad) -> tuple[dict[str, Any], bool]:
    """Measure the cases.

    Returns:
        The result, and whether it passes: p99 of ordinary jobs beside hostile objects is within its bound,
        and, if targets are checked, all targets are met.

    Raises:
        WebhookFailed: an ordinary job was not allowed, or a webhook did not start.
    """
    result = measure(load)
    required = TARGETS if load.checks else ("jobs-beside-hostile",)
    return result, all(result["cases"][name]["holds"] for name in required if name in result["cases"])


def measure(load: WebhookLoad) -> dict[str, Any]:
    """Return the figures of the cases.

    Raises:
        WebhookFailed: an ordinary job was not allowed, or a webhook did not start.
    """
    return {
        "benchmark": "webhook",
        "cores": len(os.sched_getaffinity(0)),
        "seconds": load.seconds,
        "cases": {name: asyncio.run(_measure_case(CASES[name], load)) for name in load.cases or CASES},
    }


async def _measure_case(case: ReviewCase, load: WebhookLoad) -> dict[str, Any]:
    async with _arena(case, load) as arena:
        rate = load.rate * case.share
        if not case.is_search:
            sent, figures = await arena.send(rate, load.seconds)
            figures["holds"] = holds(sent, case.p99_ms)
            return figures
        return await _search(arena, case, rate, load.seconds * _STEP_SHARE)


async def _search(arena: "_Arena", case: ReviewCase, start: float, seconds: float) -> dict[str, Any]:
    """Return the figures at the highest rate that holds, and whether the load limited it."""
    best: dict[float, dict[str, Any]] = {}
    limit: dict[float, str] = {}

    async def does_hold(rate: float) -> bool:
        sent, figures = await arena.send(rate, seconds)
        if holds(sent, case.p99_ms):
            best[rate] = figures
            return True
        limit[rate] = "load" if is_late(sent, case.p99_ms) else "webhook"
        return False

    highest = await find_highest_rate(does_hold, start=start)
    if highest is None:
        return {"rate": None, "holds": False}
    return best[highest] | {"limit": limit[min(rate for rate in limit if rate > highest)], "holds": True}


@dataclass(frozen=True)
class _Arena:
    """The running processes of a case."""

    case: ReviewCase
    load: WebhookLoad
    webhooks: list[WebhookProcess]
    sender: Executor
    sender_pid: int
    hostile_sender: Executor
    hostile_sender_pid: int
    busy_pids: list[int]
    is_separate: bool

    async def send(self, rate: float, seconds: float) -> tuple[SentReviews, dict[str, Any]]:
        """Send reviews at a rate, and return what happened and its figures."""
        loop, addresses = asyncio.get_running_loop(), tuple(webhook.address for webhook in self.webhooks)
        before, begin = self._cpu_seconds(), time.monotonic()
        beside = None
        if self.case.is_beside_hostile:
            hostile = ReviewLoad(addresses, "hostile", 2 * self.load.hostile_rate, seconds)
            beside = loop.run_in_executor(self.hostile_sender, send_reviews, hostile)
        ordinary = ReviewLoad(addresses, self.case.kind, rate, seconds)
        sent = await loop.run_in_executor(self.sender, send_reviews, ordinary)
        hostile_sent = await beside if beside is not None else None
        after, length = self._cpu_seconds(), time.monotonic() - begin
        if self.case.kind == "jobs" and set(sent.outcomes) - {"allowed"}:
            raise WebhookFailed(f"ordinary jobs got {dict(sent.outcomes)}")
        used = {name: after[name] - before[name] for name in after}
        others = used.pop("machine") - sum(used.values())
        figures = {
            "kind": self.case.kind,
            "replicas": self.case.replicas,
            "rate": round(rate, 1),
            **latency_figures(sent),
            "cpu_ms_per_review": round(used["webhook"] * 1000 / max(1, sent.answered), 3),
            "child_cpu_s": round(used["child"], 2),
            "rss_mb": round(usage_of(webhook.pid for webhook in self.webhooks).peak_rss_mib * _MIB),
            "child_rss_mb": round(usage_of(self._child_pids()).peak_rss_mib * _MIB),
            "load_cores": round(used["load"] / length, 2),
            "busy_cores": round(used["busy"] / length, 2),
            "other_cores": round(max(0.0, others) / length, 2),
            "has_own_core": self.is_separate,
        }
        if hostile_sent is not None:
            figures["hostile"] = latency_figures(hostile_sent)
        return sent, figures

    async def start_children(self) -> None:
        """Send a large object to each webhook, which starts its child process."""
        for webhook in self.webhooks:
            first = ReviewLoad((webhook.address,), "objects", 1.0, 1.0, warm_up_seconds=0.0)
            await asyncio.get_running_loop().run_in_executor(self.sender, send_reviews, first)

    def _child_pids(self) -> list[int]:
        return [pid for webhook in self.webhooks for pid in webhook.child_pids]

    def _cpu_seconds(self) -> dict[str, float]:
        pids = {
            "webhook": [webhook.pid for webhook in self.webhooks],
            "child": self._child_pids(),
            "load": [self.sender_pid, self.hostile_sender_pid],
            "busy": self.busy_pids,
            "benchmark": [os.getpid()],
        }
        used = {name: usage_of(group).cpu_seconds for name, group in pids.items()}
        return used | {"machine": machine_cpu_seconds()}


@contextlib.asynccontextmanager
async def _arena(case: ReviewCase, load: WebhookLoad) -> AsyncGenerator[_Arena]:
    plan = plan_cores(sorted(os.sched_getaffinity(0)), case.replicas)
    async with contextlib.AsyncExitStack() as stack:
        webhooks = [
            await stack.enter_async_context(running_webhook(cores, in_process=load.in_process))
            for cores in plan.servers
        ]
        sender, sender_pid = stack.enter_context(load_process(plan.others, _NICENESS_OF_LOAD))
        hostile_sender, hostile_pid = stack.enter_context(load_process(plan.others, 0))
        busy = stack.enter_context(
            busy_processes(plan.others if plan.is_separate and load.keeps_busy else ())
        )
        arena = _Arena(
            case, load, webhooks, sender, sender_pid, hostile_sender, hostile_pid, busy, plan.is_separate
        )
        if case.is_beside_hostile or case.kind != "jobs":
            await arena.start_children()
        yield arena
