"""Errors of invalid input name file, line and field. Cases are in cases/refusals.yaml."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from admitq.simulator import InputError, read
from tests.unit.simulator.stage import WORLD, plan, scenario, write

CASES: Mapping[str, Mapping[str, Mapping[str, str]]] = yaml.safe_load(
    (Path(__file__).parent / "cases" / "refusals.yaml").read_text()
)

CLASS = """\
runTime: 1m
workloads:
  - {name: a, queue: team/main, requests: {cpu: 1}}
"""

EMPTY_SCENARIO = scenario("description: none")

JOB = """\
---
apiVersion: batch/v1
kind: Job
metadata:
  name: one
  namespace: team
  labels:
    admitq.dev/queue-name: main
spec:
  template:
    spec:
      containers:
        - name: main
          resources:
            requests:
              cpu: 1
"""


def cases(section: str) -> Any:
    return pytest.mark.parametrize("case", CASES[section].values(), ids=CASES[section])


def refusal(folder: Path, spec: str, world: str = WORLD) -> str:
    """Return the message of the error, without the folder of the file."""
    with pytest.raises(InputError) as error:
        plan(folder, spec, world)
    return str(error.value).replace(f"{folder}/", "")


def changed(text: str, case: Mapping[str, str]) -> str:
    assert case["instead of"] in text
    return text.replace(case["instead of"], case["with"], 1)


@cases("scenarios")
def test_invalid_scenario_is_refused(tmp_path: Path, case: Mapping[str, str]) -> None:
    assert refusal(tmp_path, case["spec"]).startswith(case["message"])


@cases("world")
def test_invalid_manifest_is_refused(tmp_path: Path, case: Mapping[str, str]) -> None:
    message = refusal(tmp_path, CLASS, changed(WORLD, case))
    assert message.startswith("scenario.yaml:")
    assert case["message"] in message


@cases("job")
def test_invalid_job_is_refused(tmp_path: Path, case: Mapping[str, str]) -> None:
    message = refusal(tmp_path, "runTime: 1m", WORLD + changed(JOB, case))
    assert message.startswith("scenario.yaml:")
    assert case["message"] in message


def test_job_without_run_time_is_refused_with_a_remedy(tmp_path: Path) -> None:
    message = refusal(tmp_path, "description: none", WORLD + JOB)
    remedy = "set runTime of the scenario, or refer to it in workloads"
    assert message.endswith(f"Job team/one: its run time is not set: {remedy}")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([WORLD], "file-0.yaml: no document of kind Scenario in any of the files: add one"),
        (
            [EMPTY_SCENARIO, EMPTY_SCENARIO],
            "file-1.yaml:2: kind: there is a Scenario already, at file-0",
        ),
        (["kind: Scenario\nspec: {}\n"], "file-0.yaml:1: apiVersion: write simulation.admitq.dev/v1alpha1"),
        (
            [EMPTY_SCENARIO.replace("spec:", "specs:")],
            "file-0.yaml:3: specs: unknown field: fields of the scenario belong under spec",
        ),
        (
            [
                scenario(CLASS),
                WORLD,
                "apiVersion: config.admitq.dev/v1beta2\nkind: Configuration\nfairSharing: {}\n",
            ],
            "file-2.yaml:3: fairSharing.preemptionStrategies: is required",
        ),
    ],
)
def test_invalid_combination_of_files_is_refused(tmp_path: Path, texts: list[str], message: str) -> None:
    paths: list[Path] = []
    for index, text in enumerate(texts):
        paths.append(tmp_path / f"file-{index}.yaml")
        paths[-1].write_text(text)
    with pytest.raises(InputError) as error:
        read(paths)
    assert str(error.value).replace(f"{tmp_path}/", "").startswith(message)


def test_all_errors_of_a_document_are_reported_at_once(tmp_path: Path) -> None:
    lines = refusal(tmp_path, "repeat: many\nuntil: never\nkills: [{at: 1m, then: Rest}]").splitlines()
    assert [line.split(": ")[1] for line in lines] == ["spec.until", "spec.repeat", "spec.kills[0].then"]


def test_manifest_of_unsupported_kind_is_left_out_and_counted(tmp_path: Path) -> None:
    extra = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n"
    assert plan(tmp_path, CLASS, WORLD + extra).left_out == {"Deployment (apps/v1)": 1}


def test_manifests_are_read_from_files_that_scenario_names(tmp_path: Path) -> None:
    (tmp_path / "world.yaml").write_text(WORLD)
    path = tmp_path / "scenario.yaml"
    path.write_text(scenario(f"manifests: [world.yaml]\n{CLASS}"))
    assert len(read([path]).start) == len(read([write(tmp_path, CLASS)]).start)


def test_scenario_of_other_api_group_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, CLASS)
    path.write_text(path.read_text().replace("admitq.dev", "kueue.x-k8s.io"))
    assert read([path]).names.group == "kueue.x-k8s.io"


def test_repeated_objects_are_created_for_every_combination_of_counters(tmp_path: Path) -> None:
    spec = """
        repeat:
          - over: {cohort: 2, queue: 3}
            objects:
              - apiVersion: admitq.dev/v1beta2
                kind: LocalQueue
                metadata: {name: "q-${cohort}-${queue}", namespace: team}
                spec: {clusterQueue: queue}
        runTime: 1m
        workloads:
          - {name: a, queue: team/q-1-*, requests: {cpu: 1}}
        """
    prefixes = [source.prefix for source in plan(tmp_path, spec).sources]
    assert prefixes == ["a-team-q-1-0", "a-team-q-1-1", "a-team-q-1-2"]
