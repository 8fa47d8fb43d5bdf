from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from admitq_api.configuration import (
    Configuration,
    ConfigurationError,
    list_sections,
    load_configuration,
    parse_address,
)
from admitq_api.feature_gates import Gate
from admitq_api.field_docs import read_field_docs
from admitq_api.labels import COMPAT_GROUP, GROUPS, names_for

FOLDER = Path(__file__).with_name("cases")
CASES: dict[str, Any] = yaml.load((FOLDER / "configuration.yaml").read_text(), Loader=yaml.CSafeLoader)
FILES: list[dict[str, Any]] = yaml.load(
    (FOLDER / "configuration_files.yaml").read_text(), Loader=yaml.CSafeLoader
)


def by_field(case: dict[str, Any]) -> str:
    return str(case["field"])


def load(**fields: Any) -> Configuration:
    group = fields.get("apiGroup")
    names = names_for(group if group in GROUPS else GROUPS[0])
    return load_configuration(
        yaml.safe_dump({"apiVersion": names.config_api_version, "kind": "Configuration", **fields})
    )


def rejection_message(**fields: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(**fields)
    return str(caught.value)


def nested(path: str, value: Any) -> dict[str, Any]:
    first, _, rest = path.partition(".")
    return {first: nested(rest, value) if rest else value}


@pytest.mark.parametrize(("path", "expected"), CASES["defaults"].items())
def test_omitted_configuration_field_has_default(path: str, expected: Any) -> None:
    value: Any = load_configuration("").model_dump(mode="json", by_alias=True)
    for name in path.split("."):
        value = value[name]
    assert value == expected


def test_empty_configuration_file_yields_defaults() -> None:
    assert load() == load_configuration("") == load_configuration("# nothing\n---\n")


def test_compatibility_mode_changes_default_names() -> None:
    configuration = load(apiGroup=COMPAT_GROUP)
    assert configuration.names.group == COMPAT_GROUP
    assert configuration.namespace == "kueue-system"
    assert configuration.leader_election.resource_name == "c1f6bfd2.kueue.x-k8s.io"
    assert configuration.internal_cert_management.webhook_service_name == "kueue-webhook-service"
    assert configuration.multi_kueue.dispatcher_name == "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"


@pytest.mark.parametrize(
    ("fields", "service_account_namespace", "expected"),
    [({}, "", "admitq-system"), ({}, "team", "team"), ({"namespace": "given"}, "team", "given")],
)
def test_namespace_comes_from_configuration_file_or_service_account(
    fields: Any, service_account_namespace: str, expected: str
) -> None:
    text = yaml.safe_dump({"apiVersion": names_for().config_api_version, "kind": "Configuration", **fields})
    configuration = load_configuration(text, service_account_namespace=service_account_namespace)
    assert configuration.namespace == expected
    assert configuration.leader_election.resource_namespace == expected
    requirement = configuration.managed_jobs_namespace_selector["matchExpressions"][0]
    assert requirement["values"] == ["kube-system", expected]


@pytest.mark.parametrize("case", CASES["values"], ids=by_field)
def test_valid_configuration_value_is_accepted(case: dict[str, Any]) -> None:
    assert load(**nested(case["field"], case["taken"])).kind == "Configuration"


@pytest.mark.parametrize("case", CASES["values"], ids=by_field)
def test_invalid_configuration_value_is_rejected_with_path_and_remedy(case: dict[str, Any]) -> None:
    assert case["says"] in rejection_message(**nested(case["field"], case["refused"]))


def case_title(case: dict[str, Any]) -> str:
    return str(case["shows"])


@pytest.mark.parametrize("case", [case for case in FILES if "reads" in case], ids=case_title)
def test_configuration_file_yields_expected_fields(case: dict[str, Any]) -> None:
    read = load_configuration(case["file"]).model_dump(mode="json", by_alias=True)
    for path, expected in case["reads"].items():
        value: Any = read
        for name in path.split("."):
            value = value[name]
        assert value == expected, path


@pytest.mark.parametrize("case", [case for case in FILES if "refused" in case], ids=case_title)
def test_invalid_configuration_file_is_rejected_with_all_problems(case: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(case["file"])
    assert list(caught.value.problems) == case["refused"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apiVersion: config.kueue.x-k8s.io/v1beta1", "kind: is required: write Configuration"),
        ("apiGroup: kueue.x-k8s.io", "apiVersion: is required: write config.kueue.x-k8s.io/v1beta2"),
        ("kind: Configuration", "apiVersion: is required: write config.admitq.dev/v1beta2"),
        ("apiVersion: config.admitq.dev/v1beta2", "kind: is required: write Configuration"),
        ("webhook: {port: 1, port: 2}", "port: occurs twice"),
        ("webhook: [", "the file is not YAML"),
        ("- a", "the file is not an object"),
        ("a: 1\n---\nb: 2", "the file has several documents"),
        ("1: 2", "the file has a value that JSON does not support"),
        ("!!python/object/apply:os.system [true]", "the file is not YAML"),
    ],
)
def test_malformed_configuration_file_is_rejected(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_configuration(text)


def test_invalid_fields_are_all_reported_together() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(webhook={"port": 0}, health={"nope": 1}, clientConnection={"burst": -1})
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "webhook.port",
        "health.nope",
        "clientConnection.burst",
    ]


def test_pods_ready_timeout_is_30_minutes_without_blocking_by_default() -> None:
    wait = load().wait_for_pods_ready
    assert wait is not None
    assert (wait.timeout, wait.effective_recovery_timeout) == (timedelta(minutes=30), timedelta(minutes=30))
    assert (wait.block_admission, wait.requeuing_strategy.backoff_limit_count) == (False, None)


@pytest.mark.parametrize(("given", "minutes"), [({}, 5), ({"recoveryTimeout": "1m"}, 1)])
def test_recovery_timeout_defaults_to_start_timeout(given: Any, minutes: int) -> None:
    wait = load(waitForPodsReady={"timeout": "5m", **given}).wait_for_pods_ready
    assert wait is not None
    assert wait.effective_recovery_timeout == timedelta(minutes=minutes)


def test_leading_slash_of_probe_name_is_removed() -> None:
    assert load(health={"livenessEndpointName": "/livez"}).health.liveness_endpoint_name == "livez"


def test_feature_gates_come_from_file_or_flag_but_not_both() -> None:
    configured = load(featureGates={"PriorityBoost": True})
    assert configured.create_feature_gates()[Gate.PRIORITY_BOOST]
    assert load().create_feature_gates("PriorityBoost=true")[Gate.PRIORITY_BOOST]
    assert not load().create_feature_gates()[Gate.PRIORITY_BOOST]
    with pytest.raises(ConfigurationError, match="featureGates: also given as --feature-gates"):
        configured.create_feature_gates("PriorityBoost=true")


def test_unknown_gate_in_flag_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="--feature-gates: Foo: unknown"):
        load().create_feature_gates("Foo=true")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("0", None),
        (":8443", ("", 8443)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_bind_address_is_parsed(text: str, expected: Any) -> None:
    assert parse_address(text) == expected


def test_dumped_configuration_loads_to_same_value() -> None:
    configuration = load(waitForPodsReady={"timeout": "1h30m"}, featureGates={"PriorityBoost": True})
    text = yaml.safe_dump(configuration.model_dump(mode="json", by_alias=True, exclude_none=True))
    assert load_configuration(text) == configuration


def test_every_section_and_field_is_described() -> None:
    sections = list(list_sections(Configuration))
    assert len(sections) > 30
    assert all(section.__doc__ for section in sections)
    fields = [(section, field) for section in sections for field in section.model_fields]
    assert [(section, field) for section, field in fields if not read_field_docs(section).get(field)] == []
