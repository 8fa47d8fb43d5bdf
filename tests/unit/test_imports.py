"""Rules of imports that import-linter cannot express: an allowlist, and modules that are loaded late."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

REPOSITORY = Path(__file__).parents[2]

ALLOWED_IN_CORE = {
    "abc", "bisect", "collections", "collections.abc", "contextlib", "dataclasses", "enum", "fractions",
    "functools", "heapq", "itertools", "math", "operator", "typing",
}  # fmt: skip
"""The modules outside of admitq.core that the core may import. None of them reads a clock, does input or
output, draws random numbers, or starts threads or processes."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("admitq", "admitq_api", "admitq_webhooks", include_external_packages=True)


def _imported_modules(source: str) -> set[str]:
    """Return the modules that the text of a module imports, wherever the import stands."""
    imported: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.add("." * node.level + (node.module or ""))
    return imported


def _is_allowed_in_core(module: str) -> bool:
    return module in ALLOWED_IN_CORE or module == "admitq.core" or module.startswith("admitq.core.")


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "admitq" / "core").rglob("*.py")), ids=lambda path: path.stem
)
def test_module_of_core_imports_only_core_and_allowed_modules(path: Path) -> None:
    imported = _imported_modules(path.read_text())
    assert [module for module in sorted(imported) if not _is_allowed_in_core(module)] == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from admitq.translate import messages",
        "from admitq import translate",
        "from . import model",
        "import admitq.core.model, os.path",
        "def read():\n    from pathlib import Path",
        "from admitq.core_of_another import model",
    ],
)
def test_import_that_is_not_allowed_in_core_is_found(source: str) -> None:
    assert not all(map(_is_allowed_in_core, _imported_modules(source)))


@pytest.mark.parametrize(
    "module", ["admitq.cli", "admitq.app", "admitq.manager", "admitq.controllers", "admitq_webhooks.routes"]
)
def test_kubernetes_asyncio_is_not_loaded_until_needed(module: str) -> None:
    loaded = f"import sys, {module}; print('kubernetes_asyncio' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


@pytest.mark.parametrize("module", ["admitq.simulator", "rich.progress", "yaml"])
def test_command_line_loads_modules_of_a_command_only_when_it_runs(module: str) -> None:
    loaded = f"import sys, admitq.cli; print({module!r} in sys.modules)"
    result = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


LATE_IN_PLUGIN = (
    "aiohttp",
    "asyncio",
    "importlib.metadata",
    "kubernetes_asyncio",
    "orjson",
    "pydantic",
    "rich",
    "structlog",
    "typer",
)
"""Modules with which the plugin would not start within 0.2 s."""


@pytest.mark.parametrize("arguments", [("--help",), ("version", "--client"), ("stop", "cq", "--help")])
def test_plugin_of_kubectl_loads_large_modules_only_when_a_command_needs_them(
    arguments: tuple[str, ...],
) -> None:
    program = (
        f"import atexit, sys; from admitq.plugin import main; late = {LATE_IN_PLUGIN}; "
        "atexit.register(lambda: print([name for name in late if name in sys.modules])); "
        f"sys.argv = ['kubectl-admitq', *{arguments}]; main()"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_plugin_of_kubectl_prints_to_a_terminal_with_other_characters() -> None:
    program = "import sys; from admitq.plugin import main; sys.argv = ['x', 'stop', 'cq', '\u2192']; main()"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "KUBECONFIG": "/missing\u2192"}
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment
    )
    assert (result.returncode, result.stderr[:7]) == (1, "error: ")


NOT_AT_START = {
    "admitq.adoption": "another command",
    "admitq.cli.commands": "parsing of command lines; a process with a plain line needs none of it",
    "admitq.simulator": "another command",
    "admitq_api.kinds.workload": "wire types are only for generating CRDs, and their models load slowly",
    "admitq_api.schema": "as admitq_api.kinds.workload",
    "aiohttp.web": "a framework for applications; admitq uses only the protocol of aiohttp",
    "hypothesis": "tests",
    "kubernetes_asyncio": "only some kubeconfigs need it, and it takes seconds",
    "multiprocessing": "admitq starts no processes",
    "pygments": "colours",
    "rich": "tables, bars and colours",
    "typer": "as admitq.cli.commands",
    "unittest": "tests",
}
"""Modules that no process may load before it serves, with the reason. A process must be ready in 1.5 s."""


@pytest.fixture(scope="module")
def loaded_at_start() -> set[str]:
    program = (
        "import sys; from admitq.cli import main; from admitq import app; "
        "app.run = lambda *_: print(*sys.modules); sys.argv = ['admitq', 'all-in-one']; main()"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


@pytest.mark.parametrize("module", NOT_AT_START)
def test_process_starts_without_loading_module(loaded_at_start: set[str], module: str) -> None:
    assert "admitq.app.process" in loaded_at_start
    assert module not in loaded_at_start, NOT_AT_START[module]


def test_installed_pydantic_plugin_is_not_loaded_by_configuration(tmp_path: Path) -> None:
    metadata = tmp_path / "plugin-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[pydantic]\nplugin = plugin:plugin\n")
    (tmp_path / "plugin.py").write_text("plugin = None\n")
    program = (
        "import atexit, sys; from admitq.cli import main; "
        "report = lambda: print('admitq_api.configuration' in sys.modules, 'plugin' in sys.modules); "
        "atexit.register(report); "
        "sys.argv = ['admitq', 'all-in-one', '--config=/no/such/file']; main()"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths}
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment
    )
    assert result.stdout.split() == ["True", "False"], result.stderr


def test_simulation_does_not_load_modules_of_other_output() -> None:
    program = (
        "import sys; from admitq.cli.output import OutputFormat; from admitq.cli.simulate import simulate; "
        "simulate(['preemption'], output=OutputFormat.JSON, until='1s'); "
        "print(*sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(result.stdout.rpartition("}")[2].split())
    late = {"admitq.simulator.table", "admitq.simulator.plots", "vl_convert", "admitq_api.kinds.workload"}
    assert not loaded & {*late, "admitq_api.configuration"}
    assert "admitq_api.kinds.cluster_queue" in loaded


def test_simulator_does_not_import_modules_that_call_a_cluster(graph: grimp.ImportGraph) -> None:
    simulator = {"admitq.simulator"} | graph.find_descendants("admitq.simulator")
    reached = set[str]().union(*(graph.find_upstream_modules(module) for module in simulator))
    assert not {"admitq.runtime", "admitq.runtime.client", "admitq.manager", "aiohttp", "asyncio"} & reached
