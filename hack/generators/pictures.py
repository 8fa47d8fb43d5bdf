"""Generate the pictures of docs/concepts from the shipped scenarios.

The pictures are plots of `admitq simulate NAME --plots FOLDER`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from admitq.simulator import Simulation, read, shipped_scenarios
from admitq.simulator.plots import plots

FOLDER: Final = Path("docs/concepts/pictures")

SHOWN: Final[Mapping[str, Mapping[str, str]]] = {
    "borrowing": {"use": "use-default-cpu", "depth": "queue-depth"},
    "preemption": {"use": "use-default-cpu", "waits": "waits"},
    "fair-sharing": {"use": "use-default-cpu"},
    "topology-640": {"racks": "racks-batch", "room": "room-batch"},
}
"""The names of pictures and their plots, by scenario."""


def outputs() -> dict[Path, str]:
    """Return the pictures."""
    files: dict[Path, str] = {}
    for scenario, shown in SHOWN.items():
        simulation = Simulation(read([shipped_scenarios()[scenario]]))
        simulation.run()
        drawn = plots(simulation)
        files |= {
            FOLDER / f"{scenario}-{name}.svg": drawn[f"{picture}.svg"] for name, picture in shown.items()
        }
    return files
