"""Lanes that need amounts, against a plain sorted list."""

import random
from collections.abc import Callable
from operator import itemgetter

import pytest

from admitq.core.admission_fair_sharing import NEVER_USED
from admitq.core.waiting.lanes_by_need import LanesByNeed
from admitq.core.waiting.order import LanePosition
from admitq.core.waiting.pending import new_pending
from tests.unit.core.pending_stage import workload

Entry = tuple[LanePosition, int, str]


def _position(number: int) -> LanePosition:
    return (True, NEVER_USED, new_pending(workload(f"w{number:05}", number)).position)


def _entry(number: int, amount: int) -> Entry:
    return _position(number), amount, f"w{number}"


def _check(lanes: LanesByNeed[str], plain: list[Entry], questions: list[int]) -> None:
    plain.sort(key=itemgetter(0))
    assert list(lanes) == plain
    assert bool(lanes) is bool(plain)
    assert lanes.least == min((amount for _, amount, _ in plain), default=None)
    for available in questions:
        first = next((lane for _, amount, lane in plain if amount <= available), None)
        assert lanes.first_within(available) == first


def test_lanes_by_need_without_lanes_have_no_least_need_and_no_first_lane() -> None:
    _check(LanesByNeed(), [], [0, 9])


def test_first_within_is_the_first_lane_by_position_and_not_the_least_need() -> None:
    lanes = LanesByNeed[str]()
    for number, amount in ((3, 1), (1, 9), (2, 5)):
        lanes.add(*_entry(number, amount))
    assert [lanes.first_within(amount) for amount in (0, 1, 5, 9)] == [None, "w3", "w2", "w1"]


def _ascending(count: int) -> list[int]:
    return list(range(count))


def _descending(count: int) -> list[int]:
    return list(range(count))[::-1]


def _shuffled(count: int) -> list[int]:
    numbers = list(range(count))
    random.Random(count).shuffle(numbers)  # noqa: S311 a history, not a secret
    return numbers


@pytest.mark.parametrize("leave", [_ascending, _descending, _shuffled])
@pytest.mark.parametrize("come", [_ascending, _descending, _shuffled])
def test_lanes_by_need_agree_with_a_sorted_list_while_blocks_split_and_vanish(
    come: Callable[[int], list[int]], leave: Callable[[int], list[int]]
) -> None:
    count, lanes = 2500, LanesByNeed[str]()
    entries = {number: _entry(number, number * 37 % 101) for number in range(count)}
    for number in come(count):
        lanes.add(*entries[number])
    questions = [-1, 0, 1, 50, 200]
    _check(lanes, list(entries.values()), questions)
    for step, number in enumerate(leave(count)):
        lanes.remove(entries.pop(number)[0])
        if step % 500 == 0 or len(entries) < 3:
            _check(lanes, list(entries.values()), questions)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(5))
def test_lanes_by_need_agree_with_a_sorted_list_in_a_random_history(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 a history, not a secret
    lanes, plain = LanesByNeed[str](), dict[int, Entry]()
    for step in range(8000):
        # More come than leave at first, then all leave.
        if plain and draw.random() < (0.25 if step < 5000 else 0.75):
            number = draw.choice(list(plain))
            lanes.remove(plain.pop(number)[0])
        else:
            number = draw.randrange(100_000)
            if number not in plain:
                plain[number] = _entry(number, draw.randint(0, 1000))
                lanes.add(*plain[number])
        if step % 400 == 0:
            _check(lanes, list(plain.values()), [draw.randint(-1, 1001) for _ in range(20)])
    _check(lanes, list(plain.values()), list(range(-1, 1002, 50)))


@pytest.mark.parametrize("kept", [0, 1, 400, 1500])
def test_keep_removes_all_other_lanes(kept: int) -> None:
    lanes, plain = LanesByNeed[str](), list[Entry]()
    for number in _shuffled(1500):
        entry = _entry(number, number % 97)
        lanes.add(*entry)
        plain.append(entry)
    plain = plain[:kept]
    lanes.keep({lane for _, _, lane in plain})
    _check(lanes, plain, [-1, 0, 5, 96])
    for entry in (_entry(2000, 3), _entry(1, -1)):
        if entry[0] not in {position for position, _, _ in plain}:
            lanes.add(*entry)
            plain.append(entry)
    _check(lanes, plain, [-1, 0, 5, 96])
