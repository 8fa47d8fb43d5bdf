"""Where ticks stand, and what stands beside them."""

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Final, NamedTuple

from admitq.simulator.units import amount_text, duration_text, is_bytes

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_TIME_STEPS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(_MINUTE * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * hours for hours in (1, 2, 3, 6, 12)),
    *(_DAY * days for days in (1, 2, 5, 7, 14, 30, 60, 90, 180, 365)),
)
_LOG_TIMES: Final = (
    *(0.001, 0.01, 0.1, 1, 3, 10, 30, _MINUTE, 3 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 3 * _HOUR, 10 * _HOUR, _DAY, 3 * _DAY, 10 * _DAY, 30 * _DAY, 100 * _DAY),
)


class Tick(NamedTuple):
    """A place on an axis and its label."""

    at: float
    label: str


def time_ticks(end: float, most: int = 9) -> list[Tick]:
    """Ticks from 0 to at most ``end``, in seconds, at distances that people count time in."""
    step = next((step for step in _TIME_STEPS if end / step <= most), _TIME_STEPS[-1])
    return [Tick(index * step, duration_text(index * step)) for index in range(floor(end / step + 1e-9) + 1)]


def log_time_ticks(low: float, high: float) -> list[Tick]:
    """Ticks of a logarithmic axis of durations."""
    return [Tick(at, duration_text(at)) for at in _LOG_TIMES if low <= at <= high]


def amount_ticks(resource: str, most: float, about: int = 4) -> list[Tick]:
    """Ticks from 0 to at least ``most``, in the resource's own unit."""
    if most <= 0:
        return [Tick(0, "0"), Tick(1, "1")]
    return _ticks(_round_step(most / about, resource), most, resource)


def count_ticks(most: float, about: int = 4) -> list[Tick]:
    """Ticks for whole things."""
    return _ticks(max(1.0, _round_step(max(most, 1) / about, "")), most, "")


def _ticks(step: float, most: float, resource: str) -> list[Tick]:
    count = max(1, ceil(most / step - 1e-9))
    return [Tick(index * step, amount_text(resource, index * step)) for index in range(count + 1)]


def _round_step(least: float, resource: str) -> float:
    """The next of 1, 2, 5 times a power of ten; of 1, 2, 4, 8 … times a power of 1024 for bytes."""
    if is_bytes(resource):
        step = 1.0
        while step < least:
            step *= 2
        return step
    power = 10.0 ** floor(log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-9))


def top(ticks: Sequence[Tick]) -> float:
    """The upper end of an axis with these ticks."""
    return ticks[-1].at
