"""How long the manager rests after a cycle before it begins the next one.

While many workloads wait, each workload that finishes starts a cycle, and most of the heads of the cycle get
nothing: the API server returns quota in smaller amounts than they contend for. A rest collects several
changes for one cycle. It is proportional to the time of the cycle, so that cycles use a bounded share of a
core. Most cycles take less than a millisecond, and their rests are as short as the latency of a write.
"""

from typing import Final

REST_PER_CYCLE_SECOND: Final = 8.0
"""The seconds of rest for each second of a cycle: cycles use at most a ninth of a core."""

LONGEST_REST_SECONDS: Final = 0.25
"""The longest rest. A new workload waits at most this long for its cycle, and returned quota is unused."""

REST_PER_REFRESH_SECOND: Final = 40.0
"""The same for the refresh of outdated refusals, on which no decision depends. A change ends this rest."""


def rest_after_cycle(seconds: float) -> float:
    """Return the seconds to rest after a cycle that took this CPU time in seconds."""
    return min(seconds * REST_PER_CYCLE_SECOND, LONGEST_REST_SECONDS)


def rest_after_refresh(seconds: float) -> float:
    """Return the seconds to rest after refreshes that took this CPU time, if nothing changes meanwhile."""
    return min(seconds * REST_PER_REFRESH_SECOND, LONGEST_REST_SECONDS)
