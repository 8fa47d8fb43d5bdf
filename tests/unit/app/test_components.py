"""The components that a command runs."""

import pytest
from typer.testing import CliRunner

from admitq.app.components import (
    COMMANDS,
    LEASED_COMPONENTS,
    Component,
    select_components,
    select_shadow_components,
)
from admitq.cli.commands import application
from admitq.cli.processes import CONFIGURATION_ERROR, PROCESSES

WEBHOOK, CORE, JOBS, CYCLE, TOPOLOGY, VISIBILITY = Component


def test_every_process_command_has_its_components() -> None:
    assert set(COMMANDS) == set(PROCESSES)
    assert set(COMMANDS["manager"]) == LEASED_COMPONENTS


@pytest.mark.parametrize(
    ("command", "flag", "components"),
    [
        ("all-in-one", None, (WEBHOOK, CORE, JOBS, CYCLE, TOPOLOGY)),
        ("manager", None, (CORE, JOBS, CYCLE, TOPOLOGY)),
        ("webhook", None, (WEBHOOK,)),
        ("visibility", None, (VISIBILITY,)),
        ("all-in-one", "webhook,core,jobs,cycle,topology", (WEBHOOK, CORE, JOBS, CYCLE, TOPOLOGY)),
        ("all-in-one", " cycle , webhook,cycle", (WEBHOOK, CYCLE)),
        ("all-in-one", "core", (CORE,)),
        ("all-in-one", "topology", (TOPOLOGY,)),
        ("all-in-one", "jobs", (JOBS,)),
        ("all-in-one", "core,cycle", (CORE, CYCLE)),
        ("manager", "core,topology", (CORE, TOPOLOGY)),
        ("manager", "jobs", (JOBS,)),
        ("webhook", "webhook", (WEBHOOK,)),
    ],
)
def test_e_components_flag_selects_components_of_command(
    command: str, flag: str | None, components: tuple[Component, ...]
) -> None:
    assert select_components(command, flag) == components


@pytest.mark.parametrize(
    ("command", "flag", "problem"),
    [
        (
            "all-in-one",
            "scheduler",
            "--components: 'scheduler' is unknown: choose from webhook, core, jobs, cycle",
        ),
        ("all-in-one", "webhook,,core", "--components: '' is unknown"),
        ("all-in-one", "Webhook", "--components: 'Webhook' is unknown"),
        (
            "all-in-one",
            "",
            "--components: is empty: name one or more of webhook, core, jobs, cycle, topology",
        ),
        (
            "manager",
            "webhook",
            "--components: 'webhook' is not a component of admitq manager: choose from core, jobs, cycle",
        ),
        ("webhook", "core", "--components: 'core' is not a component of admitq webhook: choose from webhook"),
    ],
)
def test_command_with_invalid_components_flag_fails(command: str, flag: str, problem: str) -> None:
    answer = CliRunner().invoke(application, [command, "--components", flag])
    assert answer.exit_code == CONFIGURATION_ERROR
    assert problem in answer.stderr


@pytest.mark.parametrize("command", ["manager", "all-in-one"])
def test_shadow_runs_every_component_except_webhook(command: str) -> None:
    assert select_shadow_components(command, None) == (CORE, JOBS, CYCLE, TOPOLOGY)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["webhook", "--shadow"],
            "--shadow: admitq webhook makes no decisions that a shadow could compare",
        ),
        (["manager", "--shadow", "--components=core"], "--shadow: cannot be combined with --components"),
    ],
)
def test_command_with_shadow_flag_that_cannot_compare_fails(arguments: list[str], problem: str) -> None:
    answer = CliRunner().invoke(application, arguments)
    assert answer.exit_code == CONFIGURATION_ERROR
    assert problem in answer.stderr


@pytest.mark.parametrize("arguments", [["visibility", "--feature-gates=VisibilityOnDemand=false"]])
def test_visibility_api_does_not_start_without_its_feature_gate(arguments: list[str]) -> None:
    answer = CliRunner().invoke(application, arguments)
    assert answer.exit_code == CONFIGURATION_ERROR
    assert "feature gate VisibilityOnDemand is off" in answer.stderr
