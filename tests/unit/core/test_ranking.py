"""The next node with a sufficient bound, as a list finds it, but without a look at all nodes."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from admitq.core.cohorts import Node
from admitq.core.preemption.ranking import Ranking

MOST = 9


class Ranked:
    """A ranking with the greatest number as bound, and the numbers of its nodes by place."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[int], int] = {}
        self.nodes: dict[tuple[int], Node] = {}
        self.asked: list[tuple[int]] = []
        self.ranking: Ranking[tuple[int], int] = Ranking(self._find, max)

    def _find(self, node: Node) -> int:
        key = (int(node.name),)
        self.asked.append(key)
        return self.numbers[key]

    def put(self, place: int, number: int, most: int = MOST) -> None:
        key = (place,)
        self.numbers[key] = number
        self.nodes[key] = Node(str(place), is_cohort=False)
        self.ranking.put(key, self.nodes[key], most)

    def remove(self, place: int) -> None:
        del self.numbers[place,], self.nodes[place,]
        self.ranking.remove((place,))

    def next(self, since: int, least: int, left_out: Node | None = None) -> tuple[int] | None:
        return self.ranking.next((since,), lambda number: number >= least, left_out)


@given(st.randoms(use_true_random=False))
def test_ranking_finds_what_a_list_finds(chance: Random) -> None:
    ranked = Ranked()
    for _ in range(60):
        place = chance.randrange(20)
        if (place,) not in ranked.numbers:
            number = chance.randrange(MOST + 1)
            ranked.put(place, number, chance.randrange(number, MOST + 1))
        elif chance.random() < 0.3:
            ranked.remove(place)
        since, least = chance.randrange(20), chance.randrange(MOST + 1)
        left_out = ranked.nodes.get((chance.randrange(20),))
        expected = min(
            (
                key
                for key, number in ranked.numbers.items()
                if key >= (since,) and number >= least and ranked.nodes[key] is not left_out
            ),
            default=None,
        )
        assert ranked.next(since, least, left_out) == expected


def test_bound_is_found_once_and_only_of_nodes_that_may_be_the_next() -> None:
    ranked = Ranked()
    for place, most in ((1, MOST), (2, MOST), (3, 4), (4, MOST), (5, MOST)):
        ranked.put(place, 5 if place == 4 else 3, most)
    assert ranked.next(2, 5, left_out=ranked.nodes[2,]) == (4,)
    assert ranked.asked == [(4,)]
    assert ranked.next(1, 5) == (4,)
    assert ranked.next(1, 5) == (4,)
    assert ranked.asked == [(4,), (1,), (2,)]


def test_ranking_with_many_nodes_looks_at_few_of_them() -> None:
    ranked = Ranked()
    for place in range(1000):
        ranked.put(place, 5 if place == 900 else 3)
    assert ranked.next(0, 4) == (900,)
    looks: list[int] = []

    def is_sufficient(number: int) -> bool:
        looks.append(number)
        return number >= 4

    assert ranked.ranking.next((0,), is_sufficient) == (900,)
    assert len(looks) < 100
    ranked.remove(900)
    assert ranked.next(0, 4) is None
    looks.clear()
    assert ranked.ranking.next((0,), is_sufficient) is None
    assert len(looks) == 1
