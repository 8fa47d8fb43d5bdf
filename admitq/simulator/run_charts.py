"""All charts of one run."""

from admitq.simulator.charts import Specification, queue_depth_chart, use_chart, waits_chart
from admitq.simulator.run import Simulation
from admitq.simulator.topology_charts import topology_charts


def charts(simulation: Simulation) -> dict[str, Specification]:
    """Return all charts of a run that has ended, by file name without suffix."""
    charts_by_name = {"queue-depth": queue_depth_chart(simulation), "waits": waits_chart(simulation)}
    for pair in sorted(simulation.measures.uses):
        charts_by_name[f"use-{pair.flavor}-{pair.resource.replace('/', '-')}"] = use_chart(simulation, pair)
    return charts_by_name | topology_charts(simulation)
