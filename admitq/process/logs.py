"""Structured logs: JSON lines for machines, readable lines for a terminal, and never a secret.

Every module of the product logs through `logger`: a constant event of a few words, and fields for the rest.
Until a command calls `configure`, events go to the standard library's logging, each as one line of text.
"""

import logging
import os
import sys
from collections.abc import MutableMapping
from types import ModuleType
from typing import Any, Final, Literal, cast

import orjson

_IS_RICH_NOT_LOADED = "rich" not in sys.modules
if _IS_RICH_NOT_LOADED:
    # structlog imports rich where it is installed, and rich imports pygments, only to colour tracebacks. Both
    # take a tenth of the time that all other imports of a process take, and processes must start quickly.
    sys.modules["rich"] = cast("ModuleType", None)
import structlog  # noqa: E402

if _IS_RICH_NOT_LOADED:
    del sys.modules["rich"]

Format = Literal["auto", "json", "console"]

HIDDEN: Final = "[hidden]"
_SECRET_WORDS: Final = ("token", "password", "secret", "authorization", "private_key", "kubeconfig")


def hide_secrets(_: Any, __: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace the value of every field with the name of a secret."""
    for key in entry:
        if any(word in key.lower() for word in _SECRET_WORDS):
            entry[key] = HIDDEN
    return entry


def _drop_program_fields(_: Any, __: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Drop the fields that only programs need to find the source of a line."""
    entry.pop("logger", None)
    entry.pop("component", None)
    return entry


def _serialise(entry: Any, **_: Any) -> str:
    return orjson.dumps(entry, default=repr).decode()


def _standard_record(
    _: Any, __: str, entry: MutableMapping[str, Any]
) -> tuple[tuple[str], MutableMapping[str, Any]]:
    """Return the arguments for a logger of the standard library: event and fields as one text."""
    options = {key: entry.pop(key) for key in ("exc_info", "stack_info") if key in entry}
    event = str(entry.pop("event", ""))
    fields = [f"{key}={value!r}" for key, value in entry.items()]
    return (" ".join([event, *fields]),), options


class _StandardErrorHandler(logging.Handler):
    """Writes to the current ``sys.stderr``, which tests replace."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 - a log line that cannot be written must not fail the caller
            self.handleError(record)


def _configure_defaults() -> None:
    """Send events to the standard library, which writes warnings and errors to standard error.

    The default of structlog is standard output, where commands print their results.
    """
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, hide_secrets, _standard_record],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


if not structlog.is_configured():
    _configure_defaults()


def configure(*, level: str = "info", output: Format = "auto", component: str) -> None:
    """Write all log lines, also those of the standard library's loggers, to standard error in one format.

    Args:
        level: the least severe level that is written: debug, info, warning or error.
        output: "json" for one JSON object a line; "console" for readable lines of time, level, event and
            fields; "auto" for "console" if standard error is a terminal, and "json" otherwise.
        component: the process or command that writes: field ``component`` of JSON lines.

    Raises:
        ValueError: `level` is not a level.
    """
    threshold = logging.getLevelNamesMapping().get(level.upper())
    if threshold is None:
        raise ValueError(f"log level {level!r} is not one of debug, info, warning, error")

    def add_component(_: Any, __: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        entry["component"] = component
        return entry

    is_terminal = sys.stderr.isatty()
    is_console = output == "console" or (output == "auto" and is_terminal)
    time_format = "%Y-%m-%dT%H:%M:%SZ" if is_console else "iso"
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        add_component,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt=time_format, utc=True, key="time"),
        hide_secrets,
    ]
    final: list[structlog.types.Processor]
    if is_console:
        renderer = structlog.dev.ConsoleRenderer(
            colors=is_terminal and not os.environ.get("NO_COLOR"),
            timestamp_key="time",
            # Where rich is loaded, structlog would print the local variables of each frame, secrets included.
            exception_formatter=structlog.dev.plain_traceback,
        )
        final = [_drop_program_fields, renderer]
    else:
        final = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_serialise)]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    handler = _StandardErrorHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *final],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)
    # At debug, these libraries would log the headers of requests, tokens included.
    for library in ("aiohttp", "asyncio"):
        logging.getLogger(library).setLevel(max(threshold, logging.INFO))


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return the structured logger of a module."""
    return structlog.stdlib.get_logger(name)
