"""The schema of the chart's value `config`: helm refuses configurations that a process would refuse."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from admitq_api.configuration import KIND
from admitq_api.labels import names_for
from generators.chart_schema import SET_BY_CHART
from localcluster import custom_kinds
from tests.e2e.conftest import CHART, REPOSITORY
from tests.e2e.test_docs import blocks

CASES = yaml.safe_load((REPOSITORY / "tests/unit/api/cases/configuration.yaml").read_text())
FILES = yaml.safe_load((REPOSITORY / "tests/unit/api/cases/configuration_files.yaml").read_text())

Template = Callable[..., subprocess.CompletedProcess[str]]

INVALID: tuple[tuple[dict[str, Any], str], ...] = (
    ({"managedJobs": True}, "at '/config': additional properties 'managedJobs' not allowed"),
    ({"waitForPodsReady": {"timout": "5m"}}, "at '/config/waitForPodsReady': additional properties 'timout'"),
    (
        {"waitForPodsReady": {"requeuingStrategy": {"backoffLimit": 3}}},
        "at '/config/waitForPodsReady/requeuingStrategy': additional properties 'backoffLimit'",
    ),
    (
        {"integrations": {"custom": [{**custom_kinds.configured()[0], "podSet": []}]}},
        "at '/config/integrations/custom/0': additional properties 'podSet'",
    ),
    ({"featureGates": {"PartialAdmision": True}}, "at '/config/featureGates': additional properties"),
    (
        {"managedJobsNamespaceSelector": {"matchLabel": {"team": "a"}}},
        "at '/config/managedJobsNamespaceSelector': additional properties 'matchLabel'",
    ),
    ({"waitForPodsReady": {"timeout": 300}}, "at '/config/waitForPodsReady/timeout': got number, want"),
    (
        {"waitForPodsReady": {"timeout": "5 minutes"}},
        "at '/config/waitForPodsReady/timeout': '5 minutes' does not match pattern",
    ),
    ({"manageJobsWithoutQueueName": "true"}, "at '/config/manageJobsWithoutQueueName': got string, want"),
    ({"integrations": {"frameworks": "batch/job"}}, "at '/config/integrations/frameworks': got string, want"),
    ({"clientConnection": {"burst": 1.5}}, "at '/config/clientConnection/burst': got number, want"),
    ({"metrics": "on"}, "at '/config/metrics': got string, want"),
    ({"featureGates": {"PartialAdmission": "off"}}, "at '/config/featureGates/PartialAdmission': got string"),
    ({"tls": {"minVersion": "VersionTLS11"}}, "at '/config/tls/minVersion': value must be one of"),
    ({"fairSharing": {}}, "at '/config/fairSharing': missing property 'preemptionStrategies'"),
)


@pytest.mark.parametrize(("config", "message"), INVALID)
def test_invalid_configuration_is_refused_with_its_path(
    config: dict[str, Any], message: str, template: Template
) -> None:
    answer = template({"config": config}, check=False)
    assert answer.returncode != 0, "it was rendered"
    assert message in answer.stderr


def nested(path: str, value: Any) -> dict[str, Any]:
    first, _, rest = path.partition(".")
    return {first: nested(rest, value) if rest else value}


def without(config: Mapping[str, Any], path: str) -> dict[str, Any]:
    first, _, rest = path.partition(".")
    result = dict(config)
    if rest and isinstance(result.get(first), dict):
        result[first] = without(result[first], rest)
    elif not rest:
        result.pop(first, None)
    return result


def documented() -> Iterator[dict[str, Any]]:
    """Every configuration file in the documentation."""
    for block in blocks("yaml"):
        if f"kind: {KIND}\n" in block.text:
            yield yaml.safe_load(block.text)


def accepted() -> Iterator[dict[str, Any]]:
    """Every valid configuration file of the documentation and of the unit tests."""
    yield from documented()
    for case in CASES["values"]:
        # A process ignores an unknown field without value; helm reports it.
        if case["taken"] is not None:
            yield nested(case["field"], case["taken"])
    for case in FILES:
        file = yaml.safe_load(case["file"]) if "reads" in case else {}
        if file.get("apiVersion") == names_for(file.get("apiGroup", "kueue.x-k8s.io")).config_api_version:
            yield file


def as_values(config: Mapping[str, Any]) -> dict[str, Any]:
    for path in SET_BY_CHART:
        config = without(config, path)
    return {"config": dict(config)}


def test_documented_configurations_are_rendered(template: Template) -> None:
    for config in documented():
        template(as_values(config))


def test_every_accepted_configuration_passes_the_schema(tmp_path: Path) -> None:
    files = list[str]()
    for number, config in enumerate(accepted()):
        files.append(str(tmp_path / f"{number}.json"))
        Path(files[-1]).write_text(json.dumps(as_values(config)))
    assert len(files) > 60
    schema = ["--schemafile", str(CHART / "values.schema.json")]
    check = [sys.executable, "-m", "check_jsonschema", *schema, *files]
    answer = subprocess.run(check, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout
