"""In random histories, workloads change their phase only along the edges of the table."""

import random
from collections.abc import Callable

import pytest

from admitq.core import events as happened
from admitq.core.instructions import Preempt, ReserveQuota
from admitq.core.lifecycle import EDGES, Phase
from admitq.core.model import SECOND, AdmissionCheck, AdmissionCheckRule, Workload
from tests.unit.core.small_cluster import LOWER, SmallCluster, key, queue

NAMES = tuple(f"w{n}" for n in range(5))


class History:
    """Performs one operation at a time, and compares the phases before and after it."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)  # noqa: S311 a history, not a secret
        self.cluster = SmallCluster()
        self.cluster.send(
            happened.AdmissionCheckChanged(AdmissionCheck("check", "example.com/c", active=True))
        )
        checks = (AdmissionCheckRule("check"),)
        self.cluster.put(queue("a", 3, preemption=LOWER))
        self.cluster.put(queue("b", 3, preemption=LOWER, admission_checks=checks))
        self.unwritten: dict[str, ReserveQuota] = {}
        self.seen: set[tuple[Phase, Phase]] = set()

    def phases(self) -> dict[str, Phase]:
        phases = {
            name: self.cluster.state.queries.workload_phase(key(name)) for name in self.cluster.workloads
        }
        return {name: phase for name, phase in phases.items() if phase is not None}

    def step(self, act: Callable[[], object]) -> None:
        before = self.phases()
        uids = {name: workload.uid for name, workload in self.cluster.workloads.items()}
        act()
        for name, phase in self.phases().items():
            if uids.get(name) == self.cluster.workloads[name].uid and before[name] is not phase:
                self.seen.add((before[name], phase))

    def write(self) -> None:
        """Report each unwritten reservation as written or as failed."""
        for name, decided in list(self.unwritten.items()):
            del self.unwritten[name]
            workload = self.cluster.workloads.get(name)
            if workload is None or workload.uid != decided.uid:
                continue
            if self.draw.random() < 0.3:
                failure = happened.ReservationFailed(workload.key, workload.uid)
                self.step(lambda failure=failure: self.cluster.send(failure))
            else:
                fields = {"admission": decided.admission, "admitted": decided.admit, "evicted": False}
                self.step(lambda name=name, fields=fields: self.cluster.change(name, **fields))

    def cycles(self) -> None:
        self.cluster.now += SECOND  # Workloads are held back after a lost reservation.
        for each in self.cluster.cycles():
            if isinstance(each, ReserveQuota):
                self.unwritten[each.key.name] = each
            elif isinstance(each, Preempt) and each.key.name not in self.unwritten:
                self.unevicted.append(each.key.name)

    unevicted: list[str]

    def choose(self, condition: Callable[[Workload], bool]) -> str | None:
        names = sorted(name for name, workload in self.cluster.workloads.items() if condition(workload))
        return self.draw.choice(names) if names else None

    def change(self, condition: Callable[[Workload], bool], **fields: object) -> None:
        name = self.choose(lambda workload: not workload.finished and condition(workload))
        if name is not None:
            self.step(lambda: self.cluster.change(name, **fields))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.unevicted = []
            self.draw.choice(
                [
                    self.submit,
                    self.submit,
                    lambda: self.step(self.cycles),
                    lambda: self.step(self.cycles),
                    self.write,
                    lambda: self.change(_holds, finished=True),
                    lambda: self.change(lambda _: True, finished=True),
                    lambda: self.change(_holds, admitted=True),
                    lambda: self.change(_holds, admitted=False),
                    lambda: self.change(_holds, evicted=True),
                    lambda: self.change(_is_evicting, admission=None, admitted=False),
                    lambda: self.change(lambda each: not _holds(each), admission_gates=("gate",)),
                    lambda: self.change(lambda _: True, admission_gates=()),
                    lambda: self.change(lambda _: True, active=False),
                    lambda: self.change(lambda _: True, active=True),
                ]
            )()
            for name in self.unevicted:
                self.step(lambda name=name: self.cluster.change(name, evicted=True))

    def submit(self) -> None:
        name = self.draw.choice(NAMES)
        if name not in self.cluster.workloads:
            self.cluster.submit(
                name, self.draw.choice("ab"), self.draw.randint(1, 3), self.draw.randint(0, 1)
            )
        elif self.cluster.workloads[name].finished:
            self.cluster.delete(name)


def _holds(workload: Workload) -> bool:
    return workload.admission is not None


def _is_evicting(workload: Workload) -> bool:
    return workload.admission is not None and (workload.evicted or not workload.active)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(20))
def test_phases_change_only_along_edges_of_table(seed: int) -> None:
    history = History(seed)
    history.run(120)
    assert history.seen <= EDGES.keys(), history.seen - EDGES.keys()


@pytest.mark.drawn
def test_every_edge_of_table_is_taken_by_some_history() -> None:
    seen: set[tuple[Phase, Phase]] = set()
    for seed in range(100, 400):
        history = History(seed)
        history.run(80)
        seen |= history.seen
        if seen >= EDGES.keys():
            break
    assert seen == EDGES.keys(), EDGES.keys() - seen


def test_finished_phase_has_no_outgoing_edge() -> None:
    assert not [edge for edge in EDGES if edge[0] is Phase.FINISHED]


def test_every_edge_of_table_has_causes() -> None:
    assert all(causes for causes in EDGES.values())
