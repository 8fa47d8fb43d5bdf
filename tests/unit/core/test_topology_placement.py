"""Placement in a topology: worked examples, and the reference on random trees."""

import random
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


def drawn_world(draw: random.Random) -> dict[Values, dict[str, int]]:
    """Return what is free in the leaves of a small tree of one to three levels."""
    depth = draw.randint(1, 3)
    prefixes: set[Values] = {()}
    if depth > 1:
        prefixes = {tuple(draw.choice("abcd") for _ in range(depth - 1)) for _ in range(draw.randint(1, 5))}
    free: dict[Values, dict[str, int]] = {}
    for prefix in sorted(prefixes):
        for number in range(draw.randint(1, 4)):
            host = "".join((*prefix, str(number)))
            free[(*prefix, host)] = {"cpu": draw.randint(0, 9), "pods": draw.randint(0, 9)}
    return free


def drawn_question(draw: random.Random, free: Free) -> Question:
    """Return a request for pods in such a tree, with slices and a leader or without."""
    last = len(next(iter(free))) - 1
    slice_level = draw.randint(0, last)
    below = range(slice_level + 1, last + 1)
    inner_levels = sorted(draw.sample(below, draw.randint(0, len(below))))
    sizes = [draw.randint(1, 3)]
    for _ in inner_levels:
        sizes.insert(0, sizes[0] * draw.randint(1, 3))
    hosts = sorted(leaf[-1] for leaf in free)
    weighed = draw.sample(hosts, draw.randint(0, min(3, len(hosts))))
    return Question(
        requests={"cpu": draw.randint(1, 3), "pods": 1},
        count=draw.randint(1, 20),
        level=draw.randint(0, slice_level),
        layers=tuple(zip([slice_level, *inner_levels], sizes, strict=True)),
        leader=draw.choice([None, {"cpu": draw.randint(1, 5), "pods": 1}]),
        mode=draw.choice(["required", "preferred", "unconstrained"]),
        least_free=draw.choice([False, True]),
        balanced=draw.choice([False, True]),
        weights={host: draw.randint(1, 2) for host in weighed},
    )


@settings(max_examples=500)
@given(st.randoms(use_true_random=False))
def test_placement_is_that_of_the_reference(draw: random.Random) -> None:
    free = drawn_world(draw)
    question = drawn_question(draw, free)
    assert answer(tree_of(free), question) == Reference(free, question).answer()


@pytest.mark.release
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, 100_000, 10_000))
def test_placement_is_that_of_the_reference_in_many_cases(first: int) -> None:
    for seed in range(first, first + 10_000):
        draw = random.Random(seed)  # noqa: S311 a case, not a secret
        free = drawn_world(draw)
        question = drawn_question(draw, free)
        assert (seed, answer(tree_of(free), question)) == (seed, Reference(free, question).answer())


@settings(max_examples=300)
@given(st.randoms(use_true_random=False))
def test_best_fit_uses_the_fewest_domains_of_the_highest_tried_level(draw: random.Random) -> None:
    free = drawn_world(draw)
    question = replace(drawn_question(draw, free), leader=None, least_free=False, balanced=False, weights={})
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
