"""All modules log in one style: structlog with a constant event, and fields for everything else."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SETUP = ROOT / "admitq/process/logs.py"
"""The only module that uses the standard library's logging: it sets the logs up."""
MODULES = sorted(
    path
    for package in ("admitq", "api/admitq_api", "webhooks/admitq_webhooks")
    for path in (ROOT / package).rglob("*.py")
    if path != SETUP
)
METHODS = {"debug", "info", "warning", "error", "critical", "exception"}
EVENT = re.compile(r"[a-z0-9][^%{}]*[^%{}.]")
"""Text that begins in lower case, without placeholders and without full stop."""


def violations(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
        if owner == "logging" and node.func.attr == "getLogger":
            yield f"line {node.lineno}: logging.getLogger, use admitq.process.logs.logger"
        if owner not in {"log", "_log", "logger"} or node.func.attr not in METHODS:
            continue
        if len(node.args) != 1 or any(keyword.arg == "extra" for keyword in node.keywords):
            yield f"line {node.lineno}: a log call takes one event, and fields as keywords"
        for event in node.args[:1]:
            if isinstance(event, ast.Name):
                continue
            if not isinstance(event, ast.Constant) or not EVENT.fullmatch(str(event.value)):
                yield f"line {node.lineno}: the event is not a constant in lower case: {ast.unparse(event)}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_follows_log_style(path: Path) -> None:
    assert not list(violations(path.read_text()))


@pytest.mark.parametrize(
    "call",
    [
        'logging.getLogger("name")',
        'log.info("%s failed", name)',
        'log.info("%s failed" % name)',
        'log.info(f"{name} failed")',
        'log.info("Watch failed.")',
        'log.info("watch failed", extra={"name": name})',
    ],
)
def test_log_call_in_other_style_is_a_violation(call: str) -> None:
    assert list(violations(call))


def test_log_call_with_event_and_fields_is_no_violation() -> None:
    assert not list(violations('log.info("watch failed, retrying", resource=name)'))
