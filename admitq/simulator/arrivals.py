"""The times at which workloads of a class are submitted."""

import heapq
import math
import random
from collections.abc import Iterable, Iterator

from admitq.simulator.schema import Arrivals, Fixed, Nanoseconds, Poisson


def times(arrivals: Iterable[Arrivals], chance: random.Random) -> Iterator[Nanoseconds]:
    """Return the times of all arrivals of a class, in order. The iterator can be endless."""
    every = list(arrivals)
    if not every:
        return iter((0,))
    # Each kind of arrivals has its own random numbers, so that the order of draws has no effect.
    return heapq.merge(*(_times(arrival, random.Random(chance.getrandbits(64))) for arrival in every))  # noqa: S311 not a secret


def expected(arrivals: Iterable[Arrivals]) -> int | None:
    """Return the number of arrivals; None if it depends on random numbers or on the end of the run."""
    total, empty = 0, True
    for arrival in arrivals:
        empty = False
        if arrival.fixed is not None:
            total += arrival.fixed.count
        elif arrival.at is not None:
            total += len(arrival.at)
        elif (
            arrival.poisson is not None and arrival.poisson.count is not None and arrival.poisson.end is None
        ):
            total += arrival.poisson.count
        else:
            return None
    return 1 if empty else total


def estimate(arrivals: Iterable[Arrivals], until: Nanoseconds | None) -> float:
    """Return the mean number of arrivals until the end of the run; infinite if nothing ends them."""
    total, empty = 0.0, True
    for arrival in arrivals:
        empty = False
        poisson = arrival.poisson
        if poisson is None:
            total += expected((arrival,)) or 0
            continue
        ends = [end for end in (poisson.end, until) if end is not None]
        by_time = max(0, min(ends) - poisson.start) / poisson.every if ends else math.inf
        total += by_time if poisson.count is None else min(by_time, poisson.count)
    return 1.0 if empty else total


def _times(arrivals: Arrivals, chance: random.Random) -> Iterator[Nanoseconds]:
    if arrivals.fixed is not None:
        return _fixed(arrivals.fixed)
    if arrivals.poisson is not None:
        return _poisson(arrivals.poisson, chance)
    return iter(sorted(arrivals.at or ()))


def _fixed(fixed: Fixed) -> Iterator[Nanoseconds]:
    for number in range(fixed.count):
        yield fixed.start + number * fixed.every


def _poisson(poisson: Poisson, chance: random.Random) -> Iterator[Nanoseconds]:
    now, number, rate = poisson.start, 0, 1 / poisson.every
    while poisson.count is None or number < poisson.count:
        now += round(chance.expovariate(rate))
        if poisson.end is not None and now > poisson.end:
            return
        yield now
        number += 1
