"""The workloads of one ClusterQueue that are held back out of its lanes."""

from collections.abc import Iterator
from itertools import chain

from admitq.core.model import ObjectKey
from admitq.core.waiting.pending import PendingEntry
from admitq.core.waiting.transitions import HeldBack
from admitq.core.waiting.wait_states import HELD_BACK, NamespaceNotSelected, QueueUnusable
from admitq.core.waiting.wake_index import TreeRegistration


class HeldBackWorkloads:
    """Workloads by the state that holds them back; in ``NamespaceNotSelected`` also by namespace."""

    def __init__(self, registration: TreeRegistration) -> None:
        """Begin without workloads.

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
        """Return the workloads that a state of this type holds back."""
        return list(self._by_kind[kind].values())

    def of_namespace(self, namespace: str) -> list[PendingEntry]:
        """Return the workloads of this namespace that are held back because it is not selected."""
        return list(self._by_namespace.get(namespace, {}).values())

    @property
    def namespaces(self) -> list[str]:
        """Namespaces that hold workloads back, because the ClusterQueue does not select them."""
        return sorted(self._by_namespace)

    def add(self, pending: PendingEntry, state: HeldBack) -> None:
        """Add a workload. The caller has set its state to ``state``."""
        key = pending.workload.key
        self._by_kind[type(state)][key] = pending
        self._count += 1
        if isinstance(state, NamespaceNotSelected):
            self._by_namespace.setdefault(key.namespace, {})[key] = pending
        self._register()

    def remove(self, pending: PendingEntry) -> None:
        """Remove a workload. It must still have the state that held it back."""
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
