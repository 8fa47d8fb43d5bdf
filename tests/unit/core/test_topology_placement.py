"""Placement in a topology: worked examples, and the reference on random trees."""

from dataclasses import replace
from itertools import starmap
from typing import cast

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from admitq.core.amounts import amounts
from admitq.core.model import NodeSelectorTerm, PreferredTerm, SelectorOperator, SelectorRequirement
from admitq.core.topology.capacities import Capacities
from admitq.core.topology.domains import HOST_NAME, DomainTree, Node
from admitq.core.topology.leaf_room import Layer, PodShape
from admitq.core.topology.placement import Placement, PlacementOrder, Shortfall, place
from tests.unit.core.topology_reference import Free, Question, Reference, Values

LEVELS = ("block", "rack", HOST_NAME)


def tree_of(free: dict[Values, dict[str, int]]) -> DomainTree:
    depth = len(next(iter(free)))
    tree = DomainTree(LEVELS[-depth:])
    for values, allocatable in free.items():
        labels = (*zip(tree.levels, values, strict=True), ("host", values[-1]))
        tree.set_node(Node("-".join(values), labels, allocatable=amounts(allocatable)))
    return tree


def answer(tree: DomainTree, question: Question) -> object:
    shape = PodShape(
        amounts(question.requests),
        tuple(Layer(*layer) for layer in question.layers),
        None if question.leader is None else amounts(question.leader),
        preferred_node_affinity=tuple(starmap(prefer, question.weights.items())),
    )
    capacities = Capacities(tree, shape)
    capacities.refresh()
    order = PlacementOrder(
        question.count,
        question.level,
        may_widen=question.mode == "preferred",
        may_spread=question.mode != "required",
        least_free_first=question.least_free,
        balanced=question.balanced and question.mode == "preferred",
    )
    return readable(place(order, tree, capacities))


def prefer(host: str, weight: int) -> PreferredTerm:
    is_host = SelectorRequirement("host", SelectorOperator.IN, (host,))
    return PreferredTerm(weight, NodeSelectorTerm((is_host,)))


def readable(found: Placement | Shortfall) -> object:
    if isinstance(found, Shortfall):
        return tuple(found)
    leader = None if found.leader is None else found.leader.values
    return {leaf.values: count for leaf, count in found.leaves}, leader


names = st.sampled_from(["a", "b", "c", "d"])


@st.composite
def worlds(draw: st.DrawFn) -> dict[Values, dict[str, int]]:
    depth = draw(st.integers(1, 3))
    prefixes = draw(st.sets(st.tuples(*[names] * (depth - 1)), min_size=1, max_size=5)) if depth > 1 else {()}
    free: dict[Values, dict[str, int]] = {}
    for prefix in sorted(prefixes):
        for number in range(draw(st.integers(1, 4))):
            host = "".join((*prefix, str(number)))
            free[(*prefix, host)] = {"cpu": draw(st.integers(0, 9)), "pods": draw(st.integers(0, 9))}
    return free


leaders = st.none() | st.fixed_dictionaries({"cpu": st.integers(1, 5), "pods": st.just(1)})


@st.composite
def questions(draw: st.DrawFn, free: Free) -> Question:
    hosts = sorted(leaf[-1] for leaf in free)
    last = len(next(iter(free))) - 1
    slice_level = draw(st.integers(0, last))
    level = draw(st.integers(0, slice_level))
    inner_levels = (
        sorted(draw(st.sets(st.integers(slice_level + 1, last), max_size=2))) if slice_level < last else []
    )
    sizes = [draw(st.integers(1, 3))]
    for _ in inner_levels:
        sizes.insert(0, sizes[0] * draw(st.integers(1, 3)))
    return Question(
        requests={"cpu": draw(st.integers(1, 3)), "pods": 1},
        count=draw(st.integers(1, 20)),
        level=level,
        layers=tuple(zip([slice_level, *inner_levels], sizes, strict=True)),
        leader=draw(leaders),
        mode=draw(st.sampled_from(["required", "preferred", "unconstrained"])),
        least_free=draw(st.booleans()),
        balanced=draw(st.booleans()),
        weights=draw(st.dictionaries(st.sampled_from(hosts), st.integers(1, 2), max_size=3)),
    )


@settings(max_examples=500)
@given(st.data())
def test_placement_is_that_of_the_reference(data: st.DataObject) -> None:
    free = data.draw(worlds())
    question = data.draw(questions(free))
    assert answer(tree_of(free), question) == Reference(free, question).answer()


@pytest.mark.release
@pytest.mark.timeout(3600)
@settings(max_examples=100_000)
@given(st.data())
def test_placement_is_that_of_the_reference_in_many_cases(data: st.DataObject) -> None:
    free = data.draw(worlds())
    question = data.draw(questions(free))
    assert answer(tree_of(free), question) == Reference(free, question).answer()


@settings(max_examples=300)
@given(st.data())
def test_best_fit_uses_the_fewest_domains_of_the_highest_tried_level(data: st.DataObject) -> None:
    free = data.draw(worlds())
    question = replace(data.draw(questions(free)), leader=None, least_free=False, balanced=False, weights={})
    found = answer(tree_of(free), question)
    assume(isinstance(found, tuple) and isinstance(found[0], dict))
    assert isinstance(found, tuple)
    leaves = cast("dict[Values, int]", found[0])
    level = 0 if question.mode == "preferred" else question.level
    used = {leaf[: level + 1] for leaf in leaves}
    assert len(used) == fewest_domains(Reference(free, question), level)


