"""Spread units over few domains, in equal shares (semantics, Balanced placement).

A unit is a slice. Domains with the same parent are *siblings*. Of each set of siblings, as few domains as
possible are used, and each gets at least a *threshold* of units. The set with the highest threshold is
chosen: there, the smallest share is the largest.
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import NamedTuple


class Room(NamedTuple):
    """How many units a domain holds, and how many beside the leader; None if the leader does not fit."""

    domain: int
    units: int
    beside_leader: int | None = None


class Share(NamedTuple):
    """What a chosen domain gets: units (slices or pods), and whether the leader."""

    domain: int
    units: int
    has_leader: bool


class _Chosen(NamedTuple):
    """A room that is used. ``size`` is the number of units that it holds in its role."""

    position: int
    domain: int
    size: int
    has_leader: bool


_State = tuple[int, bool]
"""The number of chosen rooms, and whether one of them has the leader."""

_Sums = dict[_State, int]
"""The sums of the sizes of chosen rooms: bit n of the number is set if the sum can be n."""


def balance(
    sets: Iterable[Sequence[Room]],
    need: int,
    *,
    needs_leader: bool = False,
    order: Callable[[int], tuple[float, tuple[str, ...]]],
) -> list[Share] | None:
    """Return balanced shares of siblings; None if no set of siblings holds all units.

    Of sets with equal thresholds, that with the fewest chosen domains comes first, then that with the least
    room in these.

    Args:
        sets: the sets of siblings, each sorted by values.
        need: the number of units.
        needs_leader: whether one of the domains must hold the leader.
        order: the order of domains with equal room.
    """
    thresholds = [(_threshold(rooms, need, needs_leader=needs_leader), rooms) for rooms in sets]
    highest = max((threshold for threshold, _ in thresholds), default=0)
    if not highest:
        return None
    choices = [
        _choose(rooms, need, highest, needs_leader=needs_leader, order=order)
        for threshold, rooms in thresholds
        if threshold == highest
    ]
    chosen = min(choices, key=lambda rooms: (len(rooms), sum(room.size for room in rooms)))
    return _share(chosen, need, highest)


def _threshold(rooms: Sequence[Room], need: int, *, needs_leader: bool) -> int:
    """Return how many units each of the fewest siblings can get at least; 0 if not all units fit."""
    slack = sum(room.units for room in rooms) - need
    sizes: list[int] = []
    if needs_leader:
        able = [room for room in rooms if _loss(room) <= slack]
        if not able:
            return 0
        leader = max(able, key=lambda room: room.beside_leader or 0)
        sizes.append(leader.beside_leader or 0)
        rooms = [room for room in rooms if room is not leader]
    elif slack < 0:
        return 0
    largest, left = iter(sorted((room.units for room in rooms), reverse=True)), need - sum(sizes)
    while left > 0:
        sizes.append(next(largest))
        left -= sizes[-1]
    return min(need // len(sizes), *sizes)


def _loss(room: Room) -> float:
    """Return how many units less fit beside the leader."""
    return inf if room.beside_leader is None else room.units - room.beside_leader


def _choose(
    rooms: Sequence[Room],
    need: int,
    threshold: int,
    *,
    needs_leader: bool,
    order: Callable[[int], tuple[float, tuple[str, ...]]],
) -> list[_Chosen]:
    """Return the fewest rooms with at least the threshold that hold the units; of these, the smallest."""
    rooms = [room for room in rooms if room.units >= threshold]
    rooms.sort(key=lambda room: order(room.domain))
    most = need // threshold
    kept = enumerate(_without_surplus(rooms, most))
    options = [_roles(position, room, threshold) for position, room in kept]
    sums: list[_Sums] = [{(0, False): 1}]
    for roles in options:
        sums.append(_with_room(sums[-1], roles, most))
    number = next(n for n in range(1, most + 1) if sums[-1].get((n, needs_leader), 0) >> need)
    sufficient = sums[-1][number, needs_leader] >> need
    total = need + (sufficient & -sufficient).bit_length() - 1
    return _find_rooms(options, sums, (number, needs_leader), total)


def _without_surplus(rooms: Sequence[Room], most: int) -> list[Room]:
    """Leave out rooms of which there are enough equal ones before."""
    seen: dict[tuple[int, int | None], int] = {}
    kept: list[Room] = []
    for room in rooms:
        kind = room.units, room.beside_leader
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= most:
            kept.append(room)
    return kept


def _roles(position: int, room: Room, threshold: int) -> list[_Chosen]:
    """Return what a room can be used for: without the leader, or with it."""
    sizes = ((room.units, False), (room.beside_leader, True))
    return [
        _Chosen(position, room.domain, size, has_leader)
        for size, has_leader in sizes
        if size is not None and size >= threshold
    ]


def _with_room(sums: _Sums, roles: Iterable[_Chosen], most: int) -> _Sums:
    """Return the sums that are possible with one more room."""
    found = dict(sums)
    for role in roles:
        for (number, has_leader), bits in sums.items():
            if number < most and not (has_leader and role.has_leader):
                state = number + 1, has_leader or role.has_leader
                found[state] = found.get(state, 0) | bits << role.size
    return found


def _find_rooms(
    options: Sequence[Sequence[_Chosen]], sums: Sequence[_Sums], state: _State, total: int
) -> list[_Chosen]:
    """Return rooms with a sum of sizes; of several choices, the rooms that come first."""
    chosen: list[_Chosen] = []
    for roles, before in zip(reversed(options), reversed(sums[:-1]), strict=True):
        if before.get(state, 0) >> total & 1:
            continue
        role = next(role for role in roles if _completes(role, before, state, total))
        chosen.append(role)
        state, total = _without(role, state), total - role.size
    return chosen


def _completes(role: _Chosen, before: _Sums, state: _State, total: int) -> bool:
    """Whether a room in a role and rooms before it have a sum."""
    left = total - role.size
    return left >= 0 and bool(before.get(_without(role, state), 0) >> left & 1)


def _without(role: _Chosen, state: _State) -> _State:
    """Return the state before a room was chosen in a role. With a second leader, there is none."""
    number, has_leader = state
    return number - 1 if has_leader or not role.has_leader else -1, has_leader and not role.has_leader


def _share(chosen: Iterable[_Chosen], need: int, threshold: int) -> list[Share]:
    """Give each room the threshold, and what is left to the largest."""
    ordered = sorted(chosen, key=lambda room: (-room.size, room.position))
    left = need - threshold * len(ordered)
    shares: list[Share] = []
    for room in ordered:
        more = min(left, room.size - threshold)
        left -= more
        shares.append(Share(room.domain, threshold + more, room.has_leader))
    return shares
