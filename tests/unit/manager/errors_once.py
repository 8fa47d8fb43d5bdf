"""Functions that fail once, and the counts of unexpected errors."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from admitq.core.model import ObjectKey
from admitq.metrics.registry import Metrics
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import kinds_of
from admitq_api.labels import names_for
from localcluster.waiting import eventually

OUR_KINDS = kinds_of(names_for())
KEY, OTHER = ObjectKey("team", "w"), ObjectKey("team", "other")
REFUSED = ApiError(422, "Invalid", "refused")


class FailsOnce:
    """Raises in the first call. Each later call calls a function."""

    def __init__(
        self, function: Callable[..., Any] = lambda *_, **__: None, error: Exception | None = None
    ) -> None:
        self.function = function
        self.error = error or RuntimeError("bug")
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls.append(arguments)
        if len(self.calls) == 1:
            raise self.error
        return self.function(*arguments, **named)


@dataclass
class Setup:
    """Monkeypatch and temporary folder of one row of the table."""

    patch: pytest.MonkeyPatch
    folder: Path

    def fails_once(self, owner: Any, name: str) -> FailsOnce:
        """Make a function of a module or an object fail once."""
        failing = FailsOnce(getattr(owner, name))
        self.patch.setattr(owner, name, failing)
        return failing


@asynccontextmanager
async def running(work: Coroutine[Any, Any, object]) -> AsyncGenerator[None]:
    """Run a task until the end of the block, and check that it does not end before."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()


def until(holds: Callable[[], object]) -> Awaitable[object]:
    return eventually(holds, timeout=20, interval=0.001)


def errors_by_part(metrics: Metrics) -> dict[str, float]:
    """Return the number of unexpected errors by part."""
    series = re.findall(
        r'^admitq_unexpected_errors_total\{part="(\w+)",.*\} (\S+)$', metrics.render().decode(), re.MULTILINE
    )
    return {part: float(value) for part, value in series if float(value)}
