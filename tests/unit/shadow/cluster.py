"""A cluster for comparisons: an API server, a manager in charge, and a shadow.

Each change goes to the inboxes of both observers. As with watches, changes of one resource stay in order, and
resources do not wait for each other. The manager in charge decides by what it has observed. Its writes arrive
later, and only if the workload has not changed since.
"""

import random
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from admitq.core import events
from admitq.core.events import Event
from admitq.core.instructions import Preempt, ReserveQuota
from admitq.core.model import SECOND, Instant, ObjectKey, Workload
from admitq.core.settings import CoreSettings
from admitq.core.state import AdmissionState
from admitq.shadow.comparison import Shadow
from admitq.shadow.findings import Agreement, Disagreement, Preempted

PATIENCE = 10 * SECOND
LEEWAY = 2 * SECOND


Decision = ReserveQuota | Preempt


@dataclass(frozen=True)
class Change:
    """One event of a watch, with the preemption that the Workload's status reports."""

    event: Event
    preemption: Preempted | None = None


@dataclass
class Inbox:
    """The unobserved changes of one observer, by resource."""

    waiting: dict[str, deque[Change]] = field(default_factory=lambda: defaultdict(deque))

    def put(self, change: Change) -> None:
        name = type(change.event).__name__
        self.waiting[name.removesuffix("Changed").removesuffix("Deleted")].append(change)

    def take(self, draw: random.Random | None) -> Change | None:
        """Return the next change of a random resource, or of the first resource without ``draw``."""
        names = [name for name, changes in self.waiting.items() if changes]
        if not names:
            return None
        return self.waiting[names[0] if draw is None else draw.choice(names)].popleft()


class Cluster:
    """The API server, the manager in charge, and the shadow."""

    def __init__(self, settings: CoreSettings | None = None, draw: random.Random | None = None) -> None:
        settings = settings or CoreSettings()
        self.now: Instant = 1_000 * SECOND
        self.draw = draw
        self.workloads: dict[ObjectKey, Workload] = {}
        self.preemptions: dict[ObjectKey, Preempted] = {}
        self.manager = AdmissionState(settings, statuses=False)
        self.observed: dict[ObjectKey, Workload] = {}
        self.shadow = Shadow(settings, patience=PATIENCE, leeway=LEEWAY)
        self.for_manager, self.for_shadow = Inbox(), Inbox()
        self.writes: list[tuple[Decision, Workload]] = []
        """Decisions that are not written yet, each with the workload as the manager observed it."""
        self.agreements: list[Agreement] = []
        self.disagreements: list[Disagreement] = []
        self.change_decision: Callable[[Decision], Decision | None] = lambda decision: decision
        """Changes or drops a decision of the manager in charge before it is written."""

    # --- changes in the API server ----------------------------------------------------------------

    def send(self, event: Event) -> None:
        preemption = None
        match event:
            case events.WorkloadChanged(workload):
                self.workloads[workload.key] = workload
                if workload.evicted:
                    preemption = self.preemptions.get(workload.key)
                else:
                    self.preemptions.pop(workload.key, None)
            case events.WorkloadDeleted(key, _):
                self.workloads.pop(key, None)
            case _:
                pass
        for inbox in (self.for_manager, self.for_shadow):
            inbox.put(Change(event, preemption))

    def put(self, key: ObjectKey, **fields: Any) -> None:
        self.send(events.WorkloadChanged(replace(self.workloads[key], **fields)))

    def reserve(self, instruction: ReserveQuota) -> None:
        """Write a reservation."""
        self.put(
            instruction.key,
            admission=instruction.admission,
            admitted=instruction.admit,
            reserved_at=self.now // SECOND * SECOND,
            evicted=False,
        )
        if instruction.replaces is not None and instruction.replaces in self.workloads:
            self.put(instruction.replaces, finished=True)

    def preempt(self, key: ObjectKey, preemptor_uid: str = "") -> None:
        self.preemptions[key] = Preempted(preemptor_uid, "Preempted to accommodate a workload")
        self.put(key, evicted=True)

    def stop(self, key: ObjectKey) -> None:
        """Release the quota of an evicted workload after its job has stopped."""
        self.put(key, admission=None, admitted=False, pods_ready=False, queued_at=self.now)

    # --- reconcilers ------------------------------------------------------------------------------

    def deliver_to_manager(self, most: int | None = None) -> None:
        while most is None or most > 0:
            change = self.for_manager.take(self.draw)
            if change is None:
                return
            if isinstance(change.event, events.WorkloadChanged):
                self.observed[change.event.workload.key] = change.event.workload
            elif isinstance(change.event, events.WorkloadDeleted):
                self.observed.pop(change.event.key, None)
            self.manager.observe(change.event, now=self.now)
            most = None if most is None else most - 1

    def deliver_to_shadow(self, most: int | None = None) -> None:
        while most is None or most > 0:
            change = self.for_shadow.take(self.draw)
            if change is None:
                return
            self.shadow.observe(change.event, now=self.now, preemption=change.preemption)
            most = None if most is None else most - 1

    def decide(self, limit: int | None = None) -> None:
        """Run cycles of the manager in charge."""
        for instruction in self.manager.handle(events.CyclesRequested(limit), now=self.now):
            if isinstance(instruction, (ReserveQuota, Preempt)):
                self.writes.append((instruction, self.observed[instruction.key]))

    def write(self, most: int | None = None) -> None:
        """Write some decisions in random order, unless their workload has changed since."""
        if self.draw is not None:
            self.draw.shuffle(self.writes)
        written, self.writes = self.writes[:most], [] if most is None else self.writes[most:]
        for decision, observed_workload in written:
            is_current = self.workloads.get(decision.key) == observed_workload
            changed_decision = self.change_decision(decision) if is_current else decision
            match changed_decision:
                case None:
                    pass
                case ReserveQuota(key, uid):
                    if is_current:
                        self.reserve(changed_decision)
                    else:
                        self.manager.observe(events.ReservationFailed(key, uid), now=self.now)
                case Preempt(key, uid):
                    victim = self.workloads.get(key)
                    if victim is not None and victim.uid == uid and victim.admission and not victim.evicted:
                        self.preempt(key, changed_decision.preemptor_uid)
                    else:
                        self.manager.observe(events.PreemptionFailed(key, uid), now=self.now)

    def look(self) -> None:
        for _ in range(20):
            self.shadow.evaluate_due(self.now)
            due = self.shadow.next_evaluation(self.now)
            if due is None or due > self.now:
                break
        for finding in self.shadow.findings():
            if isinstance(finding, Agreement):
                self.agreements.append(finding)
            else:
                self.disagreements.append(finding)

    def follow(self) -> None:
        """Begin to compare, after both observers know all objects."""
        self.deliver_to_manager()
        self.deliver_to_shadow()
        self.shadow.follow(self.now)

    def settle(self) -> None:
        """Deliver all changes, decide and write, until nothing changes any more."""
        for _ in range(200):
            self.deliver_to_manager()
            self.decide()
            if not (self.writes or any(self.for_shadow.waiting.values())):
                break
            self.write()
            self.deliver_to_shadow()
        self.look()

    def wait(self, nanoseconds: int) -> None:
        """Advance the clock while the observers run."""
        until = self.now + nanoseconds
        while self.now < until:
            self.settle()
            self.now = min(until, self.now + SECOND)
        self.settle()
