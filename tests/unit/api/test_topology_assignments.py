"""Topology assignments in the status of Workloads: encoding and decoding."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq_api.stored_fields import MalformedField
from admitq_api.topology_assignments import MAX_DOMAINS, MAX_SLICE_DOMAINS, Domain, decode, encode

HOST = "kubernetes.io/hostname"

_NAMES = st.text("ab-1.", min_size=1, max_size=8)


@st.composite
def _contents(draw: st.DrawFn) -> tuple[tuple[str, ...], list[Domain]]:
    width = draw(st.integers(1, 3))
    values = st.tuples(*(_NAMES for _ in range(width)))
    domains = st.lists(st.tuples(values, st.integers(1, 3)), min_size=1, max_size=30)
    return tuple(draw(st.lists(_NAMES, min_size=width, max_size=width))), draw(domains)


def _hosts(*names: str, pods: int = 1) -> list[Domain]:
    return [((name,), pods) for name in names]


def test_hosts_with_common_prefix_have_one_slice_with_their_roots() -> None:
    """Source: semantics, Worked numbers."""
    assert encode((HOST,), _hosts("n-1", "n-2", pods=2)) == {
        "levels": [HOST],
        "slices": [
            {
                "domainCount": 2,
                "valuesPerLevel": [{"individual": {"prefix": "n-", "roots": ["1", "2"]}}],
                "podCounts": {"universal": 2},
            }
        ],
    }


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (["a", "a"], {"universal": "a"}),
        (["n1.dc", "n2.dc"], {"individual": {"prefix": "n", "roots": ["1", "2"], "suffix": ".dc"}}),
        # The suffix takes precedence where both would overlap in the shortest value.
        (["aa", "aaa"], {"individual": {"roots": ["", "a"], "suffix": "aa"}}),
        (["x", "y"], {"individual": {"roots": ["x", "y"]}}),
    ],
)
def test_values_share_prefix_and_suffix(hosts: list[str], expected: dict[str, Any]) -> None:
    [part] = encode((HOST,), _hosts(*hosts))["slices"]
    assert part["valuesPerLevel"] == [expected]


@pytest.mark.parametrize("by_hostname_prefix", [False, True])
@given(content=_contents())
def test_domains_survive_encoding(
    content: tuple[tuple[str, ...], list[Domain]], by_hostname_prefix: bool
) -> None:
    levels, domains = content
    encoded = encode(levels, domains, by_hostname_prefix=by_hostname_prefix)
    assert decode(orjson.loads(orjson.dumps(encoded)), "f") == (levels, tuple(domains))


def _ten_thousand_hosts(pools: int) -> list[Domain]:
    return _hosts(
        *sorted(
            f"gke-training-pool-{pool}-{pool * 7919 % 10007:08x}-{number:04d}"
            for pool in range(pools)
            for number in range(10_000 // pools)
        )
    )


@pytest.mark.parametrize(
    ("pools", "by_hostname_prefix", "most"),
    [(1, False, 75_000), (1, True, 70_000), (8, False, 190_000), (8, True, 75_000), (100, True, 90_000)],
)
def test_assignment_of_ten_thousand_hosts_is_small(pools: int, by_hostname_prefix: bool, most: int) -> None:
    hosts = _ten_thousand_hosts(pools)
    encoded = encode((HOST,), hosts, by_hostname_prefix=by_hostname_prefix)
    assert len(orjson.dumps(encoded)) < most
    assert decode(encoded, "f").domains == tuple(hosts)


def test_slices_by_prefix_are_not_used_when_one_slice_is_shorter() -> None:
    hosts = _hosts("left-1", "left-2", "right-1", "right-2")
    assert encode((HOST,), hosts, by_hostname_prefix=True) == encode((HOST,), hosts)


def test_thousand_slices_are_not_exceeded() -> None:
    hosts = _hosts(*(f"{pool:04d}{'x' * 200}{host}" for pool in range(1001) for host in range(3)))
    assert len(encode((HOST,), hosts, by_hostname_prefix=True)["slices"]) == 1
    assert len(encode((HOST,), hosts[:-3], by_hostname_prefix=True)["slices"]) == 1000


def test_domains_beyond_slice_size_are_split() -> None:
    slices = encode((HOST,), _hosts(*(f"n{number}" for number in range(MAX_SLICE_DOMAINS + 1))))["slices"]
    assert [part["domainCount"] for part in slices] == [MAX_SLICE_DOMAINS, 1]


def _slice(**changed: Any) -> dict[str, Any]:
    part = {"domainCount": 1, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": 1}}
    return {"levels": ["rack"], "slices": [{**part, **changed}]}


@pytest.mark.parametrize(
    ("malformed", "field"),
    [
        ("text", ""),
        ({}, ".levels"),
        ({"levels": ["rack"]}, ".slices"),
        ({"levels": [5], "slices": _slice()["slices"]}, ".levels"),
        ({"levels": ["rack"], "slices": ["text"]}, ".slices[0]"),
        (_slice(domainCount=0), ".slices[0].domainCount"),
        (_slice(domainCount=MAX_DOMAINS + 1), ".slices[0].domainCount"),
        (_slice(valuesPerLevel=[]), ".slices[0].valuesPerLevel"),
        (_slice(valuesPerLevel=["a"]), ".slices[0].valuesPerLevel[0]"),
        (_slice(valuesPerLevel=[{"universal": 1}]), ".slices[0].valuesPerLevel[0].universal"),
        (_slice(valuesPerLevel=[{}]), ".slices[0].valuesPerLevel[0].individual.roots"),
        (
            _slice(valuesPerLevel=[{"individual": {"roots": ["a", "b"]}}]),
            ".slices[0].valuesPerLevel[0].individual.roots",
        ),
        (
            _slice(valuesPerLevel=[{"individual": {"roots": ["a"], "prefix": 1}}]),
            ".slices[0].valuesPerLevel[0].individual.prefix",
        ),
        (_slice(podCounts={"universal": 0}), ".slices[0].podCounts.universal"),
        (_slice(podCounts={"individual": [1, 2]}), ".slices[0].podCounts.individual"),
        (_slice(podCounts={"individual": ["1"]}), ".slices[0].podCounts.individual"),
    ],
)
def test_malformed_assignment_is_reported_with_its_path(malformed: object, field: str) -> None:
    with pytest.raises(MalformedField) as raised:
        decode(malformed, "assignment")
    assert raised.value.field == f"assignment{field}"
