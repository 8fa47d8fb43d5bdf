"""Small worlds for tests of the simulator: one ClusterQueue with 4 CPU, and the parts that a test adds."""

from pathlib import Path
from textwrap import dedent, indent

from admitq.simulator import Simulation, SimulationPlan, read
from admitq.simulator.schema import Nanoseconds
from admitq.simulator.simulated_workload import SimulatedWorkload
from admitq.simulator.timeline import TimelineEvent

WORLD = """\
apiVersion: admitq.dev/v1beta2
kind: ResourceFlavor
metadata:
  name: default
---
apiVersion: admitq.dev/v1beta2
kind: ClusterQueue
metadata:
  name: queue
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [cpu]
      flavors:
        - name: default
          resources:
            - name: cpu
              nominalQuota: 4
---
apiVersion: admitq.dev/v1beta2
kind: LocalQueue
metadata:
  name: main
  namespace: team
spec:
  clusterQueue: queue
---
apiVersion: admitq.dev/v1beta2
kind: WorkloadPriorityClass
metadata:
  name: high
value: 100
"""


def scenario(spec: str) -> str:
    """Return a scenario with this spec. The first line of the spec is line 5 of the file."""
    head = "apiVersion: simulation.admitq.dev/v1alpha1\nkind: Scenario\nspec:\n  seed: 1\n"
    return f"{head}{indent(dedent(spec).strip(chr(10)), '  ')}\n"


def write(folder: Path, spec: str, world: str = WORLD) -> Path:
    """Write a scenario and a world to one file."""
    path = folder / "scenario.yaml"
    path.write_text(f"{scenario(spec)}---\n{world}")
    return path


def plan(folder: Path, spec: str, world: str = WORLD) -> SimulationPlan:
    return read([write(folder, spec, world)])


class RecordedTimeline:
    """Timeline as lines of text: seconds, event and object."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(
        self, now: Nanoseconds, event: TimelineEvent, simulated: SimulatedWorkload, detail: str
    ) -> None:
        self.lines.append(f"{now / 1e9:g} {event} {simulated.workload.key.name}")

    def close(self) -> None:
        pass

    def lines_of(self, *events: TimelineEvent) -> list[str]:
        return [line for line in self.lines if line.split()[1] in events]


def run_scenario(folder: Path, spec: str, world: str = WORLD) -> tuple[Simulation, RecordedTimeline]:
    """Run a scenario to its end."""
    timeline = RecordedTimeline()
    simulation = Simulation(plan(folder, spec, world), timeline)
    simulation.run()
    simulation.state.validate()
    return simulation, timeline
