"""The commands that run until they are told to stop, and how one of them begins.

A process is to be ready soon after its start, and what explains command lines takes a while to load. So lines
that need no explaining are read here, in their plainest form; all others are left to it.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

CONFIGURATION_ERROR: Final = 2
"""Exit code when what the user gave cannot be used; nothing was started."""

PATIENCE_SECONDS: Final = 10.0
"""How long a shadow waits for the manager in charge, unless it is told otherwise."""

PROCESSES: Final[Mapping[str, str]] = {
    "manager": "Run the controllers and the admission cycles (one leads, others stand by).",
    "webhook": "Run the admission webhooks.",
    "all-in-one": "Run manager and webhooks in one process, for small clusters and for trying out.",
}
"""The commands that run until they are told to stop, and what each does."""


class LogFormat(StrEnum):
    """How log lines look; ``AUTO`` is ``CONSOLE`` on a terminal, and ``JSON`` elsewhere."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a process is started with, each a flag of the same name."""

    config: Path | None = None
    kubeconfig: Path | None = None
    components: str | None = None
    feature_gates: str = ""
    shadow: bool = False
    shadow_patience: float = PATIENCE_SECONDS
    log_level: str = "info"
    log_format: LogFormat = LogFormat.AUTO


FLAGS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "--config": ("config", Path),
    "--kubeconfig": ("kubeconfig", Path),
    "--components": ("components", str),
    "--feature-gates": ("feature_gates", str),
    "--shadow-patience": ("shadow_patience", float),
    "--log-level": ("log_level", str),
    "--log-format": ("log_format", LogFormat),
}
"""The option that each flag sets, and what makes its value from text."""

SWITCHES: Final[Mapping[str, str]] = {"--shadow": "shadow"}
"""The option that each flag without a value switches on."""


def parse_plain(arguments: Sequence[str]) -> tuple[str, Options] | None:
    """Read a command line in its plainest form: a process, and flags with a value each, if they take one.

    Returns:
        Which process, and its options; None for every other line, right or wrong.
    """
    if not arguments or arguments[0] not in PROCESSES:
        return None
    given: dict[str, Any] = {}
    rest = iter(arguments[1:])
    for argument in rest:
        if argument in SWITCHES:
            given[SWITCHES[argument]] = True
            continue
        flag, assigned, value = argument.partition("=")
        if not assigned:
            value = next(rest, "-")
        if flag not in FLAGS or value.startswith("-"):
            return None
        option, read = FLAGS[flag]
        try:
            given[option] = read(value)
        except ValueError:
            return None
    return arguments[0], Options(**given)


def start_process(component: str, options: Options) -> int:
    """Run a process until it is told to stop, and return its exit code."""
    _spare_imports()
    from admitq import app
    from admitq.process import logs
    from admitq_api.configuration import ConfigurationError

    try:
        logs.configure(level=options.log_level, output=options.log_format.value, component=component)
        parts = (app.select_shadow_components if options.shadow else app.select_components)(
            component, options.components
        )
        settings = app.load_settings(options.config, options.feature_gates)
    except (ConfigurationError, OSError, ValueError) as error:
        print(f"admitq {component}: {error}", file=sys.stderr)
        return CONFIGURATION_ERROR
    shadow = app.ShadowSettings(options.shadow_patience) if options.shadow else None
    return app.run(component, parts, settings, options.kubeconfig, shadow)


def _spare_imports() -> None:
    """Look for garbage rarely: what imports make lives on, and going through it is a tenth of their time.

    Nor are plugins looked for: nothing that happens to be installed takes part in reading the configuration.
    """
    from admitq.process.garbage_collection import reduce_collections

    reduce_collections()
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
