"""`admitq kinds` tells what the registry holds."""

import json
from dataclasses import replace
from pathlib import Path

import yaml
from typer.testing import CliRunner

from admitq.cli.commands import application
from admitq.cli.processes import CONFIGURATION_ERROR
from admitq.integrations.capabilities import CAPABILITIES, describe_kind
from admitq.integrations.kinds.job import JOB
from admitq.integrations.registry import load_integrations
from localcluster.custom_kinds import configured


def asked(*arguments: str) -> str:
    answer = CliRunner().invoke(application, ["kinds", *arguments], env={"COLUMNS": "80"})
    assert answer.exit_code == 0
    return answer.stdout


def test_json_lists_every_kind_with_every_ability() -> None:
    rows = json.loads(asked("--output=json"))
    assert [row["framework"] for row in rows] == [one.framework for one in load_integrations()]
    assert rows[0] == {
        "framework": "batch/job",
        "apiVersion": "batch/v1",
        "kind": "Job",
        "gate": None,
        "partialAdmission": True,
        "elastic": True,
        "reclaimablePods": True,
        "prebuiltWorkload": True,
        "otherClusters": False,
        "ownPriorityClass": False,
    }


def test_the_table_has_a_line_for_every_kind() -> None:
    lines = asked().splitlines()
    for one in load_integrations():
        (line,) = [line for line in lines if line.split()[:1] == [one.framework]]
        for ability in CAPABILITIES:
            assert (ability.title in line) == ability.is_supported_by(one)


def test_missing_ability_of_a_kind_is_not_listed() -> None:
    bare = replace(
        JOB,
        scaling=replace(JOB.scaling, with_pod_counts=None, can_be_elastic=False),
        delegation=replace(JOB.delegation, managed_by_path=None),
    )
    told = describe_kind(bare)
    assert [told[key] for key in ("partialAdmission", "elastic")] == [False, False]


def test_an_ability_without_controller_is_marked_as_not_yet() -> None:
    (line,) = [line for line in asked().splitlines() if line.split()[:1] == [JOB.framework]]
    assert "other clusters (not yet)" in line
    assert describe_kind(JOB)["otherClusters"] is False


def test_configured_kinds_are_listed_too(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    head = {"apiVersion": "config.admitq.dev/v1beta2", "kind": "Configuration"}
    file.write_text(yaml.safe_dump({**head, "integrations": {"custom": configured()}}))
    rows = json.loads(asked("--output=json", "--config", str(file)))
    told = [(row["framework"], row["partialAdmission"]) for row in rows[len(load_integrations()) :]]
    assert told == [("example.com/training", False), ("tasks.example.com/job", True)]
    (line,) = [line for line in asked("--config", str(file)).splitlines() if "tasks.example.com/job" in line]
    assert "tasks.example.com/v1alpha1" in line


def test_a_configuration_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "apiVersion: config.admitq.dev/v1beta2\nkind: Configuration\nintegrations: {custom: [{}]}\n"
    )
    answer = CliRunner().invoke(application, ["kinds", "--config", str(file)])
    assert answer.exit_code == CONFIGURATION_ERROR
    assert "integrations.custom[0].group: is required" in answer.stderr
