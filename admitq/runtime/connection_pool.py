"""Connections of one caller to one server, which are all closed when the pool is.

aiohttp forgets a connection once an answer is abandoned, for example that of a cancelled watch, while the
connection still waits for the server's end of TLS. An event loop of uvloop that closes meanwhile fails, and
with it the process.
"""

import asyncio
import contextlib
import socket
import weakref
from collections.abc import Mapping
from ssl import SSLContext
from typing import Any, Final

import aiohttp

# The event loop closes them in its next iterations.
_LOOKS: Final = 200
_LOOK_EVERY_S: Final = 0.005

# Servers close idle connections, kube-apiserver after 90 s. Closing them first, no write can use a connection
# that the server closes at the same moment.
_KEEP_IDLE_S: Final = 60


class ConnectionPool:
    """An open pool. It must be created and closed in the same event loop.

    Args:
        connections: the greatest number of connections at once; 0 for no limit.
        headers: the headers of each request.
        tls: the trusted authorities and the client certificate; None if each request names its own.
    """

    def __init__(self, connections: int, headers: Mapping[str, str], tls: SSLContext | None = None) -> None:
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=connections,
                keepalive_timeout=_KEEP_IDLE_S,
                ssl=tls or True,
                socket_factory=self._create_socket,
            ),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=256 * 1024,
        )

    def _create_socket(self, address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, _ = address
        created = socket.socket(family, kind, protocol)
        self._sockets.add(created)
        return created

    async def close(self) -> None:
        """Close all connections, and wait until they are closed. Requests in progress fail."""
        await self.session.close()
        for opened in self._open_sockets():
            # The other side has closed it, or it never was connected.
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        for _ in range(_LOOKS):
            if not self._open_sockets():
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    def _open_sockets(self) -> list[socket.socket]:
        return [opened for opened in self._sockets if opened.fileno() != -1]
