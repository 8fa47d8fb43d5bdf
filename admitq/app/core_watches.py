"""The watches of a process with a core: those that always run, and those of topologies."""

import asyncio
from collections.abc import Sequence
from typing import Final

from admitq.app.caches import check_caches, wait_for_first_parts, wait_until_synced
from admitq.app.topology_watches import TopologyWatches
from admitq.runtime.watcher import Watcher
from admitq.serving.health import Check


class CoreWatches:
    """All watches that fill the stores of a process.

    Args:
        watchers: the watchers that always run.
        topology: the watches of nodes, and of the pods on them.
    """

    def __init__(self, watchers: Sequence[Watcher], topology: TopologyWatches) -> None:
        self._watchers: Final = tuple(watchers)
        self.topology: Final = topology

    @property
    def checks(self) -> dict[str, Check]:
        """The readiness checks of complete lists."""
        return {"caches": check_caches(self._watchers), "nodes of topologies": self.topology.check}

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Begin to list and watch."""
        for watcher in self._watchers:
            tasks.create_task(watcher.run(), name=f"watch {watcher.resource}")
        tasks.create_task(self.topology.run(), name="watch topologies")

    async def wait_for_first_parts(self, seconds: float) -> None:
        """Wait until all objects are listed on which decisions depend.

        Raises:
            TimeoutError: no object of an incomplete list came for this many seconds.
        """
        await wait_for_first_parts(self._watchers, seconds)
        await self.topology.wait_until_synced(seconds)

    async def wait_until_synced(self, seconds: float) -> None:
        """Wait until all objects are listed.

        Raises:
            TimeoutError: no object of an incomplete list came for this many seconds.
        """
        await wait_until_synced(self._watchers, seconds)
        await self.topology.wait_until_synced(seconds)
