"""Jobs in quarantine, because no Workload can represent them until they change, by LocalQueue.

The status of a job belongs to its own controller, and events expire after an hour. So the LocalQueue that
the job names reports the problem for as long as it lasts.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from admitq.controllers.context import WatchedStores
from admitq.controllers.indexes import BY_GROUP, group_of_key_name, namespaced_index_value, resource_of
from admitq.integrations.base import Integration
from admitq.integrations.ownership import get_queue_name
from admitq.runtime.store import Key
from admitq_api.json_objects import JsonObject
from admitq_api.labels import Names


class RefusedJob(NamedTuple):
    """A job in quarantine, and why; sorted by kind and name."""

    kind: str
    name: str
    problem: str


class RefusedJobs:
    """All jobs that are in quarantine now.

    Args:
        stores: stores of the jobs.
        integrations: the kinds of jobs. Their framework names are the names of their controllers.
        names: our labels.
    """

    def __init__(self, stores: WatchedStores, integrations: Iterable[Integration], names: Names) -> None:
        self._stores = stores
        self._integrations = {integration.framework: integration for integration in integrations}
        self._names = names
        self._by_key: dict[tuple[str, Key], tuple[Key, RefusedJob]] = {}
        """The queue that reports a key of a controller, and the job."""
        self._by_queue: dict[Key, list[RefusedJob]] = {}
        """In the order of kind and name."""

    def update(self, controller: str, key: Key, problem: str | None) -> Key | None:
        """Record why a key of a controller is in quarantine; None ends the quarantine.

        Returns:
            The LocalQueue with a changed report, if any.
        """
        return self._remove(controller, key) if problem is None else self._add(controller, key, problem)

    def _add(self, controller: str, key: Key, problem: str) -> Key | None:
        queue = self._queue_of(controller, key)
        if queue is not None:
            kind = self._integrations[controller].kind
            job = RefusedJob(kind, group_of_key_name(key.name) or key.name, problem)
            self._by_key[controller, key] = queue, job
            insort(self._by_queue.setdefault(queue, []), job)
        return queue

    def _remove(self, controller: str, key: Key) -> Key | None:
        entry = self._by_key.pop((controller, key), None)
        if entry is None:
            return None
        queue, job = entry
        listed = self._by_queue[queue]
        del listed[bisect_left(listed, job)]
        if not listed:
            del self._by_queue[queue]
        return queue

    def list_in_queue(self, queue: Key) -> Sequence[RefusedJob]:
        """Return the jobs that name a LocalQueue, in the order of kind and name."""
        return self._by_queue.get(queue, ())

    def _queue_of(self, controller: str, key: Key) -> Key | None:
        """Return the queue that a job names.

        A job that names another queue has changed, which ends its quarantine.
        """
        integration = self._integrations.get(controller)
        job = None if integration is None else self._find(integration, key)
        name = "" if job is None else get_queue_name(job, self._names)
        return Key(key.namespace, name) if name else None

    def _find(self, integration: Integration, key: Key) -> JsonObject | None:
        store = self._stores.find(resource_of(integration))
        if store is None:
            return None
        if group := group_of_key_name(key.name):
            return next(iter(store.by_index(BY_GROUP, namespaced_index_value(key.namespace, group))), None)
        return store.get(key.namespace, key.name)
