"""What stories of a tenant do and check again and again."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from admitq.runtime.client import Propagation
from admitq_api.json_objects import value_at
from tests.adversary.arena import Arena
from tests.adversary.calls import Target
from tests.adversary.law import REACTION_S
from tests.controlplane.stage import condition_of


async def longer_than_a_reaction() -> None:
    """Wait longer than one reaction, so that the sampler would find an excess."""
    await asyncio.sleep(REACTION_S + 0.5)


async def expect_running(arena: Arena, prefix: str, names: list[str]) -> None:
    """Assert that exactly these pods with a name prefix run."""
    found = await arena.running(prefix)
    assert found == names, f"running: {found}, not {names}"


async def expect_at_most(arena: Arena, prefix: str, count: int) -> None:
    """Assert that at most so many pods with a name prefix run."""
    found = await arena.running(prefix)
    assert len(found) <= count, f"running: {found}, at most {count} may"


async def until(
    look: Callable[[], Awaitable[Any]], what: str, *, meanwhile: Callable[[], Awaitable[None]]
) -> None:
    """Wait until ``look`` returns a true value. A failure of ``meanwhile`` ends the wait at once."""
    deadline = time.monotonic() + 60.0
    while True:
        found = await look()
        await meanwhile()
        if found:
            return
        assert time.monotonic() < deadline, f"not within 60 s: {what}"
        await asyncio.sleep(0.1)


async def until_outlived(arena: Arena, queue: str, workload: str) -> None:
    """Wait until a Workload reports the pods that outlive its job, of which one fills the queue."""

    async def is_reported() -> bool:
        for one in await arena.workloads(queue):
            if one["metadata"]["name"] == workload:
                return (condition_of(one, "PodsOutliveJob") or ("",))[0] == "True"
        return False

    await until(
        is_reported, f"PodsOutliveJob of {workload}", meanwhile=lambda: expect_at_most(arena, queue, 1)
    )


async def until_next_runs_alone(arena: Arena, queue: str, name: str) -> None:
    """Wait until a pod of this name runs, in a queue with room for one, and never runs beside another."""
    await until(
        lambda: arena.running(f"{queue}-{name}"),
        f"a pod of {queue}-{name} runs",
        meanwhile=lambda: expect_at_most(arena, queue, 1),
    )


async def filled(arena: Arena, queue: str) -> Target:
    """A Job that runs and fills the queue."""
    await arena.queue(queue)
    job = await arena.job(queue)
    await arena.until_runs(f"{queue}-j-")
    return job


async def suspended(arena: Arena, job: Target) -> bool:
    """Whether a job is suspended."""
    return bool(value_at(await arena.admin.get(job.resource, job.name), ("spec", "suspend"), False))


async def delete(arena: Arena, target: Target, propagation: Propagation | None = None) -> None:
    """Delete an object as the tenant."""
    await arena.tenant.client.delete(target.resource, target.name, target.namespace, propagation=propagation)
