"""Jobs that are left alone until they change, for no Workload can stand for them, by LocalQueue.

The status of a job is its own controller's, and events about it are gone after an hour. So the queue that it
names tells of it for as long as it is so.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from admitq.controllers.context import Stores
from admitq.controllers.indexes import BY_GROUP, in_namespace, named_group, resource_of
from admitq.integrations.base import Integration
from admitq.integrations.ownership import queue_name
from admitq.integrations.paths import Object
from admitq.runtime.resources import Resource
from admitq.runtime.store import Key
from admitq_api.labels import Names


class RefusedJob(NamedTuple):
    """A job that is left alone, and why; sorted by what people call it."""

    kind: str
    name: str
    problem: str


class RefusedJobs:
    """The jobs that are in quarantine now.

    Args:
        stores: where jobs and LocalQueues are read.
        local_queues: the resource of LocalQueues.
        integrations: the kinds of jobs, whose frameworks are the names of their controllers.
        names: our labels.
    """

    def __init__(
        self, stores: Stores, local_queues: Resource, integrations: Iterable[Integration], names: Names
    ) -> None:
        self._stores = stores
        self._local_queues = local_queues
        self._integrations = {one.framework: one for one in integrations}
        self._names = names
        self._known: dict[str, Mapping[Key, str]] = {}

    def told(self, controller: str, quarantined: Mapping[Key, str]) -> list[Key]:
        """Take in which keys of a controller are in quarantine; returns LocalQueues that may tell of it."""
        if controller not in self._integrations:
            return []
        changed = {key.namespace for key in self._known.get(controller, {}).keys() ^ quarantined.keys()}
        self._known[controller] = quarantined
        queues = self._stores.of(self._local_queues).keys()
        return [key for key in queues if key.namespace in changed]

    def of(self, queue: Key) -> list[RefusedJob]:
        """The jobs that name a LocalQueue, in the order of their names."""
        return sorted(
            RefusedJob(self._integrations[controller].kind, named_group(key.name) or key.name, problem)
            for controller, quarantined in self._known.items()
            for key, problem in quarantined.items()
            if key.namespace == queue.namespace and self._queue_of(controller, key) == queue.name
        )

    def _queue_of(self, controller: str, key: Key) -> str:
        job = self._find(self._integrations[controller], key)
        return "" if job is None else queue_name(job, self._names)

    def _find(self, integration: Integration, key: Key) -> Object | None:
        store = self._stores.find(resource_of(integration))
        if store is None:
            return None
        if group := named_group(key.name):
            return next(iter(store.by_index(BY_GROUP, in_namespace(key.namespace, group))), None)
        return store.get(key.namespace, key.name)
