"""Simulation of queues: the core decides on manifests and a scenario, on a virtual clock.

``read`` returns the plan of a run from files, ``Simulation`` runs it, ``report`` returns the measurements.
Nothing here reads a clock or the environment: the same files and the same seed give the same report.
"""

from admitq.manifests.documents import InputError
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
