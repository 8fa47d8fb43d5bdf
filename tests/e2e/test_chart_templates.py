"""Rendering of the chart without a cluster, and values that it refuses."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from admitq.integrations.registry import list_framework_names
from admitq_api.configuration import load_configuration
from admitq_api.crds import create_crds
from admitq_api.feature_gates import Gate
from admitq_api.labels import COMPAT_GROUP, GROUPS, names_for
from admitq_api.webhook_names import get_conversion_service_name
from generators import chart_values
from localcluster import custom_kinds
from tests.e2e.conftest import CHART, KUBERNETES, Rendered

CASES = Path(__file__).parent / "cases"
MISSING = object()


def rows(name: str) -> list[Any]:
    loaded = yaml.load((CASES / f"{name}.yaml").read_text(), Loader=yaml.CSafeLoader)
    return [pytest.param(row, id=row["it"]) for row in loaded]


def value_at(value: Any, path: list[Any]) -> Any:
    """Follow keys and indexes. In a list, a step `{name: …}` selects the entry with these fields."""
    for step in path:
        if isinstance(step, Mapping):
            value = next((one for one in value if contains(one, step)), MISSING)
        elif isinstance(value, list):
            value = value[step] if step < len(value) else MISSING
        else:
            value = value.get(step, MISSING) if isinstance(value, Mapping) else MISSING
        if value is MISSING:
            return MISSING
    return value


def contains(whole: Any, part: Any) -> bool:
    if isinstance(whole, Mapping) and isinstance(part, Mapping):
        return all(key in whole and contains(whole[key], value) for key, value in part.items())
    return whole == part


@pytest.mark.parametrize("case", rows("chart"))
def test_chart_renders_the_expected_objects(case: dict[str, Any], render: Callable[..., Rendered]) -> None:
    rendered = render(
        case.get("values"),
        values_file=case.get("values_file"),
        release=case.get("release", "admitq"),
        namespace=case.get("namespace", "admitq-system"),
        api_versions=tuple(case.get("api_versions", ())),
    )
    assert not rendered.kinds & set(case.get("absent", ()))
    assert not rendered.objects.keys() & set(case.get("absent_objects", ()))
    for expected in case.get("expect", ()):
        assert expected["object"] in rendered.objects, sorted(rendered.objects)
        found = value_at(rendered.objects[expected["object"]], expected["at"])
        if expected.get("lacks"):
            assert found is MISSING, expected
        elif "is" in expected:
            assert found == expected["is"], expected
        else:
            wanted = expected["has"]
            assert found is not MISSING, expected
            assert contains(found, wanted) or any(contains(one, wanted) for one in found), (expected, found)


@pytest.mark.parametrize("case", rows("chart-refusals"))
def test_chart_refuses_invalid_values(
    case: dict[str, Any], template: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    answer = template(case["values"], check=False)
    assert answer.returncode != 0, "it was rendered"
    assert case["says"] in answer.stderr


VALUES_FILES = sorted((CHART / "ci").glob("*.yaml"))


@pytest.mark.parametrize("values", VALUES_FILES, ids=lambda path: path.stem)
def test_helm_lint_reports_nothing(
    values: Path, helm: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    helm("lint", "--strict", str(CHART), "--kube-version", KUBERNETES, "--values", str(values))


def test_configuration_change_restarts_pods(render: Callable[..., Rendered]) -> None:
    path = ["spec", "template", "metadata", "annotations", "checksum/config"]
    before = render().objects["Deployment/admitq-manager"]
    same = render({"manager": {"replicas": 3}}).objects["Deployment/admitq-manager"]
    after = render({"config": {"manageJobsWithoutQueueName": True}}).objects["Deployment/admitq-manager"]
    assert value_at(same, path) == value_at(before, path)
    assert value_at(after, path) != value_at(before, path)


@pytest.mark.parametrize("values", VALUES_FILES, ids=lambda path: path.stem)
def test_processes_accept_the_rendered_configuration_file(
    values: Path, render: Callable[..., Rendered]
) -> None:
    objects = render(values_file=values.stem.removesuffix("-values")).objects
    (file,) = [
        one for key, one in objects.items() if key.startswith("ConfigMap/") and key.endswith("-config")
    ]
    configuration = load_configuration(file["data"]["config.yaml"])
    certificates = configuration.internal_cert_management
    assert configuration.namespace == "admitq-system"
    assert f"MutatingWebhookConfiguration/{certificates.mutating_webhook_configuration_name}" in objects
    assert f"ValidatingWebhookConfiguration/{certificates.validating_webhook_configuration_name}" in objects
    assert f"Lease/{configuration.leader_election.resource_name}" in objects
    assert certificates.enable == (f"Secret/{certificates.webhook_secret_name}" in objects)


@pytest.mark.parametrize("group", GROUPS)
def test_rendered_crds_are_those_of_the_api_group(group: str, render: Callable[..., Rendered]) -> None:
    objects = render({"apiGroup": group}).objects
    rendered = {
        key.partition("/")[2]: one["spec"]
        for key, one in objects.items()
        if key.startswith("CustomResourceDefinition/")
    }
    names = names_for(group)
    service = {
        "name": get_conversion_service_name(names.webhook_objects.service),
        "namespace": "admitq-system",
        "path": "/convert",
        "port": 443,
    }
    expected = create_crds(group, converted_by={"service": service})
    assert rendered == {definition["metadata"]["name"]: definition["spec"] for definition in expected}


EVERYTHING: dict[str, Any] = {
    "config": {
        "featureGates": {gate.value: True for gate in Gate},
        "integrations": {"frameworks": list(list_framework_names()), "custom": custom_kinds.configured()},
    },
    "extraKinds": [{"group": "example.com", "version": "v1", "kind": "Sweep", "plural": "sweeps"}],
    "certManager": {"enabled": True},
    "metrics": {
        "reader": {"subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "monitoring"}]},
        **{
            monitor: {"enabled": True, "renderMode": "alwaysRender"}
            for monitor in ("serviceMonitor", "podMonitor", "prometheusRule")
        },
        "dashboard": {"enabled": True},
    },
    "networkPolicy": {"enabled": True},
}
"""Values that enable every feature of the chart."""


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("file", [*(path.stem for path in VALUES_FILES), ""])
def test_rendered_manifests_name_only_one_api_group(
    file: str, group: str, template: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    values = {**({} if file else EVERYTHING), "apiGroup": group}
    text = template(values, values_file=file.removesuffix("-values") or None).stdout
    (other,) = {*GROUPS} - {group}
    assert group in text
    assert [line for line in text.splitlines() if other in line or other.replace(".", "-") in line] == []
    if not file:
        # Alerts and dashboard contain names of metrics.
        series = set(re.findall(r"\b(?:admitq|kueue)_[a-z_]+", text))
        assert len(series) > 10
        assert {name.partition("_")[0] for name in series} == {names_for(group).metric_prefix}


def test_chart_of_the_compatible_group_renders_the_names_of_kueue(render: Callable[..., Rendered]) -> None:
    objects = render(
        {**EVERYTHING, "apiGroup": COMPAT_GROUP}, release="any", namespace="kueue-system"
    ).objects
    names = names_for(COMPAT_GROUP)
    assert {
        "ClusterRole/kueue-batch-admin-role",
        "ClusterRole/kueue-batch-user-role",
        "ClusterRole/kueue-clusterqueue-editor-role",
        "ClusterRole/kueue-localqueue-viewer-role",
        f"Lease/{names.lease_name}",
        f"Service/{names.webhook_objects.service}",
        f"MutatingWebhookConfiguration/{names.webhook_objects.mutating_configuration}",
        f"ValidatingWebhookConfiguration/{names.webhook_objects.validating_configuration}",
    } <= set(objects)
    own = render({"apiGroup": COMPAT_GROUP}, release="any", namespace="kueue-system").objects
    assert f"Secret/{names.webhook_objects.secret}" in own
    loaded = load_configuration(own["ConfigMap/kueue-config"]["data"]["config.yaml"])
    bare = load_configuration(
        f"apiVersion: {names.config_api_version}\nkind: Configuration\napiGroup: {COMPAT_GROUP}\n"
    )
    for part in ("namespace", "leader_election", "internal_cert_management"):
        assert getattr(loaded, part) == getattr(bare, part)


def test_values_schema_is_a_valid_json_schema() -> None:
    check = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--check-metaschema",
        str(CHART / "values.schema.json"),
    ]
    answer = subprocess.run(check, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout


def test_every_chart_value_is_documented() -> None:
    assert chart_values.undocumented(chart_values.documented()) == []


def test_values_schema_names_only_documented_values() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    described = {value.path for value in chart_values.documented()}

    def is_described(path: str) -> bool:
        return any(
            path == one or one.startswith(f"{path}.") or path.startswith(f"{one}.") for one in described
        )

    unknown = [
        path
        for path in properties(schema, schema)
        if not is_described(path) and not is_described(f"podDefaults.{path.partition('.')[2]}")
    ]
    assert unknown == ["global"]  # read by Helm itself


def properties(schema: dict[str, Any], part: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(part, bool):
        return
    if "$ref" in part:
        part = schema["definitions"][part["$ref"].rpartition("/")[2]]
    for key, inner in part.get("properties", {}).items():
        yield prefix + key
        yield from properties(schema, inner, f"{prefix}{key}.")


def test_rbac_rules_have_no_wildcards_and_no_escalation_verbs(render: Callable[..., Rendered]) -> None:
    roles = [one for key, one in render().objects.items() if key.startswith(("ClusterRole/", "Role/"))]
    rules = [rule for role in roles for rule in role["rules"]]
    assert rules
    for rule in rules:
        assert "*" not in [*rule.get("apiGroups", ()), *rule.get("resources", ()), *rule["verbs"]]
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])


def test_secrets_are_readable_by_name_only(render: Callable[..., Rendered]) -> None:
    own = {
        "Role/admitq-webhook": ["admitq-webhook-server-cert"],
        "Role/admitq-visibility": ["admitq-visibility-server-cert"],
    }
    objects = render().objects
    for key, role in objects.items():
        if key.startswith(("ClusterRole/", "Role/")):
            for rule in role["rules"]:
                if "secrets" in rule.get("resources", ()):
                    assert rule["resourceNames"] == own[key]
                    assert not {"list", "watch"} & set(rule["verbs"])


def test_only_the_manager_writes_statuses(render: Callable[..., Rendered]) -> None:
    for key, role in render().objects.items():
        if key.startswith("ClusterRole/") and key != "ClusterRole/admitq-manager":
            for rule in role["rules"]:
                if any(resource.endswith("/status") for resource in rule.get("resources", ())):
                    assert rule["verbs"] == ["get"], key
