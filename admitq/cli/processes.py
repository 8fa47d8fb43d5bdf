"""The commands that run a process until it is stopped, and a fast parser for their command lines.

A process must be ready soon after its start, and importing typer takes long. So this module parses plain
command lines itself. All other lines, such as those with errors or ``--help``, are left to typer.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

CONFIGURATION_ERROR: Final = 2
"""Exit code for invalid arguments or configuration. Nothing was started."""

PATIENCE_SECONDS: Final = 10.0
"""The default of ``--shadow-patience``."""

PROCESSES: Final[Mapping[str, str]] = {
    "manager": "Run the controllers and the admission cycles. One process leads, others stand by.",
    "webhook": "Run the admission webhooks.",
    "visibility": "Run the visibility API, which lists pending workloads.",
    "all-in-one": "Run manager and webhooks in one process, for small clusters and for trials.",
}
"""The commands that run a process, with their help texts."""


class LogFormat(StrEnum):
    """How log lines look; ``AUTO`` is ``CONSOLE`` on a terminal, and ``JSON`` elsewhere."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a process. Each is a flag of the same name."""

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
"""The option that each flag sets, and the parser of its value."""

SWITCHES: Final[Mapping[str, str]] = {"--shadow": "shadow"}
"""The option that each flag without a value enables."""


def parse_plain(arguments: Sequence[str]) -> tuple[str, Options] | None:
    """Parse a plain command line: the name of a process, then flags with their values.

    Returns:
        The name of the process and its options; None for every other line, valid or not.
    """
    if not arguments or arguments[0] not in PROCESSES:
        return None
    values: dict[str, Any] = {}
    remaining = iter(arguments[1:])
    for argument in remaining:
        if argument in SWITCHES:
            values[SWITCHES[argument]] = True
            continue
        flag, assigned, value = argument.partition("=")
        if not assigned:
            value = next(remaining, "-")
        if flag not in FLAGS or value.startswith("-"):
            return None
        option, read = FLAGS[flag]
        try:
            values[option] = read(value)
        except ValueError:
            return None
    return arguments[0], Options(**values)


def start_process(component: str, options: Options) -> int:
    """Run a process until SIGTERM or SIGINT, and return its exit code."""
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
        app.require_feature_gates(parts, settings.gates)
    except (ConfigurationError, OSError, ValueError) as error:
        print(f"admitq {component}: {error}", file=sys.stderr)
        return CONFIGURATION_ERROR
    shadow = app.ShadowSettings(options.shadow_patience) if options.shadow else None
    return app.run(component, parts, settings, options.kubeconfig, shadow)


def _spare_imports() -> None:
    """Collect garbage rarely during imports, and disable plugins of pydantic.

    Imported objects live long, and collections would take a tenth of the import time. Plugins of installed
    packages must not take part in parsing the configuration.
    """
    from admitq.process.garbage_collection import reduce_collections

    reduce_collections()
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
