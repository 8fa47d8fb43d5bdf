"""Structured logs: JSON lines for machines, colours for a terminal, and never a secret."""

import logging
import sys
from collections.abc import MutableMapping
from types import ModuleType
from typing import Any, Final, Literal, cast

import orjson

_HAS_NO_RICH = "rich" not in sys.modules
if _HAS_NO_RICH:
    # structlog loads rich where it finds it, and that loads pygments, all to colour tracebacks for people. It
    # takes as long as a tenth of everything else that a process loads, and processes have to start quickly.
    sys.modules["rich"] = cast("ModuleType", None)
import structlog  # noqa: E402

if _HAS_NO_RICH:
    del sys.modules["rich"]

Format = Literal["json", "console"]

HIDDEN: Final = "[hidden]"
_SECRET_WORDS: Final = ("token", "password", "secret", "authorization", "private_key", "kubeconfig")


def hide_secrets(_: Any, __: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace the value of every key that names a secret."""
    for key in entry:
        if any(word in key.lower() for word in _SECRET_WORDS):
            entry[key] = HIDDEN
    return entry


def _serialise(entry: Any, **_: Any) -> str:
    return orjson.dumps(entry, default=repr).decode()


def configure(*, level: str = "info", output: Format = "json", component: str) -> None:
    """Send every log line, the standard library's too, to standard error in one format.

    Args:
        level: the least severe level that is written: debug, info, warning or error.
        output: "json" for one object a line, "console" for people.
        component: which process writes, put on every line.

    Raises:
        ValueError: the level has another name.
    """
    threshold = logging.getLevelNamesMapping().get(level.upper())
    if threshold is None:
        raise ValueError(f"log level {level!r} is not one of debug, info, warning, error")
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        hide_secrets,
    ]
    final: list[structlog.types.Processor]
    if output == "json":
        final = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_serialise)]
    else:
        final = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *final],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)
    # Library chatter at debug would repeat request headers, tokens included.
    for noisy in ("aiohttp", "asyncio"):
        logging.getLogger(noisy).setLevel(max(threshold, logging.INFO))
    structlog.contextvars.bind_contextvars(component=component)


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return the structured logger of a module."""
    return structlog.stdlib.get_logger(name)
