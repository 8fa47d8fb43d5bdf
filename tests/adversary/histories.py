"""Random histories of tenants: random moves one after the other, and the release of all quota at the end."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hypothesis import strategies as st

from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq_api.conditions import format_time
from admitq_api.json_objects import value_at
from localcluster.waiting import eventually
from tests.adversary import law
from tests.adversary.arena import Arena
from tests.adversary.moves import HOLD, OWN_RESOURCES, SUBJECTS, Move, Tenant, acts_of, make, owner_of
from tests.controlplane.rest import Snapshot, find_violations

QUOTA: Final = 2
"""CPU of the queue of a history. Pods mostly ask for one."""
PAUSE_SECONDS: Final = 0.5
"""How long nothing is written after a move that waits."""
STILL_SECONDS: Final = 1.5
"""How long nothing is written at rest."""
_FEWEST: Final = 2
"""The number of subjects that are created before other acts."""


# --- random moves -------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn, *, least: int, most: int) -> tuple[Move, ...]:
    """Draw moves on subjects that exist, as far as that is known in advance."""
    existing: set[str] = set()
    moves: list[Move] = []
    for _ in range(draw(st.integers(least, most))):
        subjects = [one for one in SUBJECTS if owner_of(one) in {None, *existing}]
        if len(existing) < _FEWEST:
            subjects = [one for one in subjects if owner_of(one) is None and one not in existing]
        subject = draw(st.sampled_from(subjects))
        is_new = owner_of(subject) is None and subject not in existing
        acts = [one for one in acts_of(subject) if one.startswith("create") is is_new]
        last = (moves[-1].act, moves[-1].subject) if moves else None
        act = draw(st.sampled_from([one for one in acts if (one, subject) != last]))
        if is_new:
            existing.add(subject)
        elif act.startswith("delete"):
            existing.discard(subject)
        moves.append(Move(act, subject, waits=draw(st.booleans())))
    return tuple(moves)


# --- observations ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class NamespaceObjects:
    """The objects of a namespace at one moment, by resource."""

    objects: Mapping[Resource, Sequence[dict[str, Any]]]
    workloads: Sequence[dict[str, Any]]

    def of(self, queue: str) -> Iterator[tuple[Resource, dict[str, Any]]]:
        """The objects of a queue that the tenant or controllers created."""
        for resource, objects in self.objects.items():
            for one in objects:
                if one["metadata"]["name"].startswith(f"{queue}-"):
                    yield resource, one

    def workloads_of(self, queue: str) -> list[dict[str, Any]]:
        """The Workloads of a queue."""
        return [one for one in self.workloads if one["spec"].get("queueName") == queue]

    def pods_of(self, queue: str) -> list[dict[str, Any]]:
        """The pods of a queue."""
        return [one for resource, one in self.of(queue) if resource.plural == "pods"]

    def versions_of(self, queue: str) -> set[str]:
        """The resource versions of all objects of a queue."""
        objects = [*(one for _, one in self.of(queue)), *self.workloads_of(queue)]
        return {one["metadata"]["resourceVersion"] for one in objects}


class View:
    """Reads a namespace once for all concurrent readers."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._waiting: list[asyncio.Future[NamespaceObjects]] = []
        self._is_wanted = asyncio.Event()

    async def read(self) -> NamespaceObjects:
        """The objects, read after the call."""
        future: asyncio.Future[NamespaceObjects] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._is_wanted.set()
        return await future

    async def run(self) -> None:
        """Serve readers until cancelled."""
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            waiting, self._waiting = self._waiting, []
            try:
                seen = await self._read()
            except ApiError as error:
                for one in waiting:
                    one.set_exception(error)
                continue
            for one in waiting:
                if not one.done():
                    one.set_result(seen)

    async def _read(self) -> NamespaceObjects:
        admin = self._arena.admin
        wanted = (*OWN_RESOURCES, admin.kinds.workloads)
        lists = await asyncio.gather(*(admin.client.list(one, admin.namespace) for one in wanted))
        *objects, workloads = [items for items, _ in lists]
        return NamespaceObjects(dict(zip(OWN_RESOURCES, objects, strict=True)), workloads)


@asynccontextmanager
async def viewed(arena: Arena) -> AsyncGenerator[View]:
    """Run a view of an arena within a block."""
    view = View(arena)
    task = asyncio.create_task(view.run())
    try:
        yield view
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


# --- a history ------------------------------------------------------------------------------------


