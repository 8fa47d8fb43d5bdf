"""The second shell of the core: manifests and a scenario on a virtual clock, measured.

``read`` makes a ``Plan`` of files, ``Simulation`` plays it, ``report`` tells how it went. Nothing here reads
a clock or the environment: the same files and the same seed give the same report, to the last byte.
"""

from admitq.simulator.documents import InputError
from admitq.simulator.plan import SimulationPlan, read
from admitq.simulator.report import Report, report
from admitq.simulator.run import Simulation
from admitq.simulator.shipped import shipped_descriptions, shipped_scenarios, similar_scenario

__all__ = [
    "InputError",
    "Report",
    "Simulation",
    "SimulationPlan",
    "read",
    "report",
    "shipped_descriptions",
    "shipped_scenarios",
    "similar_scenario",
]
