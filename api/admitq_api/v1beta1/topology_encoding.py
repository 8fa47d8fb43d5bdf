"""Convert topology assignments: v1beta1 lists domains, v1beta2 encodes them in slices of similar domains.

Source: semantics, Workload (TopologyAssignment encoding).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, cast

Domain = tuple[tuple[str, ...], int]
"""The value of each level, and the number of pods."""

MAX_SLICE_DOMAINS: Final = 100_000
"""The maximum number of domains in a slice."""

MAX_LISTED_DOMAINS: Final = 50_000
"""The maximum number of domains in v1beta1. With more, their validation rule would be too expensive."""


class MalformedAssignment(Exception):
    """An assignment does not have the form of its version."""


def list_domains(assignment: Mapping[str, Any]) -> dict[str, Any]:
    """Return an assignment of v1beta2 in the form of v1beta1.

    Raises:
        MalformedAssignment: it does not have the form of v1beta2, or has more than `MAX_LISTED_DOMAINS`.
    """
    domains: list[Domain] = []
    names = _require_texts(assignment.get("levels"))
    for part in _iterate_objects(assignment.get("slices")):
        count = part.get("domainCount")
        # This is checked first, because a small slice can state any number.
        if not _is_positive_int(count) or len(domains) + cast("int", count) > MAX_LISTED_DOMAINS:
            raise MalformedAssignment("domainCount")
        levels = [
            _list_values(level, cast("int", count)) for level in _iterate_objects(part.get("valuesPerLevel"))
        ]
        if len(levels) != len(names):
            raise MalformedAssignment("valuesPerLevel")
        pods = _list_pod_counts(part.get("podCounts"), cast("int", count))
        domains += zip(zip(*levels, strict=True), pods, strict=True)
    return {
        "levels": names,
        "domains": [{"values": list(values), "count": count} for values, count in domains],
    }


def create_slices(assignment: Mapping[str, Any]) -> dict[str, Any]:
    """Return an assignment of v1beta1 in the form of v1beta2, with as few slices as possible.

    Raises:
        MalformedAssignment: it does not have the form of v1beta1.
    """
    levels = _require_texts(assignment.get("levels"))
    domains = [_parse_domain(domain, len(levels)) for domain in _iterate_objects(assignment.get("domains"))]
    return {
        "levels": levels,
        "slices": [
            _create_slice(domains[at : at + MAX_SLICE_DOMAINS])
            for at in range(0, len(domains), MAX_SLICE_DOMAINS)
        ],
    }


def _list_values(level: dict[str, Any], count: int) -> list[str]:
    universal, individual = level.get("universal"), level.get("individual")
    if isinstance(universal, str):
        return [universal] * count
    if not isinstance(individual, dict):
        raise MalformedAssignment("valuesPerLevel")
    values = cast("dict[str, Any]", individual)
    roots = _require_texts(values.get("roots"))
    prefix, suffix = values.get("prefix") or "", values.get("suffix") or ""
    if len(roots) != count or not isinstance(prefix, str) or not isinstance(suffix, str):
        raise MalformedAssignment("individual")
    return [f"{prefix}{root}{suffix}" for root in roots]


def _list_pod_counts(counts: object, count: int) -> list[int]:
    fields = cast("dict[str, Any]", counts) if isinstance(counts, dict) else {}
    universal, individual = fields.get("universal"), fields.get("individual")
    if _is_positive_int(universal):
        return [cast("int", universal)] * count
    if isinstance(individual, list):
        numbers = cast("list[Any]", individual)
        if len(numbers) == count and all(map(_is_positive_int, numbers)):
            return numbers
    raise MalformedAssignment("podCounts")


def _parse_domain(domain: dict[str, Any], levels: int) -> Domain:
    values, count = _require_texts(domain.get("values")), domain.get("count")
    if len(values) != levels or not _is_positive_int(count):
        raise MalformedAssignment("domains")
    return tuple(values), cast("int", count)


def _create_slice(domains: Sequence[Domain]) -> dict[str, Any]:
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


def _iterate_objects(value: object) -> Iterator[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise MalformedAssignment("not a list")
    for item in cast("list[Any]", value):
        if not isinstance(item, dict):
            raise MalformedAssignment("not an object")
        yield cast("dict[str, Any]", item)


def _require_texts(value: object) -> list[str]:
    if not isinstance(value, list) or not value:
        raise MalformedAssignment("not a list")
    texts = cast("list[Any]", value)
    if not all(isinstance(text, str) for text in texts):
        raise MalformedAssignment("not text")
    return texts


def _is_positive_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
