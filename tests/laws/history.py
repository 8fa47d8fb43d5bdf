"""Histories: generated from a seed, played, and shrunk when they break a law."""

import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tests.laws.drawing import Draw
from tests.laws.explanations import check_changes, check_explanation
from tests.laws.node_operations import OPERATIONS_WITH_NODES, add_nodes
from tests.laws.operations import OPERATIONS, OPERATIONS_ON_SLICES, Operation, create_objects
from tests.laws.placed_player import PlacedPlayer
from tests.laws.player import Player
from tests.laws.positions import check_positions
from tests.laws.what_if import check_what_if


class Step(NamedTuple):
    """An operation by name, and the seed from which it draws."""

    operation: str
    seed: int


class History(NamedTuple):
    """The seed of the first objects, and the steps that follow."""

    world: int
    steps: tuple[Step, ...]


ELASTIC = 10**9
"""From this seed on, histories have elastic jobs."""

PLACED = 2 * 10**9
"""From this seed on, histories have nodes, and pods are placed. They have no elastic jobs."""

PLACED_ELASTIC = 3 * 10**9
"""From this seed on, they have elastic jobs, too."""

_EVERY_OPERATION = {**OPERATIONS_ON_SLICES, **OPERATIONS_WITH_NODES}


def _operations_of(seed: int) -> Mapping[str, tuple[Operation, int]]:
    if seed >= PLACED_ELASTIC:
        return {**OPERATIONS_ON_SLICES, **OPERATIONS_WITH_NODES}
    if seed >= PLACED:
        return OPERATIONS_WITH_NODES
    return OPERATIONS_ON_SLICES if seed >= ELASTIC else OPERATIONS


def generate(seed: int, length: int) -> History:
    """Generate the history of a seed."""
    draw = random.Random(seed)  # noqa: S311 a history, not a secret
    operations = _operations_of(seed)
    names = list(operations)
    weights = [weight for _, weight in operations.values()]
    chosen = draw.choices(names, weights, k=length)
    return History(seed, tuple(Step(name, draw.getrandbits(32)) for name in chosen))


def play(history: History) -> Player:
    """Play a history.

    Raises:
        LawBroken: the core breaks a law.
    """
    player = create_player(history.world)
    for step in history.steps:
        apply_step(player, step)
    player.core.validate()
    return player


def create_player(world: int) -> Player:
    """Create the player of a history, with the first objects."""
    draw = Draw(world)
    draw.crowded = draw.chance(0.6)
    if world >= PLACED:
        return _create_placed_player(draw, elastic=world >= PLACED_ELASTIC)
    player = Player(draw.settings(), crowded=draw.crowded, watches_statuses=draw.chance(0.3))
    create_objects(player, draw)
    return player


def _create_placed_player(draw: Draw, *, elastic: bool) -> PlacedPlayer:
    draw.placed, draw.peaceful = True, draw.chance(0.5)
    settings = draw.settings()
    if elastic and settings.placement is not None:
        placement = replace(settings.placement, keeps_pods=draw.often(True, False))
        settings = replace(settings, placement=placement)
    player = PlacedPlayer(
        settings, crowded=draw.crowded, watches_statuses=draw.chance(0.3), peaceful=draw.peaceful
    )
    create_objects(player, draw)
    add_nodes(player, draw)
    return player


def apply_step(player: Player, step: Step) -> None:
    """Apply one step.

    Raises:
        LawBroken: the core breaks a law.
    """
    operation, _ = _EVERY_OPERATION[step.operation]
    draw = Draw(step.seed)
    draw.crowded = player.crowded
    if isinstance(player, PlacedPlayer):
        draw.placed, draw.peaceful = True, player.peaceful
    operation(player, draw)
    if step.seed % 2 == 0:
        player.core.validate()
    if step.seed % 3 == 0:
        player.statuses.check_statuses()
    if step.seed % 5 == 0:
        check_positions(player)
    if draw.placed:
        return
    if step.seed % 7 == 0:
        check_explanation(player, draw)
    if step.seed % 31 == 0:
        check_changes(player, draw)
    if step.seed % 37 == 0:
        check_what_if(player, draw)


def find_failure(history: History) -> str | None:
    """Play a history; return the type of the error and its first line, or None if it passes."""
    try:
        play(history)
    except Exception as error:  # noqa: BLE001 whatever goes wrong in the core is what is looked for
        text = str(error).splitlines()
        return f"{type(error).__name__}: {text[0] if text else ''}"
    return None


def broken_law(failure: str | None) -> str | None:
    """Return the law that a failure names, without the objects that broke it."""
    return None if failure is None else " ".join(failure.split()[:4])


def shrink(
    history: History, fails: Callable[[History], str | None] = find_failure, tries: int = 400
) -> History:
    """Return a shorter history that breaks the same law. It leaves out ever smaller parts."""
    broken = broken_law(fails(history))
    steps: Sequence[Step] = history.steps
    size = max(1, len(steps) // 2)
    while size and tries > 0:
        index = 0
        while index < len(steps) and tries > 0:
            fewer = (*steps[:index], *steps[index + size :])
            tries -= 1
            if broken_law(fails(History(history.world, fewer))) == broken:
                steps = fewer
            else:
                index += size
        size //= 2
    return History(history.world, tuple(steps))


def report(seed: int, history: History) -> str:
    """Describe a failing history: the failure, the shortened history, its traceback, how to replay it."""
    failure = find_failure(history)
    shorter = shrink(history)
    lines = [f"seed {seed} ({len(history.steps)} steps) breaks a law: {failure}", "", "shortened to:"]
    lines += [f"  {step.operation} {step.seed}" for step in shorter.steps]
    lines += ["", "which fails with:"]
    try:
        play(shorter)
    except Exception:  # noqa: BLE001 any error is what the report is about
        lines += traceback.format_exc().splitlines()
    lines += ["", f"replay: play({shorter!r})"]
    return "\n".join(lines)
