"""Histories: made from a seed, played, and made smaller when they break a law."""

import random
import traceback
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.laws.drawing import Draw
from tests.laws.operations import OPERATIONS, OPERATIONS_ON_SLICES, begin
from tests.laws.player import Player


class Step(NamedTuple):
    """An operation by name, and the seed that it draws from."""

    operation: str
    seed: int


class History(NamedTuple):
    """A world by its seed, and what happens in it."""

    world: int
    steps: tuple[Step, ...]


ELASTIC = 10**9
"""From this seed on, histories are of worlds in which jobs are elastic."""


def generate(seed: int, length: int) -> History:
    """The history of a seed."""
    draw = random.Random(seed)  # noqa: S311 a history, not a secret
    operations = OPERATIONS if seed < ELASTIC else OPERATIONS_ON_SLICES
    names = list(operations)
    weights = [weight for _, weight in operations.values()]
    chosen = draw.choices(names, weights, k=length)
    return History(seed, tuple(Step(name, draw.getrandbits(32)) for name in chosen))


def play(history: History) -> Player:
    """Play a history; what breaks a law is raised."""
    player = start(history.world)
    for step in history.steps:
        take(player, step)
    player.core.validate()
    return player


def start(world: int) -> Player:
    """A world, and who plays in it."""
    draw = Draw(world)
    draw.crowded = draw.chance(0.6)
    player = Player(draw.settings(), crowded=draw.crowded, watches_statuses=draw.chance(0.3))
    begin(player, draw)
    return player


def take(player: Player, step: Step) -> None:
    """One step; what breaks a law is raised."""
    operation, _ = OPERATIONS_ON_SLICES[step.operation]
    draw = Draw(step.seed)
    draw.crowded = player.crowded
    operation(player, draw)
    if step.seed % 2 == 0:
        player.core.validate()
    if step.seed % 3 == 0:
        player.statuses.check_books()


def failure(history: History) -> str | None:
    """How a history breaks a law: the kind of error and the first line that tells; None if it does not."""
    try:
        play(history)
    except Exception as error:  # noqa: BLE001 whatever goes wrong in the core is what is looked for
        text = str(error).splitlines()
        return f"{type(error).__name__}: {text[0] if text else ''}"
    return None


def law_of(told: str | None) -> str | None:
    """What was broken, without the names of the objects that broke it."""
    return None if told is None else " ".join(told.split()[:4])


def shrunk(history: History, fails: Callable[[History], str | None] = failure, tries: int = 400) -> History:
    """A shorter history that breaks the same law, found by leaving out ever smaller parts."""
    broken = law_of(fails(history))
    steps: Sequence[Step] = history.steps
    size = max(1, len(steps) // 2)
    while size and tries > 0:
        index = 0
        while index < len(steps) and tries > 0:
            fewer = (*steps[:index], *steps[index + size :])
            tries -= 1
            if law_of(fails(History(history.world, fewer))) == broken:
                steps = fewer
            else:
                index += size
        size //= 2
    return History(history.world, tuple(steps))


def report(seed: int, history: History) -> str:
    """What is to be told of a history that breaks a law."""
    told = failure(history)
    shorter = shrunk(history)
    lines = [f"seed {seed} ({len(history.steps)} steps) breaks a law: {told}", "", "shortened to:"]
    lines += [f"  {step.operation} {step.seed}" for step in shorter.steps]
    lines += ["", "which breaks it so:"]
    try:
        play(shorter)
    except Exception:  # noqa: BLE001 whatever goes wrong is what is told
        lines += traceback.format_exc().splitlines()
    lines += ["", f"replay: play({shorter!r})"]
    return "\n".join(lines)
