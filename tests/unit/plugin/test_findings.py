"""What ``doctor`` finds, and the remedies."""

import base64
from typing import Any

import pytest

from admitq.plugin import findings
from admitq.plugin.ages import DAY
from admitq.plugin.examination import list_expiries, list_gates
from admitq.plugin.findings import Finding
from admitq.serving.certificates import create_authority, validity
from admitq_api.conditions import SECOND

NOW = 100 * DAY * SECOND


def levels(found: list[Finding]) -> list[str]:
    return [finding.level for finding in found]


def named(name: str, namespace: str = "", **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {})}, **fields}


def active(status: str, reason: str, message: str = "M.", type_: str = "Active") -> dict[str, Any]:
    return {"conditions": [{"type": type_, "status": status, "reason": reason, "message": message}]}


def test_kinds_that_are_not_served_are_an_error() -> None:
    (found,) = findings.check_kinds(["A", "B"], ["B"], "g")
    assert (found.level, found.text) == ("error", "not served: A")
    assert found.remedy == "admitq crds --api-group g | kubectl apply --server-side -f -"
    assert levels(findings.check_kinds(["A"], ["A", "B"], "g")) == ["ok"]


@pytest.mark.parametrize(("ready", "level"), [(2, "ok"), (1, "warning"), (0, "error"), (None, "error")])
def test_processes_that_are_not_ready_are_reported(ready: int | None, level: str) -> None:
    one = named("m", "n", spec={"replicas": 2}, status={"readyReplicas": ready})
    (found,) = findings.check_deployments([one], "1")
    assert (found.level, found.subject) == (level, "n/m")
    assert bool(found.remedy) is (level != "ok")


@pytest.mark.parametrize(("version", "expected"), [("1", ["ok"]), ("2", ["ok", "warning"]), ("", ["ok"])])
def test_another_version_than_that_of_the_plugin_is_reported(version: str, expected: list[str]) -> None:
    one = named("m", "n", status={"readyReplicas": 1})
    one["metadata"]["labels"] = {"app.kubernetes.io/version": version}
    assert levels(findings.check_deployments([one], "1")) == expected


def test_missing_installation_is_reported() -> None:
    assert levels(findings.check_deployments([], "1")) == ["warning"]
    assert levels(findings.check_leases([], NOW)) == ["warning"]


@pytest.mark.parametrize(
    ("holder", "renewed", "duration", "level", "text"),
    [
        ("m", "1970-04-10T23:59:50Z", 15, "ok", "m leads"),
        ("m", "1970-04-10T23:59:40Z", 15, "error", "no manager leads: m renewed it last, 20s ago"),
        ("m", "1970-04-10T23:59:40Z", 60, "ok", "m leads"),
        ("", "1970-04-10T23:59:50Z", 15, "error", "no manager leads"),
        (None, None, None, "error", "no manager leads"),
    ],
)
def test_leader_renews_its_lease(
    holder: str | None, renewed: str | None, duration: int | None, level: str, text: str
) -> None:
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": duration}
    (found,) = findings.check_leases([named("lease", "n", spec=spec)], NOW)
    assert found.level == level
    assert found.text.startswith(text)


def encoded(*days: int) -> str:
    return base64.b64encode(",".join(map(str, days)).encode()).decode()


def expiry(pem: bytes) -> list[int]:
    """Read days instead of certificates."""
    return [int(day) * DAY * SECOND for day in pem.split(b",")]


@pytest.mark.parametrize(
    ("bundle", "level", "text"),
    [
        (encoded(200), "ok", "expires in 100d"),
        (encoded(99, 200), "ok", "expires in 100d"),
        (encoded(110), "warning", "expires in 10d"),
        (encoded(90), "error", "expired 10d ago"),
        ("", "error", "a webhook has no caBundle"),
        ("?", "error", "is not a certificate"),
        (base64.b64encode(b"x").decode(), "error", "is not a certificate"),
    ],
)
def test_certificates_of_webhooks_are_valid_for_long(bundle: str, level: str, text: str) -> None:
    one = named(
        "hooks", kind="ValidatingWebhookConfiguration", webhooks=[{"clientConfig": {"caBundle": bundle}}]
    )
    (found,) = findings.check_webhooks([one], expiry, NOW)
    assert (found.level, found.text, bool(found.remedy)) == (level, text, level != "ok")


