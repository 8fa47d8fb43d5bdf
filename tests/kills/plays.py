"""Plays a history without a kill, or with the manager killed at one of its awaits."""

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from admitq.app.settings import ProcessSettings, load_settings
from admitq.runtime.client import Client
from admitq.runtime.credentials import Credentials
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq_api.labels import Names
from tests.kills.killable_manager import KillableManager, KillPoint, ManagerRun, Request, is_before_write
from tests.kills.laws import count_transitions, find_violations
from tests.kills.likeness import comparable_events, differences, likeness, placeholders
from tests.kills.world import World

QUIET: Final = 0.15
QUIET_UNDISTURBED: Final = 1.2
"""Longer than one second, after which the manager reconciles objects again that it could not handle."""
PATIENCE: Final = 60.0
"""The longest wait for the end of a play. All three are seconds."""

_NAMESPACE: Final = re.compile(r"kills-[0-9a-f]{8}")


@dataclass(frozen=True)
class History:
    """The steps of a history, and the configuration of its manager."""

    name: str
    prepare: Callable[[World], Awaitable[None]]
    """Create queues before the manager is started."""
    play: Callable[[World], Awaitable[None]]
    frameworks: tuple[str, ...] = ("batch/job",)
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    kinds: tuple[Resource, ...] = ()
    """Further resources to record and compare."""
    sample: int = 2
    """How many kills a quick run plays."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class End:
    """The end of a play."""

    objects: Mapping[str, Any]
    transitions: Counter[str]
    events: set[str]
    violations: list[str]
    awaits: tuple[str, ...]
    """The awaits of the first manager until its end."""


def kills_of(reference: End, kill_point: KillPoint) -> list[int]:
    """The numbers of the awaits at which a kill is played."""
    counted = [
        what
        for what in reference.awaits
        if kill_point is not KillPoint.WITH_LATE_WRITE or is_before_write(what)
    ]
    return list(range(1, len(counted) + 1))


@dataclass(frozen=True)
class Outcome:
    """The result of a play with a kill."""

    at: str
    """The await at which the manager was killed; empty if the play had fewer awaits."""
    problems: list[str]
    """Differences from the play without a kill."""


@dataclass
class _Managers:
    """The consecutive managers of a play, and the events that they wait for."""

    runs: list[ManagerRun]
    prepared: asyncio.Event = field(default_factory=asyncio.Event)
    """The queues exist."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """The late write of a killed manager was made."""


@dataclass
class HistoryRunner:
    """Plays histories one at a time in a cluster with webhooks and without manager."""

    client: Client
    names: Names
    credentials: Credentials
    """Those of the manager."""
    folder: Path
    """For configuration files."""

    async def play_without_kill(self, history: History, kill_point: KillPoint = KillPoint.AT_REQUEST) -> End:
        """Play a history without a kill; kills are later played at its awaits."""
        return await self._play(history, ManagerRun(kill_point=kill_point), None)

    async def play_with_kill(
        self, history: History, number: int, reference: End, kill_point: KillPoint = KillPoint.AT_REQUEST
    ) -> Outcome:
        """Play a history with a kill at one await, and compare its end with the reference."""
        run = ManagerRun(number, kill_point)
        try:
            end = await self._play(history, run, reference)
        except (AssertionError, TimeoutError, ApiError) as error:
            found = [repr(error)]
        else:
            found = [
                f"unexpected event: {text}" for text in sorted(end.events - reference.events)
            ] + end.violations
            found += (
                f"number of transitions: {text}"
                for text in differences(dict(end.transitions), dict(reference.transitions))
            )
            found += differences(end.objects, reference.objects)
        at = _NAMESPACE.sub("NAMESPACE", run.awaits[-1]) if len(run.awaits) == number else ""
        return Outcome(at, [f"killed at {number} ({at or 'not reached'}): {text}" for text in found])

    def _settings(self, history: History) -> ProcessSettings:
        config = {
            "apiVersion": self.names.config_api_version,
            "kind": "Configuration",
            "apiGroup": self.names.group,
            "leaderElection": {"leaderElect": False},
            **history.config,
            "integrations": {"frameworks": list(history.frameworks)},
        }
        file = self.folder / f"{history.name}.yaml"
        file.write_text(yaml.safe_dump(config))
        return load_settings(file)

    async def _play(self, history: History, run: ManagerRun, reference: End | None) -> End:
        namespace = f"kills-{secrets.token_hex(4)}"
        world = await World.open(self.client, self.names, namespace, history.kinds)
        managers = _Managers([run])
        managing = asyncio.create_task(self._manage(history, managers))
        ended = asyncio.create_task(self._end(history, world, managers, reference))
        try:
            await asyncio.wait([managing, ended], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await managing
                raise AssertionError("the manager ended by itself")
            return await ended
        finally:
            ended.cancel()
            managing.cancel()
            await asyncio.gather(managing, ended, return_exceptions=True)
            await world.close()

    async def _manage(self, history: History, managers: _Managers) -> None:
        """Run managers one after the other: a new one starts when the last one was killed."""
        await managers.prepared.wait()
        manager = KillableManager(self._settings(history), self.credentials)
        async with asyncio.TaskGroup() as late:
            while True:
                run = managers.runs[-1]
                await manager.run(run)
                managers.runs.append(ManagerRun())
                if run.left_behind is not None:
                    late.create_task(self._arrive(manager, run.left_behind, managers, (run.ends_at or 0) % 4))

    async def _arrive(
        self, manager: KillableManager, write: Request, managers: _Managers, later: int
    ) -> None:
        """Make a write of a killed manager after some writes of its successor, or when that is idle."""
        successor = managers.runs[-1]
        while not (successor.is_ready and successor.writes >= later) and successor.quiet_for() < QUIET:
            await asyncio.sleep(0.005)
        await manager.deliver(write)
        managers.arrived.set()

    async def _end(self, history: History, world: World, managers: _Managers, reference: End | None) -> End:
        await history.prepare(world)
        managers.prepared.set()
        await world.until(lambda: _is_open(world), "all queues to be active")
        await _quiet(managers.runs, QUIET)
        managers.runs[0].count()
        await history.play(world)
        if reference is None:
            await _quiet(managers.runs, QUIET_UNDISTURBED)
            while not world.is_collected():
                await world.until(world.is_collected, "objects without owner to be garbage-collected")
                await _quiet(managers.runs, QUIET_UNDISTURBED)
            return await self._read_end(world, managers.runs)
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            await _quiet(managers.runs, QUIET)
            if managers.runs[0].left_behind is not None and not managers.arrived.is_set():
                await managers.arrived.wait()
                continue
            end = await self._read_end(world, managers.runs)
            if end.objects == reference.objects or asyncio.get_running_loop().time() > deadline:
                return end
            await asyncio.sleep(0.1)

    async def _read_end(self, world: World, runs: list[ManagerRun]) -> End:
        steps = world.chronicle.steps
        names = placeholders(world.stage.namespace, steps)
        return End(
            likeness(world.chronicle.now, names),
            count_transitions(steps, names),
            comparable_events(await world.events(), names),
            find_violations(steps, self.names),
            tuple(runs[0].awaits),
        )


def _is_open(world: World) -> bool:
    queues = {**world.of_kind("ClusterQueue"), **world.of_kind("LocalQueue")}
    active = [
        one["type"] == "Active" and one["status"] == "True"
        for queue in queues.values()
        for one in queue["status"]["conditions"]
    ]
    return len(active) == len(queues) and all(active)


async def _quiet(runs: list[ManagerRun], seconds: float) -> None:
    """Wait until the manager has not written for some seconds."""
    async with asyncio.timeout(PATIENCE + 10 * seconds):
        while (left := seconds - runs[-1].quiet_for()) > 0:
            await asyncio.sleep(left)