def fewest_domains(reference: Reference, level: int) -> int:
    """The number of domains of a level that hold all slices, the largest first."""
    need = -(-reference.q.count // reference.q.layers[0][1])
    sizes = sorted((reference.slices(domain) for domain in reference.domains(level)), reverse=True)
    return next(number for number in range(1, len(sizes) + 1) if sum(sizes[:number]) >= need)


# --- worked numbers (semantics, Appendix D) -------------------------------------------------------------

HOSTS = {("b", "r", "h1"): 4, ("b", "r", "h2"): 2, ("b", "r", "h3"): 3}


@pytest.mark.parametrize(
    ("mode", "level", "count", "found"),
    [
        ("unconstrained", 2, 3, {"h3": 3}),
        ("unconstrained", 2, 5, {"h2": 2, "h3": 3}),
        ("required", 1, 5, {"h1": 4, "h2": 1}),
        ("preferred", 1, 5, {"h1": 4, "h2": 1}),
        ("required", 2, 4, {"h1": 4}),
        ("required", 2, 5, (4, 5)),
    ],
)
def test_worked_numbers(mode: str, level: int, count: int, found: object) -> None:
    tree = tree_of({values: {"pods": pods} for values, pods in HOSTS.items()})
    question = Question({"pods": 1}, count, level, ((2, 1),), mode=mode, least_free=mode == "unconstrained")
    placed = answer(tree, question)
    if isinstance(found, dict):
        found = ({("b", "r", host): pods for host, pods in found.items()}, None)
    assert placed == found


# --- leaders, slices and several levels -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("rooms", "question", "found"),
    [
        (
            {("a", "a1"): 3, ("a", "a2"): 3, ("b", "b1"): 3},
            Question({"pods": 1}, 5, 1, ((1, 1),), None, "preferred"),
            ({("a", "a1"): 3, ("a", "a2"): 2}, None),
        ),
        (
            {("a", "a1"): 1, ("a", "a2"): 4},
            Question({"pods": 1}, 4, 0, ((0, 2),), None, "required"),
            ({("a", "a2"): 4}, None),
        ),
        (
            {("a", "a1"): 9, ("a", "a2"): 3},
            Question({"pods": 1}, 2, 0, ((1, 1),), {"pods": 1}, "required"),
            ({("a", "a2"): 2}, ("a", "a2")),
        ),
        (
            {("a", "a1"): 3, ("b", "b1"): 3, ("c", "c1"): 1},
            Question({"pods": 1}, 5, 0, ((1, 1),), {"pods": 1}, "preferred"),
            ({("a", "a1"): 2, ("b", "b1"): 3}, ("a", "a1")),
        ),
        (
            {("a", "a1"): 3, ("b", "b1"): 3},
            Question({"pods": 1}, 6, 0, ((1, 1),), {"pods": 1}, "preferred"),
            (5, 6),
        ),
        (
            {("a", "a1"): 3, ("b", "b1"): 3},
            Question({"pods": 1}, 1, 0, ((1, 1),), {"pods": 9}, "preferred"),
            (0, 1),
        ),
        (
            {("a", "a1"): 3, ("b", "b1"): 2},
            Question({"pods": 1}, 4, 0, ((1, 1),), {"pods": 1}, "unconstrained", least_free=True),
            ({("a", "a1"): 3, ("b", "b1"): 1}, ("b", "b1")),
        ),
        (
            {("a", "a1"): 1, ("a", "a2"): 4},
            Question({"pods": 1}, 4, 0, ((0, 4), (1, 2)), None, "required"),
            ({("a", "a2"): 4}, None),
        ),
        (
            {("a", "a1"): 5, ("a", "a2"): 3},
            Question({"pods": 1}, 5, 0, ((0, 6), (1, 2)), None, "required"),
            ({("a", "a1"): 4, ("a", "a2"): 1}, None),
        ),
        (
            {("a", "a1"): 1, ("a", "a2"): 1, ("b", "b1"): 4},
            Question({"pods": 1}, 6, 0, ((1, 1),), None, "preferred"),
            ({("a", "a1"): 1, ("a", "a2"): 1, ("b", "b1"): 4}, None),
        ),
        (
            {("a", "a1"): 1, ("a", "a2"): 1},
            Question({"pods": 1}, 1, 0, ((1, 1),), {"pods": 1}, "required"),
            ({("a", "a2"): 1}, ("a", "a1")),
        ),
    ],
    ids=[
        "one domain of a wider level",
        "pods of a slice",
        "a leader in the smallest domain that suffices",
        "the leader needs a place beside the others",
        "the leader takes the place of one",
        "no domain holds the leader",
        "a leader in the smallest domain",
        "smaller slices of a slice",
        "the last slice is not complete",
        "all domains of both racks",
        "the leader alone on a host",
    ],
)
def test_places(rooms: dict[Values, int], question: Question, found: object) -> None:
    free = {values: {"pods": pods} for values, pods in rooms.items()}
    assert answer(tree_of(free), question) == found
    assert Reference(free, question).answer() == found
