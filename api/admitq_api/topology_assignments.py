"""Encode and decode the topology assignment in the status of a Workload.

The status has slices of similar domains, because an assignment may have ten thousand hosts. Readers accept
all forms of slices. The writer chooses the shortest form that it knows.

Source: semantics, Workload (TopologyAssignment encoding).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, NamedTuple

import orjson

from admitq_api.stored_fields import (
    MalformedField,
    require_int,
    require_list,
    require_object,
    require_text,
)

Domain = tuple[tuple[str, ...], int]
"""The value of each level, and the number of pods."""

MAX_SLICE_DOMAINS: Final = 100_000
"""The maximum number of domains in a slice."""

MAX_SLICES: Final = 1000
"""The maximum number of slices."""

MAX_DOMAINS: Final = 500_000
"""The maximum number of domains that are read. No stored object has room for so many different ones."""

_SLICE_BYTES: Final = 110
"""The approximate length of a slice as JSON without its prefix and its roots."""


class EncodedDomains(NamedTuple):
    """The content of a topology assignment: the labels of its levels, and its domains in order."""

    levels: tuple[str, ...]
    domains: tuple[Domain, ...]


# --- reading --------------------------------------------------------------------------------------


def decode(assignment: object, field: str, most: int = MAX_DOMAINS) -> EncodedDomains:
    """Return the domains of a topology assignment.

    Args:
        assignment: the assignment, in the form of v1beta2.
        field: its path in the Workload.
        most: the maximum number of domains.

    Raises:
        MalformedField: a part of the assignment does not have its form, or there are too many domains.
    """
    fields = require_object(assignment, field)
    levels = require_nonempty_texts(fields.get("levels"), f"{field}.levels")
    domains: list[Domain] = []
    for place, part in enumerate(_require_nonempty_list(fields.get("slices"), f"{field}.slices")):
        at = f"{field}.slices[{place}]"
        domains += _decode_slice(require_object(part, at), at, len(levels), most - len(domains))
    return EncodedDomains(levels, tuple(domains))


def _decode_slice(part: Mapping[str, Any], field: str, levels: int, most: int) -> Iterator[Domain]:
    count = require_positive_int(part.get("domainCount"), f"{field}.domainCount")
    if count > most:
        # This is checked first, because a small slice can state any number.
        raise MalformedField(
            f"{field}.domainCount", "must not be so large: the assignment has too many domains"
        )
    values = require_list(part.get("valuesPerLevel"), f"{field}.valuesPerLevel")
    if len(values) != levels:
        raise MalformedField(f"{field}.valuesPerLevel", "must have an item for each of levels")
    decoded = [
        _decode_values(require_object(item, at), at, count)
        for place, item in enumerate(values)
        for at in (f"{field}.valuesPerLevel[{place}]",)
    ]
    pods = _decode_pod_counts(part.get("podCounts"), f"{field}.podCounts", count)
    return zip(zip(*decoded, strict=True), pods, strict=True)


def _decode_values(level: Mapping[str, Any], field: str, count: int) -> Sequence[str]:
    if (universal := level.get("universal")) is not None:
        return (require_text(universal, f"{field}.universal"),) * count
    values = require_object(level.get("individual"), f"{field}.individual")
    roots = require_nonempty_texts(values.get("roots"), f"{field}.individual.roots")
    if len(roots) != count:
        raise MalformedField(f"{field}.individual.roots", "must have domainCount values")
    prefix = require_text(values.get("prefix"), f"{field}.individual.prefix")
    suffix = require_text(values.get("suffix"), f"{field}.individual.suffix")
    return [f"{prefix}{root}{suffix}" for root in roots]


def _decode_pod_counts(counts: object, field: str, count: int) -> Sequence[int]:
    fields = require_object(counts, field)
    if (universal := fields.get("universal")) is not None:
        return (require_positive_int(universal, f"{field}.universal"),) * count
    numbers = _require_nonempty_list(fields.get("individual"), f"{field}.individual")
    if len(numbers) != count:
        raise MalformedField(f"{field}.individual", "must have domainCount values")
    return [require_positive_int(number, f"{field}.individual") for number in numbers]


def _require_nonempty_list(value: object, field: str) -> list[Any]:
    items = require_list(value, field)
    if not items:
        raise MalformedField(field, "must not be empty")
    return items


def require_nonempty_texts(value: object, field: str) -> tuple[str, ...]:
    """Return the strings of a list with at least one.

    Raises:
        MalformedField: the value is not such a list.
    """
    items = _require_nonempty_list(value, field)
    if not all(isinstance(item, str) for item in items):
        raise MalformedField(field, "must have only texts")
    return tuple(items)


def require_positive_int(value: object, field: str) -> int:
    """Return an integer that is at least 1.

    Raises:
        MalformedField: the value is not such an integer.
    """
    number = require_int(value, field)
    if number < 1:
        raise MalformedField(field, "must be at least 1")
    return number


# --- writing --------------------------------------------------------------------------------------


def encode(
    levels: Sequence[str], domains: Sequence[Domain], *, by_hostname_prefix: bool = False
) -> dict[str, Any]:
    """Return the topology assignment for these domains, in the form of v1beta2.

    Args:
        levels: the labels of the levels.
        domains: at least one domain, in order.
        by_hostname_prefix: whether hosts with different prefixes may be in different slices. They are if the
            result is shorter (gate TASAssignmentsEncodingByHostnamePrefix).
    """
    best = _encode_runs(levels, domains, (range(len(domains)),))
    if by_hostname_prefix:
        runs = _find_runs([values[-1] for values, _ in domains])
        if 1 < len(runs) <= MAX_SLICES:
            best = min(best, _encode_runs(levels, domains, runs), key=lambda form: len(orjson.dumps(form)))
    return best


def _encode_runs(levels: Sequence[str], domains: Sequence[Domain], runs: Iterable[range]) -> dict[str, Any]:
    slices = [
        _encode_slice(domains[start : min(start + MAX_SLICE_DOMAINS, run.stop)])
        for run in runs
        for start in range(run.start, run.stop, MAX_SLICE_DOMAINS)
    ]
    return {"levels": list(levels), "slices": slices}


def _find_runs(values: Sequence[str]) -> list[range]:
    """Return runs of consecutive values, each with a prefix of its own.

    A value begins a new run if the prefix of the present run, shortened for this value, would make the run
    longer than a slice of its own does.
    """
    runs: list[range] = []
    start, prefix = 0, values[0]
    for place, value in enumerate(values):
        if value.startswith(prefix):
            continue
        common = _find_common_prefix((prefix, value))
        if (len(prefix) - len(common)) * (place - start) > _SLICE_BYTES + len(prefix):
            runs.append(range(start, place))
            start, prefix = place, value
        else:
            prefix = common
    return [*runs, range(start, len(values))]


def _encode_slice(domains: Sequence[Domain]) -> dict[str, Any]:
    counts = [count for _, count in domains]
    levels = zip(*(values for values, _ in domains), strict=True)
    return {
        "domainCount": len(domains),
        "valuesPerLevel": [_encode_values(level) for level in levels],
        "podCounts": {"universal": counts[0]} if len(set(counts)) == 1 else {"individual": counts},
    }


def _encode_values(values: tuple[str, ...]) -> dict[str, Any]:
    if len(set(values)) == 1:
        return {"universal": values[0]}
    suffix = _find_common_prefix([value[::-1] for value in values])[::-1]
    # Prefix and suffix must not overlap in the shortest value: the suffix takes precedence.
    prefix = _find_common_prefix(values)[: min(map(len, values)) - len(suffix)]
    end = -len(suffix) or None
    individual: dict[str, Any] = {"roots": [value[len(prefix) : end] for value in values]}
    if prefix:
        individual["prefix"] = prefix
    if suffix:
        individual["suffix"] = suffix
    return {"individual": individual}


def _find_common_prefix(values: Sequence[str]) -> str:
    """Return the common prefix of all values."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(min(values), max(values), strict=False))
    return "".join(letter for letter, _ in pairs)
