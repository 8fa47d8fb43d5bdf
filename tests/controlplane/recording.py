"""All versions of the objects of a stage, as a watch delivers them, and values of metrics."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from admitq.runtime.resources import Resource
from admitq.runtime.store import ObjectChange, Store
from admitq.runtime.watcher import Watcher
from admitq_api.json_objects import value_at
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.controlplane.stage import Stage, owner_of

ConditionChange = tuple[str, str, str, str]
"""Type, status, reason and message of a condition. All but the type are empty if it was removed."""

_SERIES = re.compile(r"(\w+)\{(.*)\} ([0-9.e+]+)")


@dataclass
class Record:
    """All versions of all Workloads of a stage, or of objects of another kind, since it was opened."""

    versions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def versions_of(self, job: str) -> list[dict[str, Any]]:
        """The versions of the Workloads of a job, in order."""
        return [one for one in self.versions if owner_of(one) == job]

    def condition_changes(self, job: str, types: Iterable[str]) -> list[ConditionChange]:
        """The changes of conditions of these types, in order; within one write in the order of types."""
        order, changes = tuple(types), list[ConditionChange]()
        before: dict[str, ConditionChange] = {}
        for version in self.versions_of(job):
            listed = value_at(version, ("status", "conditions"), [])
            now = {one["type"]: (one["type"], one["status"], one["reason"], one["message"]) for one in listed}
            for type_ in order:
                current = now.get(type_, (type_, "", "", ""))
                if current != before.get(type_, (type_, "", "", "")):
                    changes.append(current)
            before = now
        return changes

    async def until_condition_changes(
        self, job: str, types: Iterable[str], expected: Iterable[ConditionChange]
    ) -> None:
        """Wait until the watch has delivered exactly these changes."""
        types, expected = tuple(types), list(expected)

        def equals_expected() -> bool:
            changes = self.condition_changes(job, types)
            assert changes == expected, "\n".join(map(str, changes))
            return True

        await eventually(equals_expected, what=f"condition changes of {job}")

    def first_version(self, job: str, type_: str, reason: str) -> dict[str, Any]:
        """The first version in which a condition had this reason.

        Raises:
            LookupError: no version has it.
        """
        for version in self.versions_of(job):
            for one in value_at(version, ("status", "conditions"), []):
                if (one["type"], one["reason"]) == (type_, reason):
                    return version
        raise LookupError(f"{type_} of {job} never had the reason {reason}")


@asynccontextmanager
async def record_versions(stage: Stage, resource: Resource | None = None) -> AsyncGenerator[Record]:
    """Record the versions of the Workloads of a stage, or of objects of another kind, within a block."""
    record = Record()

    def keep(change: ObjectChange) -> None:
        if change.new is not None:
            record.versions.append(change.new)

    watched = resource or stage.kinds.workloads
    async with watch(stage, Store(watched), keep):
        yield record


@asynccontextmanager
async def watch(stage: Stage, store: Store, handle: Callable[[ObjectChange], None]) -> AsyncGenerator[None]:
    """Keep the objects of a stage in a store within a block, and handle each change of them."""
    watcher = Watcher(stage.client, store.resource, store, namespace=stage.namespace, handlers=[handle])
    task = asyncio.create_task(watcher.run())
    await watcher.synced.wait()
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def list_series(installation: Installation) -> list[tuple[str, dict[str, str]]]:
    """All series of a manager: the name without its prefix, and the labels."""
    url = f"{installation.url('manager', 'metrics')}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        text = await answer.text()
    return [
        (one[1].partition("_")[2], dict(re.findall(r'(\w+)="([^"]*)"', one[2])))
        for one in re.finditer(r"(\w+)\{(.*)\} \S+", text)
    ]


async def sum_of_series(installation: Installation, series: str, **labels: str) -> float:
    """The sum of a manager's series that have this name (without prefix) and all of these labels."""
    url = f"{installation.url('manager', 'metrics')}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        text = await answer.text()
    wanted = {f'{name}="{value}"' for name, value in labels.items()}
    found = [one for one in _SERIES.finditer(text) if one[1].partition("_")[2] == series]
    return sum(float(one[3]) for one in found if wanted <= set(one[2].split(",")))
