"""A recorder of the workloads that cycles evaluate."""

import pytest

from admitq.core import cycle
from admitq.core.cycle.entry import CycleEntry
from admitq.core.cycle.running_cycle import Cycle
from admitq.core.entries import ClusterQueueEntry
from admitq.core.waiting.pending import PendingEntry


class Evaluated:
    """Records the workloads that cycles evaluate."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        """In the order of evaluation; once for each cycle that evaluates the workload."""
        nominate = cycle.nominate

        def recorded(running: Cycle, entry: ClusterQueueEntry, pending: PendingEntry) -> CycleEntry:
            self.names.append(pending.workload.key.name)
            return nominate(running, entry, pending)

        monkeypatch.setattr(cycle, "nominate", recorded)

    def take(self) -> list[str]:
        """Return the workloads that were evaluated since the last call, sorted."""
        names, self.names = sorted(set(self.names)), []
        return names
