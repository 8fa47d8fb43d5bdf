"""Writes of a Workload's status that must not get lost, nor take effect on what is not what was decided on.

One Workload is written by one task at a time, and each write carries the version that it was made from.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakValueDictionary

from admitq import admission_status
from admitq.core.model import ObjectKey
from admitq.logs import logger
from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Object, Resource
from admitq.runtime.store import Store

log = logger(__name__)

Patch = dict[str, Any]

RETRY_BASE_SECONDS: Final = 0.05
RETRY_MAX_SECONDS: Final = 30.0


def backoff(attempt: int) -> float:
    """Seconds to wait before another attempt, the first being 1."""
    return min(RETRY_MAX_SECONDS, RETRY_BASE_SECONDS * 2 ** min(attempt - 1, 10))


@dataclass
class GuardedWrites:
    """Writes statuses of Workloads for what the core decided.

    Args:
        client: for the writes.
        resource: Workloads.
        workloads: the store of Workloads.
        observed: takes the answer to one of our own writes into the stores.
        decides_alike: whether two versions of a Workload are the same to the core.
        field_manager: in whose name is written.
        merge_patches: whether the admission is written by merge patches, too (gate
            WorkloadRequestUseMergePatch).
    """

    client: Client
    resource: Resource
    workloads: Store
    observed: Callable[[Resource, Object], None]
    decides_alike: Callable[[Object, Object], bool]
    field_manager: str
    merge_patches: bool = False

    _writing: WeakValueDictionary[ObjectKey, asyncio.Lock] = field(
        default_factory=WeakValueDictionary[ObjectKey, asyncio.Lock]
    )
    """The locks of Workloads, each kept by the tasks that hold it or wait for it."""

    def current(self, key: ObjectKey, uid: str) -> Object | None:
        """The Workload as it was last seen; None if it is gone, though another may have its name."""
        obj = self.workloads.get(key.namespace, key.name)
        return obj if obj is not None and obj["metadata"]["uid"] == uid else None

    @asynccontextmanager
    async def sole_writer(self, key: ObjectKey) -> AsyncGenerator[None]:
        """Keep two writes of ours about one workload from meeting, for the later would be refused."""
        lock = self._writing.get(key)
        if lock is None:
            self._writing[key] = lock = asyncio.Lock()
        async with lock:
            yield

    async def once(self, obj: Object, patch: Patch) -> Object:
        """Write a patch of the admission status.

        Args:
            obj: the Workload that the patch was made from.
            patch: the change of its status.

        Raises:
            ApiError: the write was refused or got no answer.
        """
        written = await admission_status.write(
            self.client,
            self.resource,
            obj,
            patch,
            field_manager=self.field_manager,
            merge_patches=self.merge_patches,
        )
        self.observed(self.resource, written)
        return written

    async def until_certain(
        self,
        key: ObjectKey,
        uid: str,
        patch_of: Callable[[Object], Patch | None],
        stands: Callable[[Object], bool],
    ) -> Object | None:
        """Write what was decided about a Workload until it is certain whether it stands.

        A write without an answer may still take effect, however late. So the very same write, upon the
        same version of the object, is sent again until one answer is final: at most one of them can land.
        After a conflict it is written upon the newer version if nothing has changed in it that the decision
        was made from.

        Args:
            key: the Workload.
            uid: its identity, for another may come to have its name.
            patch_of: what to write upon a version of it; None if that makes no sense any more.
            stands: whether a version says already what was to be written.

        Returns:
            The Workload as it now is, or None if it is certain that the decision does not stand.
        """
        obj = self.current(key, uid)
        attempt = 0
        while obj is not None and (patch := patch_of(obj)) is not None:
            try:
                return await self.once(obj, patch)
            except ApiError as error:
                if error.is_transient:
                    attempt += 1
                    await asyncio.sleep(backoff(attempt))
                    continue
                current = await self._read(key)
                if current is None or current["metadata"]["uid"] != uid:
                    return None
                if stands(current):
                    # An earlier attempt of ours may be what the last one conflicted with.
                    return current
                if not (error.is_conflict and self.decides_alike(obj, current)):
                    log.info("a decision was refused", workload=str(key), error=str(error))
                    return None
                obj = current
        return None

    async def _read(self, key: ObjectKey) -> Object | None:
        """Read a Workload, however long it takes; None if it does not exist."""
        attempt = 0
        while True:
            try:
                obj = await self.client.get(self.resource, key.name, namespace=key.namespace)
            except ApiError as error:
                if error.is_not_found:
                    return None
                if not error.is_transient:
                    raise
                attempt += 1
                await asyncio.sleep(backoff(attempt))
                continue
            self.observed(self.resource, obj)
            return obj
