"""The room of a topology for a waiting workload, as text and as JSON values.

Nothing is hidden from viewers: domains and counts of nodes tell nothing about workloads of other namespaces,
beside how much room they leave.
"""

from collections.abc import Iterator
from typing import Any

from admitq.core.topology.rooms import LevelRoom, TopologyRoom
from admitq.translate.topology_messages import exclusions_text


def room_lines(room: TopologyRoom) -> Iterator[str]:
    """Yield what the podsets need, and what each level could hold now unless they fit."""
    yield f"topology {room.topology}: needs {_need_text(room)}{': fits' if room.fits else ''}"
    if room.fits:
        return
    for level in room.levels:
        yield f"  {_level_text(room, level)}"
    if room.may_spread:
        yield f"  all domains together hold {_amount_text(room, room.total)}"


def _need_text(room: TopologyRoom) -> str:
    need = f"{room.wanted} {_things(room)}"
    if room.has_leader:
        need += " beside the leader"
    if room.is_unconstrained:
        return f"{need} in any domains"
    return f"{need}{' preferably' if room.may_spread else ''} in one domain of level {room.requested}"


def _things(room: TopologyRoom) -> str:
    return "pod(s)" if room.unit == 1 else f"slice(s) of {room.unit} pods"


def _amount_text(room: TopologyRoom, fitting: int) -> str:
    return f"{fitting} of {room.wanted} {'pod(s)' if room.unit == 1 else 'slice(s)'}"


def _level_text(room: TopologyRoom, level: LevelRoom) -> str:
    if not level.domain:
        return f"level {level.level}: has no nodes"
    limit = "" if level.limit is None else f", limited by {level.limit}"
    text = f"level {level.level}: {_name(level)} holds {_amount_text(room, level.fitting)}{limit}"
    if not level.excluded:
        return text
    count = sum(nodes for _, nodes in level.excluded)
    return f"{text}; no pod fits on {count} of its {level.nodes} node(s): {exclusions_text(level.excluded)}"


def _name(level: LevelRoom) -> str:
    return "/".join(level.domain)


def room_json(room: TopologyRoom) -> dict[str, Any]:
    """Return the room as JSON values. ``requestedLevel`` is null if any domains suffice."""
    return {
        "name": room.topology,
        "fits": room.fits,
        "podsPerSlice": room.unit,
        "wanted": room.wanted,
        "hasLeader": room.has_leader,
        "requestedLevel": None if room.is_unconstrained else room.requested,
        "required": not room.may_spread,
        "inAllDomains": room.total,
        "levels": [
            {
                "level": level.level,
                "domain": list(level.domain),
                "fitting": level.fitting,
                "nodes": level.nodes,
                "limitedBy": level.limit,
                "excludedNodes": [
                    {"reason": str(exclusion.obstacle), "name": exclusion.name or None, "nodes": nodes}
                    for exclusion, nodes in level.excluded
                ],
            }
            for level in room.levels
        ],
    }
