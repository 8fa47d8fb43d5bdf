"""The components of a process, and the components that each command runs."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final

from admitq_api.feature_gates import FeatureGates, Gate


class Component(StrEnum):
    """A component of a process. The values are those of ``--components``."""

    WEBHOOK = "webhook"
    """Answers admission reviews. Watches only what reviews need, and needs no lease."""
    CORE = "core"
    """The controllers of Workloads, queues, checks and priority classes. They evict and write statuses."""
    JOBS = "jobs"
    """The job controllers. They create the Workloads of jobs, and start and stop jobs."""
    CYCLE = "cycle"
    """The admission cycles. They reserve quota, preempt, and report why Workloads wait."""
    TOPOLOGY = "topology"
    """The controllers of pods with a topology assignment. They ungate pods, and find failed nodes."""
    VISIBILITY = "visibility"
    """Serves the visibility API. It decides nothing, and has a process of its own."""


LEASED_COMPONENTS: Final = frozenset({Component.CORE, Component.JOBS, Component.CYCLE, Component.TOPOLOGY})
"""The components that act only in the process that holds the lease."""

COMMANDS: Final[Mapping[str, tuple[Component, ...]]] = {
    "manager": (Component.CORE, Component.JOBS, Component.CYCLE, Component.TOPOLOGY),
    "webhook": (Component.WEBHOOK,),
    "visibility": (Component.VISIBILITY,),
    # Without the visibility API: a long list of workloads would delay decisions.
    "all-in-one": tuple(component for component in Component if component is not Component.VISIBILITY),
}
"""The components of each command; ``--components`` selects some of them."""


def select_shadow_components(command: str, flag: str | None) -> tuple[Component, ...]:
    """Return the components that a shadow runs: those that make decisions. It answers no reviews.

    Args:
        command: one of ``COMMANDS``.
        flag: the value of ``--components``; None without the flag.

    Raises:
        ValueError: the command has no component that decides, or ``--components`` is given.
    """
    if not LEASED_COMPONENTS.intersection(COMMANDS[command]):
        raise ValueError(
            f"--shadow: admitq {command} makes no decisions that a shadow could compare: "
            "use admitq manager --shadow"
        )
    if flag is not None:
        raise ValueError("--shadow: cannot be combined with --components: remove --components")
    return tuple(component for component in COMMANDS[command] if component is not Component.WEBHOOK)


def require_feature_gates(components: Collection[Component], gates: FeatureGates) -> None:
    """Check that the features of the components are enabled.

    Raises:
        ValueError: a component has a feature gate that is disabled.
    """
    if Component.VISIBILITY in components and not gates[Gate.VISIBILITY_ON_DEMAND]:
        raise ValueError(f"feature gate {Gate.VISIBILITY_ON_DEMAND} is off: enable it, or stop this process")


def select_components(command: str, flag: str | None) -> tuple[Component, ...]:
    """Return the components that a command runs, in the order of ``Component``.

    Args:
        command: one of ``COMMANDS``.
        flag: the value of ``--components``, comma-separated names; None without the flag.

    Raises:
        ValueError: the list is empty, or names a component that the command does not have.
    """
    offered = COMMANDS[command]
    if flag is None:
        return offered
    known = ", ".join(offered)
    names = [name.strip() for name in flag.split(",")]
    if names == [""]:
        raise ValueError(f"--components: is empty: name one or more of {known}, or remove the flag")
    for name in names:
        if name not in offered:
            elsewhere = f"is not a component of admitq {command}" if name in set(Component) else "is unknown"
            raise ValueError(f"--components: {name!r} {elsewhere}: choose from {known}")
    return tuple(component for component in offered if component in names)
