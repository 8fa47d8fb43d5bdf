"""Random failures of nodes: every workload ends, and the state of the core stays valid."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from admitq.core.events import Event, NodeChanged, NodeDeleted
from admitq.core.model import SECOND, Taint
from admitq.core.topology.domains import Node
from admitq.simulator import Simulation, SimulationPlan
from admitq.simulator.distributions import create_random_stream
from admitq.simulator.run import Ending
from tests.unit.simulator.stage import plan
from tests.unit.simulator.test_topology import NODES, WORLD, job, workloads

SPEC = "evictions: {termination: 3s, checkpoints: 20s}\npodsReadyAfter: 4s\n" + workloads(
    *(
        job(name, pods, request, arrivals="{poisson: {every: 50s, count: 6}}")
        for name, pods, request in (
            ("near", 3, "required: rack"),
            ("wide", 5, "preferred: rack"),
            ("pairs", 4, "podSetSliceRequiredTopology: kubernetes.io/hostname, podSetSliceSize: 2"),
        )
    )
)


def fail(node: Node, chance: random.Random) -> Event:
    taints = (Taint("broken", "", chance.choice(("NoExecute", "NoSchedule"))),)
    return chance.choice(
        (
            NodeDeleted(node.name),
            NodeChanged(replace(node, ready=False)),
            NodeChanged(replace(node, schedulable=False)),
            NodeChanged(replace(node, taints=taints)),
        )
    )


def add_failures(of: SimulationPlan, chance: random.Random) -> None:
    """Let nodes fail, and come back later."""
    nodes = [event.node for event in of.start if isinstance(event, NodeChanged)]
    for _ in range(40):
        node, at = chance.choice(nodes), chance.randrange(400) * SECOND
        of.changes.append((at, fail(node, chance)))
        of.changes.append((at + chance.choice((1, 30, 200, 400)) * SECOND, NodeChanged(node)))
    of.changes += [(900 * SECOND, NodeChanged(node)) for node in nodes]
    of.changes.sort(key=lambda change: change[0])


@pytest.mark.parametrize("seed", range(8))
def test_workloads_end_when_their_nodes_fail_and_come_back(tmp_path: Path, seed: int) -> None:
    made = plan(tmp_path, NODES.replace("hosts: 2", "hosts: 3") + SPEC, WORLD)
    add_failures(made, create_random_stream(seed, "failures"))
    simulation = Simulation(made)
    ending = simulation.run(lambda running: running.state.validate(), every=1)
    assert (ending, simulation.measures.all.finished) == (Ending.FINISHED, 18)
    assert simulation.measures.host_failures.pods > 0
    tree = simulation.state.queries.world.topologies.get("default")
    assert tree is not None
    assert tree.tree.usage() == {}
