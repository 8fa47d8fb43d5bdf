"""Events that repeat on the control plane: one event with a series, whatever their notes say."""

from collections.abc import Mapping
from typing import Any, Final

from tests.controlplane.play import Case, play
from tests.controlplane.stage import Stage

VICTIMS: Final = tuple(f"low-{number}" for number in range(8))
PREEMPTION: Final[tuple[Mapping[str, Any], ...]] = (
    {"queue": {"cq": {"cpu": len(VICTIMS), "preemption": {"withinClusterQueue": "LowerPriority"}}}},
    {"workload": {name: {"queue": "cq", "cpu": 1, "priority": 1} for name in VICTIMS}},
    {"admitted": VICTIMS},
    {"workload": {"high": {"queue": "cq", "cpu": len(VICTIMS), "priority": 9}}},
    {"release": VICTIMS},
    {"events": {"high": {"Admitted": "Admitted by ClusterQueue $cq, wait time since reservation was Ns"}}},
)


async def test_d21_preemption_of_eight_victims_records_one_event_about_preemptor(stage: Stage) -> None:
    await play(stage, Case("eight victims", (), PREEMPTION))
    # Events are written in the order in which they were recorded, so this one was written before Admitted.
    about_preemptor = [reason for reason, _ in await stage.events("Workload", "high")]
    assert about_preemptor.count("PreemptedWorkload") == 1
    for name in VICTIMS:
        assert [reason for reason, _ in await stage.events("Workload", name)].count("Preempted") == 1
