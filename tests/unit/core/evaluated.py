"""Which workloads cycles evaluate."""

import pytest

from admitq.core import cycle
from admitq.core.cycle.entry import CycleEntry
from admitq.core.cycle.turns import Cycle
from admitq.core.entries import ClusterQueueEntry
from admitq.core.waiting.pending import Pending


class Evaluated:
    """The workloads that cycles evaluate."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        """In the order of evaluation; a workload that several cycles evaluate is named by each."""
        nominate = cycle.nominate

        def counted(running: Cycle, entry: ClusterQueueEntry, pending: Pending) -> CycleEntry:
            self.names.append(pending.workload.key.name)
            return nominate(running, entry, pending)

        monkeypatch.setattr(cycle, "nominate", counted)

    def take(self) -> list[str]:
        """The workloads that were evaluated since the last call, sorted."""
        names, self.names = sorted(set(self.names)), []
        return names
