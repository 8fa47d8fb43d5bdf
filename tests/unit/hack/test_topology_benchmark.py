import json
from collections import defaultdict
from typing import Any

import pytest

from benchmarks import cli, topology, topology_end_to_end
from benchmarks.cli import main
from benchmarks.throughput import ThroughputPlan


@pytest.fixture(autouse=True)
def core_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "reference_cpu_s", lambda: 0.1)


def test_all_parts_are_measured_at_a_small_scale(capsys: pytest.CaptureFixture[str]) -> None:
    main(["topology", "--scale", "0.02"])
    figures: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert figures["benchmark"] == "topology"
    assert (figures["nodes"], figures["running"], figures["pods"]) == (200, 100, 2000)
    assert set(topology.BOUNDS) <= set(figures)
    assert figures["placement_p50_ms"] <= figures["placement_p99_ms"]
    assert figures["part_release_tries"] < figures["release_tries"]
    assert 0 < figures["one_rack_share"] <= figures["one_rack_share_optimum"] <= 1


def test_missed_bound_is_the_status_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(topology, "BOUNDS", {"node_event_us": 0.0})
    assert main(["topology", "--scale", "0.01", "--only", "node-event"]) == 1
    assert json.loads(capsys.readouterr().out)["node_event_us"] > 0


@pytest.mark.parametrize(
    ("seconds", "finished", "passed"),
    [(12.9 * 3, True, True), (13.1 * 3, True, False), (10.0, False, False)],
)
def test_end_to_end_ratio_compares_seconds_of_a_workload_with_the_baseline(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    seconds: float,
    finished: bool,
    passed: bool,
) -> None:
    plans: list[ThroughputPlan] = []

    def measured(plan: ThroughputPlan) -> tuple[dict[str, Any], bool]:
        plans.append(plan)
        if plan.shape == "baseline":
            return defaultdict(int, wall_s=10.0, workloads=100), True
        return defaultdict(int, wall_s=seconds, workloads=300), finished

    monkeypatch.setattr(topology_end_to_end.throughput, "run", measured)
    status = main(["topology", "--end-to-end", "--scale", "0.1", "--timeout", "60"])
    assert status == (0 if passed else 1)
    assert [(plan.shape, plan.scale, plan.timeout_s) for plan in plans] == [
        ("baseline", 0.1, 60.0),
        ("topology", 0.1, 60.0),
    ]
    figures: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (figures["benchmark"], figures["scale"]) == ("topology", 0.1)
    assert figures["end_to_end_ratio"] == round(seconds / 30, 2)
    assert (figures["baseline"]["wall_s"], figures["topology"]["wall_s"]) == (10.0, seconds)


@pytest.mark.parametrize(
    ("free", "counts", "most"),
    [
        ([4, 4], [4, 4], 2),
        ([4, 4], [5, 3], 1),
        ([3, 3], [2, 2, 2], 2),
        ([1, 1], [2], 0),
        ([6, 2], [3, 3, 2], 3),
    ],
)
def test_most_jobs_in_one_rack_are_found(free: list[int], counts: list[int], most: int) -> None:
    assert topology.most_in_one_rack(free, counts) == most
