"""The parts of a process, and which of them a command runs."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Component(StrEnum):
    """A part of a process; the values are what ``--components`` takes."""

    WEBHOOK = "webhook"
    """Answers admission reviews. Reads only what these look at, and needs no lease."""
    CORE = "core"
    """The controllers of Workloads, queues, checks and priority classes: evictions and every status."""
    JOBS = "jobs"
    """The controllers of jobs: they create the Workloads of jobs, and start and stop jobs."""
    CYCLE = "cycle"
    """The admission cycles: they reserve quota, preempt, and report why Workloads wait."""
    TOPOLOGY = "topology"
    """Topology-aware placement. Accepted so that command lines last; there is nothing in it so far."""


LEASED_COMPONENTS: Final = frozenset({Component.CORE, Component.JOBS, Component.CYCLE})
"""The parts of which one process acts at a time, the one that holds the lease."""

COMMANDS: Final[Mapping[str, tuple[Component, ...]]] = {
    "manager": (Component.CORE, Component.JOBS, Component.CYCLE, Component.TOPOLOGY),
    "webhook": (Component.WEBHOOK,),
    "all-in-one": tuple(Component),
}
"""What each command runs, unless ``--components`` chooses from it."""


def select_shadow_components(command: str, flag: str | None) -> tuple[Component, ...]:
    """The parts of a command that run in a shadow: those that decide. Reviews are left to who is in charge.

    Args:
        command: one of ``COMMANDS``.
        flag: the value of ``--components``; None where it is not given.

    Raises:
        ValueError: the command decides nothing, or only a part of it is to run.
    """
    if not LEASED_COMPONENTS.intersection(COMMANDS[command]):
        raise ValueError(
            f"--shadow: admitq {command} answers reviews, which is left to the manager in charge: "
            "use admitq manager --shadow"
        )
    if flag is not None:
        raise ValueError("--shadow: compares whole decisions: leave --components out")
    return tuple(one for one in COMMANDS[command] if one is not Component.WEBHOOK)


def select_components(command: str, flag: str | None) -> tuple[Component, ...]:
    """The parts that a command is to run, in the order of ``Component``.

    Args:
        command: one of ``COMMANDS``.
        flag: the value of ``--components``, names with commas between them; None where it is not given.

    Raises:
        ValueError: the list is empty or names a part that the command does not have.
    """
    offered = COMMANDS[command]
    if flag is None:
        return offered
    known = ", ".join(offered)
    names = [name.strip() for name in flag.split(",")]
    if names == [""]:
        raise ValueError(f"--components: is empty: name one or more of {known}, or leave it out")
    for name in names:
        if name not in offered:
            elsewhere = f"is no part of admitq {command}" if name in set(Component) else "is unknown"
            raise ValueError(f"--components: {name!r} {elsewhere}: choose from {known}")
    return tuple(component for component in offered if component in names)
