"""How few pods a workload gives up."""

import pytest

from admitq.core.assignments import Assignment
from admitq.core.instructions import FitMode
from admitq.core.model import PodSet, PodSetAssignment
from admitq.core.partial_admission import assign_partially, may_shrink
from admitq.core.requests import PodSetDemand, demands, template_requesting


def pod_sets(*of: tuple[int, int | None]) -> tuple[PodSetDemand, ...]:
    return demands(
        tuple(
            PodSet(f"p{index}", count, template_requesting({"cpu": 1}), min_count=least)
            for index, (count, least) in enumerate(of)
        )
    )


def attempt(some: tuple[PodSetDemand, ...]) -> Assignment:
    parts = tuple(PodSetAssignment(each.pod_set.name, (), each.totals, each.count) for each in some)
    return Assignment(parts, (), FitMode.FIT, 0, frozenset(), None, (), ())


def counts(assignment: Assignment | None) -> list[int] | None:
    return None if assignment is None else [part.count for part in assignment.pod_sets]


@pytest.mark.parametrize(
    ("of", "shrinks"),
    [
        ([(10, 4)], True),
        ([(10, None)], False),
        ([(4, 4)], False),
        ([(3, 4)], False),
        ([(2, None), (3, 1)], True),
    ],
)
def test_podsets_that_may_shrink(of: list[tuple[int, int | None]], *, shrinks: bool) -> None:
    assert may_shrink(pod_sets(*of)) is shrinks


@pytest.mark.parametrize(
    ("of", "room", "expected"),
    [
        ([(10, 4)], 7, [7]),
        ([(10, 4)], 4, [4]),
        ([(10, 4)], 3, None),
        ([(10, 4)], 10, [10]),
        ([(10, 4), (5, None)], 12, [7, 5]),
        ([(4, 2), (8, 2)], 9, [3, 5]),
        ([(4, 2), (8, 2)], 8, [3, 5]),
        ([(4, 2), (8, 2)], 4, [2, 2]),
        ([(9, 8), (9, 0)], 13, [9, 4]),
    ],
)
def test_as_many_pods_as_there_is_room_for(
    of: list[tuple[int, int | None]], room: int, expected: list[int] | None
) -> None:
    def fits(assignment: Assignment) -> bool:
        return sum(part.count for part in assignment.pod_sets) <= room

    assert counts(assign_partially(pod_sets(*of), attempt, fits)) == expected


def test_the_smallest_step_is_found_by_halves() -> None:
    tried: list[int] = []

    def suffices(assignment: Assignment) -> bool:
        (part,) = assignment.pod_sets
        tried.append(part.count)
        return part.count <= 7

    found = assign_partially(pod_sets((10, 4)), attempt, suffices)
    assert counts(found) == [7]
    assert tried == [7, 9, 8]


@pytest.mark.parametrize("spare", range(1, 40))
def test_no_step_that_suffices_is_overlooked(spare: int) -> None:
    for room in range(40):
        found = assign_partially(
            pod_sets((40, 40 - spare)),
            attempt,
            lambda assignment, room=room: assignment.pod_sets[0].count <= room,
        )
        assert counts(found) == ([room] if room >= 40 - spare else None)
