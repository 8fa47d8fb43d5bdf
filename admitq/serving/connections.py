"""The open connections of a server. If there are too many, one of them is closed."""

import enum
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


class ConnectionPhase(enum.Enum):
    """What a connection is doing."""

    HANDSHAKE = enum.auto()
    HEADER = enum.auto()
    """Has begun to send a request with an incomplete header."""
    BODY = enum.auto()
    """Waits for the rest of a request's body."""
    IDLE = enum.auto()
    """Waits for the first byte of its next request."""
    BUSY = enum.auto()
    """A request is being answered; never closed to make room."""


_PEER_IS_TO_SEND: Final = frozenset({ConnectionPhase.HANDSHAKE, ConnectionPhase.HEADER, ConnectionPhase.BODY})

PATIENCE_SECONDS: Final = 0.2
"""How long a peer may take to send the rest of a request while new connections wait for room."""


@dataclass(eq=False, slots=True)
class Connection:
    """One connection.

    Attributes:
        peer: address of the other end.
        phase: what it is doing.
        since: since when, in seconds of a monotonic clock.
        drop: ends it at once.
    """

    peer: str
    phase: ConnectionPhase
    since: float
    drop: Callable[[], None]


class Connections:
    """All connections of a server, capped in total and for each peer.

    At a cap, one connection is closed for a new one: first one whose peer is late with the rest of a request,
    then the one that was idle longest, then one whose peer has just begun to send. So a peer that holds
    unused connections open cannot block others.
    """

    def __init__(
        self,
        *,
        total: int,
        per_peer: int,
        clock: Callable[[], float],
        on_made_room: Callable[[], None],
    ) -> None:
        self._on_made_room = on_made_room
        self._total = total
        self._per_peer = per_peer
        self._clock = clock
        self._by_peer: defaultdict[str, set[Connection]] = defaultdict(set)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def all(self) -> list[Connection]:
        """Return all open connections."""
        return [connection for of_peer in self._by_peer.values() for connection in of_peer]

    def admit(self, peer: str, drop: Callable[[], None]) -> Connection | None:
        """Register a new connection; return None if all connections are busy at a cap."""
        if len(self._by_peer.get(peer, ())) >= self._per_peer and not self._make_room(
            list(self._by_peer[peer])
        ):
            return None
        if self._count >= self._total and not self._make_room(self.all()):
            return None
        connection = Connection(peer, ConnectionPhase.HANDSHAKE, self._clock(), drop)
        self._by_peer[peer].add(connection)
        self._count += 1
        return connection

    def enter(self, connection: Connection, phase: ConnectionPhase) -> None:
        """Set the phase of a connection."""
        connection.phase = phase
        connection.since = self._clock()

    def release(self, connection: Connection) -> None:
        """Remove a connection that ended. A second call does nothing."""
        of_peer = self._by_peer.get(connection.peer)
        if of_peer is None or connection not in of_peer:
            return
        of_peer.remove(connection)
        self._count -= 1
        if not of_peer:
            del self._by_peer[connection.peer]

    def make_room(self) -> bool:
        """Close the least needed connection; return whether there was one."""
        return self._make_room(self.all())

    def _make_room(self, among: list[Connection]) -> bool:
        waiting = [connection for connection in among if connection.phase is not ConnectionPhase.BUSY]
        if not waiting:
            return False
        now = self._clock()

        def need(connection: Connection) -> tuple[int, float]:
            if connection.phase is ConnectionPhase.IDLE:
                return 1, connection.since
            late = connection.phase in _PEER_IS_TO_SEND and now - connection.since >= PATIENCE_SECONDS
            return 0 if late else 2, connection.since

        victim = min(waiting, key=need)
        self.release(victim)
        victim.drop()
        self._on_made_room()
        return True
