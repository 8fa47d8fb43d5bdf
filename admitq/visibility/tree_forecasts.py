"""Forecasts of whole cohort trees, for questions about workloads behind many others.

Behind many pending workloads, one simulation takes longer than a question may. So the first such question
begins a forecast of all pending workloads of its cohort tree, in a child process of the lowest priority. Its
results arrive after each simulation, and answer later questions about any of these workloads.

A forecast answers only while the workload and the ClusterQueues of the tree are as they were at its begin. It
is dropped a while after its end. Without questions, there are no forecasts.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from admitq.asking.branch_processes import BranchDeadlineExceeded, ChildLimits, Send
from admitq.asking.branches import ask_for_parts, branch_of
from admitq.asking.tree_forecasts import PackedCourse, run_tree_courses
from admitq.core.asking.cohort_tree import list_tree_queues
from admitq.core.asking.course import Bound, EstimateOf
from admitq.core.asking.forecast import Forecast
from admitq.core.model import Instant, ObjectKey
from admitq.core.state import AdmissionState
from admitq.process.logs import logger
from admitq.translate.forecasts import TreePhase, TreeProgress
from admitq.visibility.kept_forecasts import KeptStart, KeptTree

log = logger(__name__)

Estimates = Callable[[AdmissionState, Instant], EstimateOf]
"""Returns the estimates of run times for a state at an instant."""

_LOWEST_PRIORITY: Final = 19
"""As of ``os.nice``."""


@dataclass(frozen=True, slots=True)
class TreeForecastLimits:
    """What forecasts of cohort trees may use. One forecast runs at a time.

    Attributes:
        seconds: the time for the simulations of one tree.
        grace_seconds: the time after which the child process is killed if it has not ended by itself.
        kept_seconds: how long the results are kept after the end.
        waiting: how many trees may wait.
        new_memory: the most bytes that a child process may allocate beside a copy of this process.
    """

    seconds: float = 30.0
    grace_seconds: float = 10.0
    kept_seconds: float = 60.0
    waiting: int = 4
    new_memory: int = 1 << 30


class TreeForecasts:
    """Makes forecasts of cohort trees one after the other, and keeps them for a while.

    Args:
        state: the state that observes the cluster. It does not change.
        estimates: returns the estimates of run times. It is called in child processes.
        limits: what forecasts may use.
        clock: the present instant, in nanoseconds since the Unix epoch.
        monotonic: seconds of a monotonic clock.
    """

    def __init__(
        self,
        state: AdmissionState,
        estimates: Estimates,
        *,
        limits: TreeForecastLimits | None = None,
        clock: Callable[[], Instant] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._estimates = estimates
        self._limits = limits or TreeForecastLimits()
        self._clock = clock
        self._monotonic = monotonic
        self._trees: dict[frozenset[str], KeptTree] = {}
        self._waiting: list[KeptTree] = []
        self._changed = asyncio.Event()
        self._current: asyncio.Task[None] | None = None

    # --- questions --------------------------------------------------------------------------------

    def find(self, key: ObjectKey) -> KeptStart | None:
        """Return what is known of the start of a workload; None if a question must be asked."""
        tree = self._find_tree(self._names(key))
        return None if tree is None else tree.find(self._state, key, self._clock())

    def begin(self, key: ObjectKey, answer: Forecast, now: Instant) -> TreeProgress | None:
        """Begin a forecast of the tree of a workload if its time ended an answer to a question.

        Args:
            key: a workload for which ``find`` returned None.
            answer: the answer to the question.
            now: the instant of the answer.

        Returns:
            The progress of the forecast; None if there will be none, because the answer needs none, the
            workload has no ClusterQueue, or too many trees wait.
        """
        names = self._names(key)
        if not names or not is_cut_short(answer):
            return None
        tree = self._find_tree(names)
        if tree is None or tree.phase is TreePhase.COMPLETE:
            tree = self._enqueue(tree or KeptTree(names))
            if tree is None:
                return None
        tree.add_first_answer(self._state, key, answer, now)
        if tree.phase is TreePhase.RUNNING and not tree.includes(self._state, key):
            tree.is_repeated = True
            return TreeProgress(TreePhase.WAITING, 0)
        return tree.progress

    def forget(self) -> None:
        """Drop all forecasts, because the state does not show the cluster."""
        self._trees.clear()
        self._waiting.clear()
        if self._current is not None:
            self._current.cancel()

    def _names(self, key: ObjectKey) -> frozenset[str]:
        return frozenset(list_tree_queues(self._state, [key]))

    def _find_tree(self, names: frozenset[str]) -> KeptTree | None:
        self._drop_old()
        return self._trees.get(names)

    def _enqueue(self, tree: KeptTree) -> KeptTree | None:
        """Let a forecast of a tree wait. Return the tree; None if too many wait."""
        if len(self._waiting) >= self._limits.waiting:
            return None
        tree.repeat()
        self._trees[tree.names] = tree
        self._waiting.append(tree)
        self._changed.set()
        return tree

    # --- forecasts --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Make the forecasts that questions began, and drop old ones, until cancelled."""
        while True:
            self._changed.clear()
            self._drop_old()
            if self._waiting:
                # A task of its own, so that it can be cancelled alone.
                async with asyncio.TaskGroup() as group:
                    self._current = group.create_task(self._forecast(self._waiting.pop(0)))
                self._current = None
                continue
            ends = [tree.ends_at for tree in self._trees.values() if tree.ends_at is not None]
            try:
                async with asyncio.timeout(min(ends) - self._monotonic() if ends else None):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _drop_old(self) -> None:
        now = self._monotonic()
        kept = {
            names: tree for names, tree in self._trees.items() if tree.ends_at is None or tree.ends_at > now
        }
        self._trees = kept

    async def _forecast(self, tree: KeptTree) -> None:
        """Make the forecast of a tree. Only a cancellation is raised."""
        limits, now = self._limits, self._clock()
        asked = tree.begin(self._state, now)
        deadline = limits.seconds + limits.grace_seconds

        def question(state: AdmissionState, send: Send) -> None:
            for course in run_tree_courses(
                state,
                asked,
                now=now,
                branch=branch_of(state, deadline_s=deadline),
                estimate_of=self._estimates(state, now),
                seconds=limits.seconds,
            ):
                send(course)

        def receive(part: object) -> None:
            tree.add_course(cast("PackedCourse", part))

        phase = TreePhase.COMPLETE
        try:
            child = ChildLimits(deadline, _LOWEST_PRIORITY, limits.new_memory)
            await ask_for_parts(self._state, question, receive, child)
        except BranchDeadlineExceeded:
            log.info("cohort tree forecast stopped", seconds=deadline, workloads=len(asked))
        except Exception as error:
            phase = TreePhase.FAILED
            log.exception("cohort tree forecast failed", error=str(error), workloads=len(asked))
        tree.end(phase, self._monotonic() + limits.kept_seconds)
        if tree.is_repeated:
            self._enqueue(tree)


def is_cut_short(forecast: Forecast) -> bool:
    """Whether the median or p90 is not known because the caller's time was over."""
    return Bound.REAL_TIME in forecast.basis.bounds and (forecast.p50 is None or forecast.p90 is None)
