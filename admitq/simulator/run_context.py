"""What the parts of a run share: the plan, the clock, the core, and where changes are recorded."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from admitq.core.asking.effects import revise_workload
from admitq.core.events import Event, WorkloadChanged
from admitq.core.model import Workload
from admitq.core.state import AdmissionState
from admitq.simulator.clock import VirtualClock
from admitq.simulator.measures import Measures
from admitq.simulator.plan import SimulationPlan
from admitq.simulator.simulated_workload import SimulatedWorkload
from admitq.simulator.timeline import Timeline, TimelineEvent
from admitq.simulator.topology_measures import TopologyMeasures


@dataclass(frozen=True, slots=True, eq=False)
class RunContext:
    """What the parts of a run share.

    Attributes:
        plan: what is submitted and killed.
        clock: the virtual clock.
        state: the core.
        measures: the measurements of the run.
        topologies: the measurements of topologies.
        observe: reports an event to the core.
        timeline: the destination of the events of workloads.
    """

    plan: SimulationPlan
    clock: VirtualClock
    state: AdmissionState
    measures: Measures
    topologies: TopologyMeasures
    observe: Callable[[Event], None]
    timeline: Timeline | None = None

    @property
    def places_pods(self) -> bool:
        """Whether pods are placed in topologies."""
        return self.plan.settings.placement is not None

    def set(self, simulated: SimulatedWorkload, workload: Workload) -> None:
        """Set the present value of a workload, and report it to the core."""
        simulated.workload = workload
        self.observe(WorkloadChanged(workload))

    def revise(self, simulated: SimulatedWorkload, **changes: Any) -> None:
        """Change fields of a workload, and report it to the core."""
        self.set(simulated, revise_workload(simulated.workload, **changes))

    def hold(self, simulated: SimulatedWorkload) -> None:
        """Measure the usage of a workload as the core counts it."""
        usage = self.state.queries.usage_of_workload(simulated.workload.key)
        self.measures.usage_changed(simulated, usage, self.clock.now)

    def record(self, event: TimelineEvent, simulated: SimulatedWorkload, detail: str = "") -> None:
        """Write an event of a workload to the timeline."""
        if self.timeline is not None:
            self.timeline.write(self.clock.now, event, simulated, detail)
