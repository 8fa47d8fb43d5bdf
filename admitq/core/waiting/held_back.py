"""Workloads of one ClusterQueue that are held back out of its lanes, each for itself."""

from collections.abc import Iterator
from itertools import chain

from admitq.core.model import ObjectKey
from admitq.core.waiting.pending import PendingEntry
from admitq.core.waiting.transitions import HeldBack
from admitq.core.waiting.wait_states import HELD_BACK, NamespaceNotSelected, QueueUnusable
from admitq.core.waiting.wake_index import TreeRegistration


class HeldBackWorkloads:
    """Workloads by the kind of state that holds them back, and by namespace where that is the reason."""

    def __init__(self, registration: TreeRegistration) -> None:
        """No workloads.

        Args:
            registration: how the ClusterQueue waits in its cohort tree.
        """
        self._registration = registration
        self._by_kind: dict[type, dict[ObjectKey, PendingEntry]] = {kind: {} for kind in HELD_BACK}
        self._by_namespace: dict[str, dict[ObjectKey, PendingEntry]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[PendingEntry]:
        return chain.from_iterable(workloads.values() for workloads in self._by_kind.values())

    def of_kind(self, kind: type) -> list[PendingEntry]:
        """Return the workloads that states of this kind hold back."""
        return list(self._by_kind[kind].values())

    def of_namespace(self, namespace: str) -> list[PendingEntry]:
        """Return the workloads that are held back because this namespace is not selected."""
        return list(self._by_namespace.get(namespace, {}).values())

    @property
    def namespaces(self) -> list[str]:
        """Namespaces with workloads that are held back because they are not selected."""
        return sorted(self._by_namespace)

    def add(self, pending: PendingEntry, state: HeldBack) -> None:
        """Add a workload after its state was set to this."""
        key = pending.workload.key
        self._by_kind[type(state)][key] = pending
        self._count += 1
        if isinstance(state, NamespaceNotSelected):
            self._by_namespace.setdefault(key.namespace, {})[key] = pending
        self._register()

    def remove(self, pending: PendingEntry) -> None:
        """Remove a workload that still has the state for which it was held back."""
        key, state = pending.workload.key, pending.state
        del self._by_kind[type(state)][key]
        self._count -= 1
        if isinstance(state, NamespaceNotSelected):
            workloads = self._by_namespace[key.namespace]
            del workloads[key]
            if not workloads:
                del self._by_namespace[key.namespace]
        self._register()

    def _register(self) -> None:
        self._registration.set_held_back(holds_back=bool(self._by_kind[QueueUnusable]))
