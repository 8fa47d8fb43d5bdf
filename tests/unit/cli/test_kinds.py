"""`admitq kinds` tells what the registry holds."""

import json
from dataclasses import replace

from typer.testing import CliRunner

from admitq.cli.commands import application
from admitq.integrations.abilities import ABILITIES, described
from admitq.integrations.kinds.job import JOB
from admitq.integrations.registry import registered


def asked(*arguments: str) -> str:
    answer = CliRunner().invoke(application, ["kinds", *arguments], env={"COLUMNS": "200"})
    assert answer.exit_code == 0
    return answer.stdout


def test_json_tells_every_kind_with_every_ability() -> None:
    rows = json.loads(asked("--json"))
    assert [row["framework"] for row in rows] == [one.framework for one in registered()]
    assert rows[0] == {
        "framework": "batch/job",
        "apiVersion": "batch/v1",
        "kind": "Job",
        "gate": None,
        "partialAdmission": True,
        "elastic": True,
        "reclaimablePods": True,
        "prebuiltWorkload": True,
        "otherClusters": True,
        "ownPriorityClass": False,
    }


def test_the_table_has_a_line_for_every_kind() -> None:
    lines = asked().splitlines()
    for one in registered():
        (line,) = [line for line in lines if line.split()[:1] == [one.framework]]
        for ability in ABILITIES:
            assert (ability.title in line) == ability.has(one)


def test_an_ability_that_a_kind_lacks_is_not_told() -> None:
    bare = replace(JOB, with_counts=None, managed_by_path=None, can_be_elastic=False)
    told = described(bare)
    assert [told[key] for key in ("partialAdmission", "otherClusters", "elastic")] == [False, False, False]
