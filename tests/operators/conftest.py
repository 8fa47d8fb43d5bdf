"""Fixtures: admitq beside a control plane with the operators of one kind, for all stories of this kind."""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any

import pytest

from admitq.integrations.registry import list_framework_names
from admitq.runtime.client import Client
from admitq_api.labels import names_for
from localcluster import binaries, operator_builds
from localcluster.cluster import LocalCluster, to_stderr
from localcluster.cluster_processes import ALL_COMPONENTS
from localcluster.installation import Installation
from localcluster.operator_processes import run_operators
from localcluster.operator_table import with_needs
from localcluster.pytest_plugin import fresh_namespace, keep_logs, owner_of_run
from tests.controlplane.stage import Stage
from tests.operators.operator_case import OperatorCase, excluded_stories, load_case, names, operators_of
from tests.operators.places import POOLS
from tests.operators.programs import CONTROLLER_MANAGER, ControllerManager, Program
from tests.operators.test_stories import STORY_OF

CONFIGURATION: Any = {
    "integrations": {"frameworks": list(list_framework_names())},
    # A Job replaces a failed pod after 10 s or more, and other operators recognize failures as slowly.
    "waitForPodsReady": {"timeout": "15s", "recoveryTimeout": "150s"},
    "featureGates": {"ElasticJobsViaWorkloadSlices": True, "SparkApplicationIntegration": True},
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the cases of the option, and build their operators before the timeout of any test starts."""
    option = str(config.getoption("--operators"))
    chosen = names() if option in {"", "all"} else option.split(",")
    if unknown := sorted(set(chosen).difference(names())):
        raise pytest.UsageError(f"--operators: {', '.join(unknown)} is none of {', '.join(names())}")
    left_out = [item for item in items if (case := _case_of(item)) is not None and case not in chosen]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    for item in items:
        name = getattr(item, "originalname", item.name)
        # Reports take it to the process that prints the summary.
        item.user_properties.append(("story", STORY_OF.get(name, name)))
    needed = {case for item in items if (case := _case_of(item)) is not None}
    if needed and not config.option.collectonly:
        binaries.build()
        operator_builds.build(with_needs(name for case in needed for name in operators_of(case)), to_stderr)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which stories of each case passed."""
    outcomes: dict[str, dict[str, str]] = {}
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, ()):
            id_ = str(report.nodeid).rstrip("]").partition("[")[2]
            # A test can have further parameters before or after the case.
            parts = id_.split("-")
            for case in {parts[0], parts[-1]} & set(names()):
                variant = "-".join(parts[1:] if case == parts[0] else parts[:-1])
                story = f"{dict(report.user_properties)['story']} {variant}".rstrip()
                outcomes.setdefault(case, {})[story] = outcome
    if outcomes:
        terminalreporter.section("stories with real operators")
    for case in sorted(outcomes):
        for outcome in ("passed", "failed", "error"):
            stories = sorted(story for story, found in outcomes[case].items() if found == outcome)
            if stories:
                terminalreporter.write_line(f"{case} {outcome}: {', '.join(stories)}")
        # Some kinds have their own test of a common story, with variants.
        without_variants = {story.partition(" ")[0] for story in outcomes[case]}
        for story, reason in excluded_stories(case).items():
            if story not in without_variants:
                terminalreporter.write_line(f"{case} cannot {story}: {reason}")


def _case_of(item: pytest.Item) -> str | None:
    call = getattr(item, "callspec", None)
    return None if call is None else call.params.get("case_name")


@dataclass(frozen=True)
class OperatedCluster:
    """A control plane with admitq and the operators of one kind."""

    cluster: LocalCluster
    installation: Installation
    programs: dict[str, Program]


@pytest.fixture(scope="session")
def case_name(request: pytest.FixtureRequest) -> str:
    """The name of the case under test."""
    return str(request.param)


@pytest.fixture(scope="session")
def operated(case_name: str, api_group: str, request: pytest.FixtureRequest) -> Generator[OperatedCluster]:
    """A control plane with admitq and the operators of the kind under test."""
    cluster = LocalCluster(f"test-{os.getpid()}-{case_name}")
    before = request.session.testsfailed
    cluster.start(POOLS, component_names=ALL_COMPONENTS, owner=owner_of_run(), say=lambda _: None)
    try:
        programs: dict[str, Program] = {**run_operators(cluster, operators_of(case_name), lambda _: None)}
        installation = Installation(cluster)
        installation.install(api_group=api_group, config=CONFIGURATION)
        installation.start()
        yield OperatedCluster(
            cluster, installation, programs or {CONTROLLER_MANAGER: ControllerManager(cluster)}
        )
    finally:
        if request.session.testsfailed > before:
            keep_logs(cluster)
        cluster.stop()


@pytest.fixture
def programs(operated: OperatedCluster) -> Generator[dict[str, Program]]:
    """The programs that run jobs of the kind, which a story may crash. They run again after it."""
    yield operated.programs
    for program in operated.programs.values():
        if not program.is_running:
            program.start()


@pytest.fixture
def case(case_name: str, api_group: str) -> OperatorCase:
    """The case under test."""
    return load_case(case_name, api_group)


@pytest.fixture
async def stage(
    operated: OperatedCluster, connect: Callable[[LocalCluster], Awaitable[Client]], api_group: str
) -> AsyncGenerator[Stage]:
    """A fresh namespace beside the operators."""
    client = await connect(operated.cluster)
    async with fresh_namespace(client) as namespace:
        yield Stage(client, names_for(api_group), namespace)