def test_certificates_of_secrets_are_checked_where_there_are_some() -> None:
    secrets = [named("a", "n", data={"tls.crt": encoded(90)}), named("b", "n", data={"other": "x"})]
    (found,) = findings.check_secrets(secrets, expiry, NOW)
    assert (found.level, found.subject) == ("error", "Secret n/a")
    assert found.remedy.startswith("kubectl delete secret a -n n")


def test_expiry_is_that_of_each_certificate() -> None:
    pair = create_authority(NOW, name="a")
    last = validity(pair.certificate).not_after
    assert list_expiries(pair.certificate + pair.certificate) == [last, last]
    with pytest.raises(ValueError, match="no certificate"):
        list_expiries(b"text")


@pytest.mark.parametrize(
    ("status", "expected", "remedy"),
    [
        (active("True", "Ready"), ("ok", "queues"), ""),
        (active("False", "Stopped"), ("warning", "queues"), "kubectl admitq resume localqueue q -n n"),
        (active("False", "Unknown"), ("error", "quarantine"), "kubectl edit localqueues.g q -n n"),
        (active("False", "FlavorNotFound"), ("error", "queues"), "kubectl describe localqueues.g q -n n"),
        ({}, ("error", "queues"), "See the checks of leader and processes."),
    ],
)
def test_queue_that_admits_nothing_is_reported(
    status: dict[str, Any], expected: tuple[str, str], remedy: str
) -> None:
    (found,) = findings.check_queues([named("q", "n", status=status)], "localqueues", "g")
    assert ((found.level, found.check), found.remedy) == (expected, remedy)


@pytest.mark.parametrize(
    ("status", "level", "text"),
    [
        (active("True", "Passed", type_="Available"), "ok", "is available"),
        (
            active("False", "MissingEndpoints", "no endpoints", "Available"),
            "error",
            "no endpoints; namespaces",
        ),
        ({}, "error", "the API server has not checked it; namespaces cannot be deleted until it answers"),
    ],
)
def test_visibility_api_that_does_not_answer_is_an_error(
    status: dict[str, Any], level: str, text: str
) -> None:
    (found,) = findings.check_api_services([named("v1beta2.visibility.example.com", status=status)])
    assert found.level == level
    assert found.text.startswith(text)


def test_jobs_that_a_queue_refuses_are_reported() -> None:
    conditions = (
        active("True", "Ready")["conditions"] + active("True", "Q", "job x", "JobsRefused")["conditions"]
    )
    (found,) = findings.check_queues([named("q", "n", status={"conditions": conditions})], "localqueues", "g")
    assert (found.level, found.check, found.text) == ("warning", "quarantine", "job x")


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({}, "its controller c has not reported it"),
        (active("False", "X", "no parameters"), "no parameters"),
        (active("True", "Active"), None),
    ],
)
def test_admission_check_without_controller_is_an_error(status: dict[str, Any], text: str | None) -> None:
    found = findings.check_admission_checks([named("a", spec={"controllerName": "c"}, status=status)])
    assert [finding.text for finding in found] == ([] if text is None else [text])


def test_events_of_quarantined_objects_are_reported_once_an_object() -> None:
    regarding = {"kind": "Workload", "namespace": "n", "name": "w"}
    events = [
        {"reason": "Malformed", "note": "first", "regarding": regarding},
        {"reason": "Malformed", "note": "last", "regarding": regarding},
        {"reason": "Started", "note": "other", "regarding": regarding},
    ]
    (found,) = findings.check_events(events, ("Malformed",))
    assert (found.subject, found.text) == ("Workload n/w", "last")
    assert found.remedy.startswith("kubectl edit workload w -n n")


@pytest.mark.parametrize(
    ("gates", "expected"),
    [({}, []), ({"NoSuchGate": True}, ["error"]), ({"PartialAdmission": True}, [])],
)
def test_gates_that_do_not_exist_are_reported(gates: dict[str, Any], expected: list[str]) -> None:
    assert levels(findings.check_gates(gates, "c")) == expected


@pytest.mark.parametrize(
    ("text", "gates"),
    [
        ("featureGates: {A: true}", {"A": True}),
        ("apiVersion: x", {}),
        ("- 1", {}),
        ("{", {}),
        ("", {}),
    ],
)
def test_gates_are_those_of_the_configuration_file(text: str, gates: dict[str, Any]) -> None:
    assert list_gates({"data": {"config.yaml": text}}) == gates


def test_check_without_rights_is_reported_as_not_done() -> None:
    assert findings.forbidden("leader", "may not").level == "warning"
