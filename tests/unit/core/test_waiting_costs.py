"""Cost of a return of quota while many lanes wait, in evaluated heads and executed lines."""

from dataclasses import dataclass
from typing import Any

import pytest

from admitq.core import events as happened
from admitq.core.model import LocalQueue, PodSet, ResourceFlavor, Workload
from admitq.core.requests import template_requesting
from admitq.core.state import AdmissionState
from admitq.core.world import World
from tests.unit.core.evaluated import Evaluated
from tests.unit.core.pending_workloads import CPU, lines_run
from tests.unit.core.small_cluster import key, queue, reserved

NOMINAL, RELEASED = 1_000_000, 7


@dataclass
class Crowd:
    """A full ClusterQueue of pending workloads with different scheduling keys; without checks."""

    lanes: int
    least: int = RELEASED
    """The request of the last workload; each workload before it requests one more."""

    def __post_init__(self) -> None:
        self.state = AdmissionState(statuses=False)
        self._send(happened.NamespaceChanged("n", ()))
        self._send(happened.ResourceFlavorChanged(ResourceFlavor("default")))
        self._send(happened.ClusterQueueChanged(queue("q", NOMINAL, "org")))
        self._send(happened.LocalQueueChanged(LocalQueue(key("q"), "q")))
        self._submit("small", RELEASED)
        self._submit("large", NOMINAL - RELEASED)
        assert len(self.cycles()) == 2
        for number in range(self.lanes):
            self._submit(f"w{number}", self.least + self.lanes - 1 - number)
        assert self.cycles() == []

    @property
    def world(self) -> World:
        return self.state._world  # pyright: ignore[reportPrivateUsage]

    def _send(self, event: happened.Event) -> list[Any]:
        return self.state.handle(event, now=1)

    def _submit(self, name: str, cpu: int) -> None:
        pods = (PodSet("main", 1, template_requesting({"cpu": cpu})),)
        queued_at = len(self.world.workloads)
        self._send(happened.WorkloadChanged(Workload(key(name), f"uid-{name}", "q", queued_at, pods)))

    def cycles(self) -> list[str]:
        return reserved(self._send(happened.CyclesRequested()))

    def release(self) -> None:
        """Delete the small workload."""
        self._send(happened.WorkloadDeleted(key("small"), "uid-small"))


@pytest.mark.parametrize("lanes", [50, 500])
@pytest.mark.parametrize(("least", "admitted"), [(RELEASED, 1), (RELEASED + 1, 0)])
def test_return_of_quota_evaluates_only_the_head_that_fits(
    lanes: int, least: int, admitted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd = Crowd(lanes, least)
    evaluated = Evaluated(monkeypatch)
    crowd.release()
    assert crowd.cycles() == [f"w{lanes - 1}"] * admitted
    assert len(evaluated.names) <= 2 * admitted
    crowd.state.validate()
    assert crowd.cycles() == []
    assert len(evaluated.names) <= 2 * admitted


@pytest.mark.parametrize("least", [RELEASED, RELEASED + 1])
def test_cost_of_return_of_quota_grows_slower_than_number_of_waiting_lanes(least: int) -> None:
    def cost(lanes: int) -> int:
        crowd = Crowd(lanes, least)
        waiting, entry = crowd.world.waiting, crowd.world.cluster_queues["q"]
        crowd.world.cohort_trees.remove_usage(entry.node, ((CPU, RELEASED),))

        def find_head() -> None:
            waiting.quota_returned(entry.node, ((CPU, RELEASED),))
            assert (entry.queue.head() is not None) is (least == RELEASED)

        return lines_run(find_head)

    assert cost(2500) < 3 * cost(250)


def test_cost_of_ending_all_waiting_is_small_for_each_lane() -> None:
    def cost(lanes: int) -> int:
        crowd = Crowd(lanes)
        waiting, entry = crowd.world.waiting, crowd.world.cluster_queues["q"]
        counted = lines_run(lambda: waiting.cluster_queue_changed(entry))
        assert crowd.cycles() == []
        crowd.state.validate()
        return counted

    assert cost(1000) - cost(500) < 500 * 40