@dataclass
class History:
    """The moves of a tenant in its own queue, and their results so far."""

    arena: Arena
    view: View
    queue: str
    made: list[tuple[Move, str]] = field(default_factory=list[tuple[Move, str]])

    async def play(self, moves: Sequence[Move]) -> None:
        """Make the moves, wait for rest, delete all objects, and check that all quota is released.

        Raises:
            AssertionError: the state at rest breaks a law, or quota is not released.
            ApiError: a call failed without being refused.
        """
        tenant = Tenant(self.arena, self.queue)
        await self.arena.queue(self.queue, cpu=QUOTA)
        for move in moves:
            # Otherwise the excesses of two moves could last longer than one reaction.
            await eventually(self._is_calm, what=f"no excess in {self.queue}")
            self.made.append((move, await make(tenant, move)))
            if move.waits:
                await self._until_still(PAUSE_SECONDS)
        await self._release()
        await self._until_still(STILL_SECONDS)
        # Reasons are written last, and late while the API server is slow.
        await eventually(self._is_lawful, timeout=120, what=f"{self.queue} at rest")
        await eventually(self._is_deleted, what=f"{self.queue} without objects")
        await eventually(self._is_free, what=f"{self.queue} without reserved quota")
        await self.arena.job(self.queue, "last", pods=QUOTA)
        await self.arena.until_runs(f"{self.queue}-last", QUOTA)

    def __str__(self) -> str:
        moves = (f"    {move!r},  # {end}" for move, end in self.made)
        return "\n".join((f"history of {self.queue}:", *moves))

    async def _is_calm(self) -> NamespaceObjects:
        """Check that no more runs than is reserved."""
        seen = await self.view.read()
        found = law.excesses({self.queue: QUOTA * 1000}, seen.pods_of(self.queue), seen.workloads)
        assert not found, found
        return seen

    async def _until_still(self, seconds: float) -> None:
        """Wait until nothing was written for a while, and no more runs than is reserved."""
        loop = asyncio.get_running_loop()
        versions: set[str] = set()
        since = loop.time()

        async def is_still() -> bool:
            nonlocal versions, since
            found = (await self._is_calm()).versions_of(self.queue)
            if found != versions:
                versions, since = found, loop.time()
            return loop.time() - since > seconds

        await eventually(is_still, what=f"nothing to be written in {self.queue}", interval=0.2)

    async def _is_lawful(self) -> bool:
        """Check that queues report what their Workloads hold, and that no Workload waits for free quota."""
        seen = await Snapshot.of(self.arena.admin, self.queue)
        own = replace(
            seen,
            workloads=[one for one in seen.workloads if one["spec"].get("queueName") == self.queue],
            local_queues=[one for one in seen.local_queues if one["metadata"]["name"] == self.queue],
            jobs=(),
        )
        problems = find_violations(own, format_time(time.time_ns()))
        assert not problems, problems
        return True

    async def _release(self) -> None:
        """Remove the finalizers of the tenant, which would hold objects forever."""
        for resource, one in (await self.view.read()).of(self.queue):
            found = value_at(one, ("metadata", "finalizers"), [])
            if HOLD not in found:
                continue
            kept = {"metadata": {"finalizers": [other for other in found if other != HOLD]}}
            try:
                await self.arena.tenant.change(resource, one["metadata"]["name"], kept)
            except ApiError as error:
                if not error.is_not_found:
                    raise

    async def _is_deleted(self) -> bool:
        """Delete all objects, also those that outlived their owner; return True if none was left."""
        left = list((await self.view.read()).of(self.queue))
        for resource, one in left:
            if one["metadata"].get("deletionTimestamp"):
                continue
            try:
                name, namespace = one["metadata"]["name"], self.arena.admin.namespace
                await self.arena.tenant.client.delete(resource, name, namespace, propagation="Background")
            except ApiError as error:
                if not error.is_not_found:
                    raise
        assert not left, [f"{resource.kind} {one['metadata']['name']}" for resource, one in left]
        return True

    async def _is_free(self) -> bool:
        """Check that no Workload has quota or waits."""
        seen = await self.view.read()
        holding = [one["metadata"]["name"] for one in seen.workloads_of(self.queue) if law.reserved(one)]
        assert not holding, f"Workloads with quota: {holding}"
        status = (await Snapshot.of(self.arena.admin, self.queue)).cluster_queue["status"]
        counted = [status.get(f"{one}Workloads", 0) for one in ("pending", "reserving", "admitted")]
        assert counted == [0, 0, 0], status
        return True
