"""Short functions for tests of one ClusterQueue's pending workloads, and of what calls cost."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import admitq.core
from admitq.core import quota
from admitq.core.amounts import FlavorResource
from admitq.core.model import ObjectKey, PodSet, QueueingStrategy, ResourceQuota, Workload
from admitq.core.quota import Cell, Height
from admitq.core.refusals import NoFitReason, NoFlavorFits
from admitq.core.requests import template_requesting
from admitq.core.waiting.lane import Lane
from admitq.core.waiting.pending import PendingEntry, new_pending
from admitq.core.waiting.pending_queue import PendingQueue
from admitq.core.waiting.queue_checks import check_queue
from admitq.core.waiting.scheduling_key import KeyRules
from admitq.core.waiting.transitions import HeldBack
from admitq.core.waiting.wait_states import (
    ENQUEUED,
    FirstOfStrictQueue,
    LaneState,
    Needs,
    QuotaNeed,
    RetryOnProgress,
    WaitingForPreemption,
    WaitingForQuota,
)
from admitq.core.waiting.wake_index import TreeRegistration, WakeIndex

CORE = str(Path(admitq.core.__file__).parent)
CPU = FlavorResource("default", "cpu")
NO_FIT = NoFlavorFits((), NoFitReason.WAITING_FOR_QUOTA)
SMALL, LARGE, HUGE = ((PodSet("main", 1, template_requesting({"cpu": cpu})),) for cpu in (1, 9, 90))


def name_of(name: str) -> ObjectKey:
    return ObjectKey("n", name)


def workload(name: str, queued_at: int = 0, pods: tuple[PodSet, ...] = SMALL, priority: int = 0) -> Workload:
    return Workload(name_of(name), name, "main", queued_at, pods, priority)


def enter(queue: PendingQueue, *workloads: Workload) -> None:
    for each in workloads:
        queue.enter(new_pending(each), ENQUEUED)
    check_queue(queue)


def queue_of(
    *workloads: Workload,
    strict: bool = False,
    rules: KeyRules | None = None,
    registration: TreeRegistration | None = None,
    takes_head_by_need: bool = True,
) -> PendingQueue:
    strategy = QueueingStrategy.STRICT_FIFO if strict else QueueingStrategy.BEST_EFFORT_FIFO
    queue = PendingQueue(strategy, rules, registration, takes_head_by_need=takes_head_by_need)
    enter(queue, *workloads)
    return queue


def pop(queue: PendingQueue) -> PendingEntry:
    """Take the head into a cycle; there must be one."""
    pending = queue.pop()
    assert pending is not None
    return pending


def waiting_for_quota(pending: PendingEntry, *amounts: int) -> WaitingForQuota:
    """Return the state of a lane that waits for any of these amounts of CPU, or else for any return."""
    return WaitingForQuota(NO_FIT, pending.workload.queued_at, needs(*amounts) or None)


def retry_on_progress(pending: PendingEntry) -> RetryOnProgress:
    return RetryOnProgress(NO_FIT, pending.workload.queued_at)


def needs(*amounts: int) -> Needs:
    return tuple(QuotaNeed(CPU, amount) for amount in amounts)


def park_head(queue: PendingQueue, *amounts: int) -> str:
    """Park the lane of the head until quota returns, and return the name of the head."""
    pending = pop(queue)
    queue.requeue_waiting(pending, waiting_for_quota(pending, *amounts))
    check_queue(queue)
    return pending.workload.key.name


def block_with_head(queue: PendingQueue) -> PendingEntry:
    """Make the head of a StrictFIFO queue a blocking head."""
    return _stand(queue, pop(queue), FirstOfStrictQueue)


def preempt_for_head(queue: PendingQueue) -> PendingEntry:
    """Let the head wait for its targets to leave."""
    pending = pop(queue)
    queue.set_preemptor(pending)
    return _stand(queue, pending, WaitingForPreemption)


def _stand(
    queue: PendingQueue, pending: PendingEntry, kind: type[FirstOfStrictQueue] | type[WaitingForPreemption]
) -> PendingEntry:
    state: LaneState = kind(pending.position)
    queue.requeue_waiting(pending, state)
    check_queue(queue)
    return pending


def hold_back(queue: PendingQueue, state: HeldBack, each: Workload) -> PendingEntry:
    """Add a workload to the queue, and hold it back."""
    pending = new_pending(each)
    queue.enter(pending, ENQUEUED)
    queue.restore_held_back(pending, state)
    check_queue(queue)
    return pending


def drain(queue: PendingQueue) -> list[str]:
    """Take and remove all heads, one after another, and return their names."""
    names: list[str] = []
    while (pending := queue.pop()) is not None:
        names.append(pending.workload.key.name)
        queue.remove(pending.workload.key)
        check_queue(queue)
    return names


def lane_of(queue: PendingQueue, name: str) -> Lane:
    lane = queue.members[name_of(name)].lane
    assert lane is not None
    return lane


class Quota:
    """CPU quota of a ClusterQueue without cohort; all of it is in use at first."""

    def __init__(self, nominal: int = 1_000_000) -> None:
        self.cell = Cell(Height(0))
        quota.set_quota(self.cell, ResourceQuota(nominal), declared=True)
        quota.add_usage(self.cell, nominal)
        self.registration = TreeRegistration("q", {CPU: self.cell}, WakeIndex())

    def give_back(self, amount: int) -> list[str]:
        """Return quota, and list the ClusterQueues with needs that it meets."""
        quota.remove_usage(self.cell, amount)
        return [each.name for each in self.registration.index.met_by_return(self.cell)]

    def take(self, amount: int) -> None:
        quota.add_usage(self.cell, amount)


def lines_run(call: Callable[[], object]) -> int:
    """Count the lines of the core that a call executes: its cost, on any machine."""
    count = 0

    def line(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line" and frame.f_code.co_filename.startswith(CORE)
        return line

    before = sys.gettrace()
    sys.settrace(line)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
