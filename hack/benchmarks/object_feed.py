"""Follow all objects of a collection: a list, and then a watch that never ends."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from benchmarks.throughput_connection import LoadConnection, list_all
from localcluster.cluster import to_stderr

_RESTART_AFTER_S: Final = 0.05


class ObjectFeed:
    """Shows each object of a collection to a handler, and then each change.

    Args:
        connection: the connection, of which the watch needs one for itself.
        resource: the resource with its group, for the count of calls.
        path: the path of the collection.
        observe: the handler. It gets ADDED, MODIFIED or DELETED, and the object. After a watch that failed,
            it gets all objects again.
        fields: a field selector; empty for all objects.
    """

    def __init__(
        self,
        connection: LoadConnection,
        resource: str,
        path: str,
        observe: Callable[[str, dict[str, Any]], None],
        *,
        fields: str = "",
    ) -> None:
        self._connection = connection
        self._resource = resource
        self._path = path
        self._observe = observe
        self._fields = fields
        self._version = ""

    async def list(self) -> None:
        """Show all objects.

        Raises:
            ThroughputFailed: the API server refused the call.
        """
        objects, self._version = await list_all(
            self._connection, self._resource, self._path, fields=self._fields
        )
        for obj in objects:
            self._observe("ADDED", obj)

    async def watch(self) -> None:
        """Show all changes since `list`, until cancelled.

        Raises:
            ThroughputFailed: the API server refused a new list.
        """
        while True:
            events = self._connection.watch(self._resource, self._path, self._version, fields=self._fields)
            async for event in events:
                if event["type"] == "ERROR":
                    to_stderr(f"the watch failed: {event['object'].get('message')}")
                    await self.list()
                    break
                self._version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._observe(event["type"], event["object"])
            else:
                await asyncio.sleep(_RESTART_AFTER_S)
