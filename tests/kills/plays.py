"""Plays a history: undisturbed, or with the manager killed at one of its awaits."""

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
from tests.kills.laws import broken, risen
from tests.kills.likeness import differences, likeness, symbols, told
from tests.kills.mortal import Death, Life, Mortal, Request, is_before_write
from tests.kills.world import World

QUIET: Final = 0.15
QUIET_UNDISTURBED: Final = 1.2
"""Longer than the second after which the manager looks again at what it does not understand yet."""
PATIENCE: Final = 60.0
"""All in seconds."""

_NAMESPACE: Final = re.compile(r"kills-[0-9a-f]{8}")


@dataclass(frozen=True)
class History:
    """What happens, and with which configuration the manager runs."""

    name: str
    prepare: Callable[[World], Awaitable[None]]
    """Makes queues, before the manager is started."""
    play: Callable[[World], Awaitable[None]]
    frameworks: tuple[str, ...] = ("batch/job",)
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    kinds: tuple[Resource, ...] = ()
    """What else is followed and compared."""
    sample: int = 2
    """How many kills a quick run plays."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class End:
    """What a play came to."""

    objects: Mapping[str, Any]
    risen: Counter[str]
    told: set[str]
    broken: list[str]
    awaits: tuple[str, ...]
    """What the manager awaited that was first, until it died."""


def kills_of(like: End, death: Death) -> list[int]:
    """The awaits, by number, at which a kill is to be played."""
    counted = [what for what in like.awaits if death is not Death.WITH_LATE_WRITE or is_before_write(what)]
    return list(range(1, len(counted) + 1))


@dataclass(frozen=True)
class Outcome:
    """What a play with a kill came to."""

    at: str
    """The await at which the manager was killed; empty where it came to fewer of them this time."""
    problems: list[str]
    """What was not as it is without."""


@dataclass
class _Cast:
    """The managers, one after the other, and what they wait for."""

    lives: list[Life]
    prepared: asyncio.Event = field(default_factory=asyncio.Event)
    """The queues are there."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """The late write of a dead manager has come."""


@dataclass
class Theatre:
    """Where histories are played, one at a time: a cluster with the webhooks and without a manager."""

    client: Client
    names: Names
    credentials: Credentials
    """The manager's."""
    folder: Path
    """For configuration files."""

    async def undisturbed(self, history: History, death: Death = Death.AT_REQUEST) -> End:
        """Play a history without a kill; its awaits are those at which there is one to play."""
        return await self._play(history, Life(death=death), None)

    async def killed(
        self, history: History, number: int, like: End, death: Death = Death.AT_REQUEST
    ) -> Outcome:
        """Play a history with a kill at one await, and compare it with how it goes without."""
        life = Life(number, death)
        try:
            end = await self._play(history, life, like)
        except (AssertionError, TimeoutError, ApiError) as error:
            found = [repr(error)]
        else:
            found = [f"told without reason: {text}" for text in sorted(end.told - like.told)] + end.broken
            found += (f"how often: {text}" for text in differences(dict(end.risen), dict(like.risen)))
            found += differences(end.objects, like.objects)
        at = _NAMESPACE.sub("NAMESPACE", life.awaits[-1]) if len(life.awaits) == number else ""
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

    async def _play(self, history: History, life: Life, like: End | None) -> End:
        namespace = f"kills-{secrets.token_hex(4)}"
        world = await World.open(self.client, self.names, namespace, history.kinds)
        cast = _Cast([life])
        managing = asyncio.create_task(self._manage(history, cast))
        ended = asyncio.create_task(self._end(history, world, cast, like))
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

    async def _manage(self, history: History, cast: _Cast) -> None:
        """Have a manager run at any time: another one as soon as one is dead."""
        await cast.prepared.wait()
        mortal = Mortal(self._settings(history), self.credentials)
        async with asyncio.TaskGroup() as late:
            while True:
                life = cast.lives[-1]
                await mortal.live(life)
                cast.lives.append(Life())
                if life.left_behind is not None:
                    late.create_task(self._arrive(mortal, life.left_behind, cast, (life.ends_at or 0) % 4))

    async def _arrive(self, mortal: Mortal, write: Request, cast: _Cast, later: int) -> None:
        """Have a write of a dead manager arrive after so many of another's, or when that has come to rest."""
        successor = cast.lives[-1]
        while not (successor.is_ready and successor.writes >= later) and successor.quiet_for() < QUIET:
            await asyncio.sleep(0.005)
        await mortal.deliver(write)
        cast.arrived.set()

    async def _end(self, history: History, world: World, cast: _Cast, like: End | None) -> End:
        await history.prepare(world)
        cast.prepared.set()
        await world.until(lambda: _is_open(world), "all queues to be active")
        await _quiet(cast.lives, QUIET)
        cast.lives[0].count()
        await history.play(world)
        if like is None:
            await _quiet(cast.lives, QUIET_UNDISTURBED)
            while not world.is_collected():
                await world.until(world.is_collected, "objects without owner to be collected")
                await _quiet(cast.lives, QUIET_UNDISTURBED)
            return await self._seen(world, cast.lives)
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            await _quiet(cast.lives, QUIET)
            if cast.lives[0].left_behind is not None and not cast.arrived.is_set():
                await cast.arrived.wait()
                continue
            end = await self._seen(world, cast.lives)
            if end.objects == like.objects or asyncio.get_running_loop().time() > deadline:
                return end
            await asyncio.sleep(0.1)

    async def _seen(self, world: World, lives: list[Life]) -> End:
        steps = world.chronicle.steps
        names = symbols(world.stage.namespace, steps)
        return End(
            likeness(world.chronicle.now, names),
            risen(steps, names),
            told(await world.events(), names),
            broken(steps, self.names),
            tuple(lives[0].awaits),
        )


def _is_open(world: World) -> bool:
    queues = {**world.of_kind("ClusterQueue"), **world.of_kind("LocalQueue")}
    active = [
        one["type"] == "Active" and one["status"] == "True"
        for queue in queues.values()
        for one in queue["status"]["conditions"]
    ]
    return len(active) == len(queues) and all(active)


async def _quiet(lives: list[Life], seconds: float) -> None:
    """Wait until the manager has not written for so long."""
    async with asyncio.timeout(PATIENCE + 10 * seconds):
        while (left := seconds - lives[-1].quiet_for()) > 0:
            await asyncio.sleep(left)
