"""What import-linter cannot say: what is allowed and nothing else, and what is loaded late."""

import os
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

PURE = {
    "abc", "bisect", "collections", "contextlib", "dataclasses", "enum", "fractions", "functools", "heapq",
    "itertools", "math", "operator", "typing",
}  # fmt: skip


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("admitq", "admitq_api", "admitq_webhooks", include_external_packages=True)


def test_core_imports_only_itself_and_what_cannot_touch_the_world(graph: grimp.ImportGraph) -> None:
    core = {"admitq.core"} | graph.find_descendants("admitq.core")
    imported = set[str]().union(*(graph.find_modules_directly_imported_by(module) for module in core))
    assert imported - core <= PURE


@pytest.mark.parametrize(
    "module", ["admitq.cli", "admitq.app", "admitq.manager", "admitq.controllers", "admitq_webhooks.routes"]
)
def test_foreign_kubernetes_client_is_not_loaded_until_needed(module: str) -> None:
    loaded = f"import sys, {module}; print('kubernetes_asyncio' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


@pytest.mark.parametrize("module", ["admitq.simulator", "rich.progress", "yaml"])
def test_the_command_line_loads_a_command_only_when_it_runs(module: str) -> None:
    loaded = f"import sys, admitq.cli; print({module!r} in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


NOT_AT_START = {
    "admitq.adoption": "another command",
    "admitq.cli.commands": "what explains command lines; a process whose line is plain needs none of it",
    "admitq.simulator": "another command",
    "admitq_api.kinds.workload": "wire types are for generating definitions, and cost their models",
    "admitq_api.schema": "the same",
    "aiohttp.web": "a framework for applications; only its protocol is used",
    "hypothesis": "tests",
    "kubernetes_asyncio": "only some kubeconfigs need it, and it takes seconds",
    "multiprocessing": "nothing runs beside",
    "pygments": "colours",
    "rich": "tables, bars and colours",
    "typer": "as admitq.cli.commands",
    "unittest": "tests",
}
"""What no process may load before it serves, and why. A process is to be ready in a second and a half."""


@pytest.fixture(scope="module")
def loaded_at_start() -> set[str]:
    started = (
        "import sys; from admitq.cli import main; from admitq import app; "
        "app.run = lambda *_: print(*sys.modules); sys.argv = ['admitq', 'all-in-one']; main()"
    )
    answer = subprocess.run([sys.executable, "-c", started], capture_output=True, text=True, check=True)
    return set(answer.stdout.split())


@pytest.mark.parametrize("module", NOT_AT_START)
def test_a_process_starts_without_what_is_heavy(loaded_at_start: set[str], module: str) -> None:
    assert "admitq.app.process" in loaded_at_start
    assert module not in loaded_at_start, NOT_AT_START[module]


def test_nothing_that_is_installed_takes_part_in_reading_the_configuration(tmp_path: Path) -> None:
    described = tmp_path / "meddler-1.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: meddler\nVersion: 1\n")
    (described / "entry_points.txt").write_text("[pydantic]\nmeddler = meddler:plugin\n")
    (tmp_path / "meddler.py").write_text("plugin = None\n")
    started = (
        "import atexit, sys; from admitq.cli import main; "
        "told = lambda: print('admitq_api.configuration' in sys.modules, 'meddler' in sys.modules); "
        "atexit.register(told); "
        "sys.argv = ['admitq', 'all-in-one', '--config=/no/such/file']; main()"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths}
    answer = subprocess.run(
        [sys.executable, "-c", started], capture_output=True, text=True, check=False, env=environment
    )
    assert answer.stdout.split() == ["True", "False"], answer.stderr


def test_a_simulation_loads_only_what_it_needs() -> None:
    played = (
        "import sys; from admitq.cli.simulate import simulate; "
        "simulate(['preemption'], as_json=True, until='1s', seed=None, timeline=None, plots=None); "
        "print(*sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", played], capture_output=True, text=True, check=True)
    loaded = set(answer.stdout.rpartition("}")[2].split())
    late = {"rich.console", "rich.table", "admitq.simulator.plots", "vl_convert", "admitq_api.kinds.workload"}
    assert not loaded & {*late, "admitq_api.configuration"}
    assert "admitq_api.kinds.cluster_queue" in loaded


def test_the_simulator_reaches_nothing_that_talks_to_a_cluster(graph: grimp.ImportGraph) -> None:
    simulator = {"admitq.simulator"} | graph.find_descendants("admitq.simulator")
    reached = set[str]().union(*(graph.find_upstream_modules(module) for module in simulator))
    assert not {"admitq.runtime", "admitq.runtime.client", "admitq.manager", "aiohttp", "asyncio"} & reached
