"""The table of generators. Each returns the texts of its files."""

from collections.abc import Callable
from pathlib import Path

from generators import (
    api_reference,
    chart,
    chart_schema,
    performance_page,
    pictures,
    pod_template,
    reference_tables,
    scenario_reference,
    take_over,
    tested_versions,
    versions_reference,
    wait_states_page,
)

Generator = Callable[[], dict[Path, str]]
"""Returns the contents of files, by path in the repository."""

GENERATORS: tuple[Generator, ...] = (
    pod_template.outputs,
    api_reference.outputs,
    versions_reference.outputs,
    chart.outputs,
    chart_schema.outputs,
    reference_tables.outputs,
    scenario_reference.outputs,
    pictures.outputs,
    performance_page.outputs,
    take_over.outputs,
    tested_versions.outputs,
    wait_states_page.outputs,
)
"""All generators, in order: later ones read files of earlier ones."""
