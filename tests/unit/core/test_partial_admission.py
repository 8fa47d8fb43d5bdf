"""Partial admission assigns the largest number of pods that fits."""

import pytest

from admitq.core.assignments import Assignment
from admitq.core.instructions import FitMode
from admitq.core.model import PodSet, PodSetAssignment
from admitq.core.partial_admission import assign_partially, may_shrink
from admitq.core.requests import PodSetDemand, demands, template_requesting


def pod_sets(*counts: tuple[int, int | None]) -> tuple[PodSetDemand, ...]:
    return demands(
        tuple(
            PodSet(f"p{index}", count, template_requesting({"cpu": 1}), min_count=min_count)
            for index, (count, min_count) in enumerate(counts)
        )
    )


def attempt(pod_set_demands: tuple[PodSetDemand, ...]) -> Assignment:
    parts = tuple(
        PodSetAssignment(each.pod_set.name, (), each.totals, each.count) for each in pod_set_demands
    )
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
def test_podsets_may_shrink_only_above_their_min_count(
    of: list[tuple[int, int | None]], *, shrinks: bool
) -> None:
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
def test_as_many_pods_are_assigned_as_fit(
    of: list[tuple[int, int | None]], room: int, expected: list[int] | None
) -> None:
    def fits(assignment: Assignment) -> bool:
        return sum(part.count for part in assignment.pod_sets) <= room

    assert counts(assign_partially(pod_sets(*of), attempt, fits)) == expected


def test_largest_count_is_found_by_binary_search() -> None:
    tried: list[int] = []

    def fits(assignment: Assignment) -> bool:
        (part,) = assignment.pod_sets
        tried.append(part.count)
        return part.count <= 7

    assignment = assign_partially(pod_sets((10, 4)), attempt, fits)
    assert counts(assignment) == [7]
    assert tried == [7, 9, 8]


@pytest.mark.parametrize("spare", range(1, 40))
def test_largest_count_that_fits_is_always_found(spare: int) -> None:
    for room in range(40):
        assignment = assign_partially(
            pod_sets((40, 40 - spare)),
            attempt,
            lambda assignment, room=room: assignment.pod_sets[0].count <= room,
        )
        assert counts(assignment) == ([room] if room >= 40 - spare else None)
