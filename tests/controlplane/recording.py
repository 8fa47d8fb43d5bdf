"""What became of the Workloads of a stage, write by write, as a watch saw it; and what metrics say of it."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from admitq.runtime.resources import Resource
from admitq.runtime.store import Change, Store
from admitq.runtime.watcher import Watcher
from admitq_api.json_objects import value_at
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.controlplane.stage import Stage, owner_of

Said = tuple[str, str, str, str]
"""Type, status, reason and message of a condition; all but the type are empty where it was taken away."""

_SERIES = re.compile(r"(\w+)\{(.*)\} ([0-9.e+]+)")


@dataclass
class Record:
    """All versions of all Workloads of a stage, or of objects of another kind, since it was opened."""

    versions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def of(self, job: str) -> list[dict[str, Any]]:
        """The versions of the Workloads of a job, in order."""
        return [one for one in self.versions if owner_of(one) == job]

    def course(self, job: str, types: Iterable[str]) -> list[Said]:
        """What conditions of these types came to say, one after the other, in their order within a write."""
        order, course = tuple(types), list[Said]()
        before: dict[str, Said] = {}
        for version in self.of(job):
            listed = value_at(version, ("status", "conditions"), [])
            now = {one["type"]: (one["type"], one["status"], one["reason"], one["message"]) for one in listed}
            for type_ in order:
                said = now.get(type_, (type_, "", "", ""))
                if said != before.get(type_, (type_, "", "", "")):
                    course.append(said)
            before = now
        return course

    async def until_course(self, job: str, types: Iterable[str], wanted: Iterable[Said]) -> None:
        """Wait until the watch, which may be late, has shown this course."""
        types, wanted = tuple(types), list(wanted)

        def seen() -> bool:
            course = self.course(job, types)
            assert course == wanted, "\n".join(map(str, course))
            return True

        await eventually(seen, what=f"course of {job}")

    def when(self, job: str, type_: str, reason: str) -> dict[str, Any]:
        """The first version in which a condition had this reason.

        Raises:
            LookupError: it never had.
        """
        for version in self.of(job):
            for one in value_at(version, ("status", "conditions"), []):
                if (one["type"], one["reason"]) == (type_, reason):
                    return version
        raise LookupError(f"{type_} of {job} never had the reason {reason}")


@asynccontextmanager
async def recorded(stage: Stage, resource: Resource | None = None) -> AsyncGenerator[Record]:
    """Record the Workloads of a stage, or objects of another kind, for the length of a block."""
    record = Record()

    def keep(change: Change) -> None:
        if change.new is not None:
            record.versions.append(change.new)

    watched = resource or stage.kinds.workloads
    watcher = Watcher(stage.client, watched, Store(watched), namespace=stage.namespace, handlers=[keep])
    task = asyncio.create_task(watcher.run())
    await watcher.synced.wait()
    try:
        yield record
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def series_of(installation: Installation) -> list[tuple[str, dict[str, str]]]:
    """All series of a manager: the name without its prefix, and the labels."""
    url = f"{installation.url('manager', 'metrics')}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        text = await answer.text()
    return [
        (one[1].partition("_")[2], dict(re.findall(r'(\w+)="([^"]*)"', one[2])))
        for one in re.finditer(r"(\w+)\{(.*)\} \S+", text)
    ]


async def total(installation: Installation, series: str, **labels: str) -> float:
    """The sum of a manager's series of this name, without its prefix, that carry all of these labels."""
    url = f"{installation.url('manager', 'metrics')}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        text = await answer.text()
    wanted = {f'{name}="{value}"' for name, value in labels.items()}
    found = [one for one in _SERIES.finditer(text) if one[1].partition("_")[2] == series]
    return sum(float(one[3]) for one in found if wanted <= set(one[2].split(",")))
