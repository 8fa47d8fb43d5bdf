"""Translation of priorities and boosts."""

import pytest

from admitq.translate.priorities import read_priority, read_priority_leniently
from admitq.translate.read_options import ReadOptions
from admitq.translate.workloads import read_workload
from admitq_api.stored_fields import MalformedField
from tests.unit.translate.builders import NAMES, workload


@pytest.mark.parametrize(
    ("boost", "allows_boost", "expected"),
    [(None, True, (5, 0)), ("-7", True, (5, -7)), ("+3", True, (5, 3)), ("3", False, (5, 0))],
)
def test_priority_boost_is_added_to_priority_if_allowed(
    boost: str | None, allows_boost: bool, expected: tuple[int, int]
) -> None:
    obj = workload(priority=5)
    if boost is not None:
        obj["metadata"]["annotations"] = {NAMES.priority_boost: boost}
    options = ReadOptions(allows_priority_boost=allows_boost)
    assert read_priority(obj, NAMES, options) == expected
    assert read_workload(obj, NAMES, options).priority == sum(expected)


def test_priority_boost_that_is_no_number_is_malformed() -> None:
    obj = workload()
    obj["metadata"]["annotations"] = {NAMES.priority_boost: "high"}
    with pytest.raises(MalformedField, match="must be a whole number"):
        read_workload(obj, NAMES, ReadOptions(allows_priority_boost=True))


@pytest.mark.parametrize("boost", ["high", "", "9" * 5000, str(2**31), "1_0"])
def test_e_lenient_priority_ignores_malformed_boost_of_another_program(boost: str) -> None:
    obj = workload(priority=7)
    obj["metadata"]["annotations"] = {NAMES.priority_boost: boost}
    options = ReadOptions(allows_priority_boost=True)
    with pytest.raises(MalformedField, match="must be a whole number"):
        read_priority(obj, NAMES, options)
    assert read_priority_leniently(obj, NAMES, options) == (7, 0)
