"""Jobs with raised requests while the manager has other work."""

import asyncio

from admitq.app.served_kinds import key_handler
from admitq.runtime.controller import Controller
from admitq.runtime.resources import JOBS
from admitq_api.json_objects import with_value
from localcluster.waiting import eventually
from tests.unit.controllers.builders import KINDS, admitted, job
from tests.unit.controllers.test_raises import job_controller_spec, raised
from tests.unit.controllers.world import World


async def test_t10_raised_job_is_stopped_before_all_other_work() -> None:
    """The manager makes 300 calls a second: behind those of other jobs, the stop would take seconds."""
    world = World()
    world.put(KINDS.workloads, admitted())
    world.put(JOBS, raised(3))
    world.client.api["workloads", "job-j-1"] = admitted()
    spec = job_controller_spec(world)
    controller = Controller(
        spec.name, spec.reconcile, workers=spec.workers, urgent_workers=spec.urgent_workers
    )
    for watch in spec.watches:
        world.stores.of(watch.resource).subscribe(key_handler(controller, watch))
    world.put(JOBS, *(job(name=f"other-{number}", uid=f"uid-{number}") for number in range(100)))
    newer = with_value(raised(50), ("metadata", "resourceVersion"), "9")
    world.put(JOBS, with_value(newer, ("metadata", "generation"), 2))
    running = asyncio.create_task(controller.run())
    try:
        await eventually(lambda: "patch jobs/j" in world.calls)
    finally:
        running.cancel()
    ahead = world.calls[: world.calls.index("patch jobs/j")]
    assert len(ahead) <= 1, f"{len(ahead)} calls before the raised job is stopped"
