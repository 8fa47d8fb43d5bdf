"""The sample `topology` of `hack/up` beside a running admitq, and the commands that show its result."""

import asyncio
import io
from collections.abc import Generator
from pathlib import Path

import pytest
from rich.console import Console

from admitq_api.labels import DEFAULT_GROUP
from localcluster import nodes
from localcluster.installation import Installation
from showcase import objects, samples
from showcase.tour import Tour
from tests.controlplane.documented_commands import comparable, documented_commands, run_in_shell, with_names
from tests.controlplane.stage import Stage

SAMPLE = "topology"
NAMESPACE = "research"


@pytest.fixture
def tour(stage: Stage, admitq_running: Installation, tmp_path: Path) -> Generator[Tour]:
    """The tour of the sample; its nodes exist."""
    if stage.names.group != DEFAULT_GROUP:
        pytest.skip("the documentation is written for admitq's own group")
    sample = samples.load(SAMPLE)
    with admitq_running.cluster.api() as api:
        for pool in sample.nodes:
            nodes.create(api, pool)
        manifests = samples.write(SAMPLE, stage.names.group, tmp_path)
        tour = Tour.of_manifests(sample, api, stage.names, manifests)
        yield tour
        tour.delete_jobs()
        for obj in reversed(tour.queues):
            objects.delete(api, obj)
        for pool in sample.nodes:
            for name in pool.names():
                api.request("DELETE", f"/api/v1/nodes/{name}")


async def test_commands_of_the_topology_sample_print_the_documented_output(
    tour: Tour, stage: Stage, admitq_running: Installation, tmp_path: Path
) -> None:
    await asyncio.to_thread(tour.set_up)
    await asyncio.to_thread(tour.follow, Console(file=io.StringIO()))
    listed, _ = await stage.client.list(stage.kinds.workloads, NAMESPACE)
    workloads = {one["metadata"]["ownerReferences"][0]["name"]: one["metadata"]["name"] for one in listed}
    parts = documented_commands("topology.md", stage)
    commands = [part.partition("\n")[0] for part in parts]
    assert commands == tour.sample.commands_in(tmp_path)
    for command, part in zip(commands, parts, strict=True):
        expected = with_names(part.partition("\n")[2], workloads)
        shown = await run_in_shell(admitq_running, command, tmp_path)
        assert comparable(shown) == comparable(expected), command
