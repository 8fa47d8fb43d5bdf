"""What stops a start: the file and the flags are checked as a whole, and the field is named."""

from pathlib import Path

import pytest

from admitq.app import load_settings
from admitq.app import settings as module
from admitq_api.configuration import ConfigurationError, load_configuration
from tests.unit.metrics.test_measures import MeasuresWithMetrics, workload

HEAD = "apiVersion: config.admitq.dev/v1beta2\nkind: Configuration\n"

NOT_THERE = """
multiKueue: {origin: hub}
visibilityServer: {bindPort: 8082}
resources: {deviceClassMappings: [{name: gpu, deviceClassNames: [a]}]}
pprofBindAddress: ':8083'
"""

CLASH = "metrics: {customLabels: [{name: team}, {name: team, sourceKind: Workload, trackedValues: [a]}]}"
NOT_OUR_OWN = """
namespace: queues
managedJobsNamespaceSelector:
  matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]
"""


def test_without_a_file_the_defaults_apply() -> None:
    settings = load_settings(None)
    assert settings.names.group == "admitq.dev"
    assert [one.framework for one in settings.integrations] == ["batch/job"]
    assert settings.tls.minimum == "VersionTLS13"


def test_the_api_group_turns_every_name(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\napiGroup: kueue.x-k8s.io\n"
    )
    assert load_settings(file).names.queue_name == "kueue.x-k8s.io/queue-name"


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_the_head_of_the_file_is_enough_to_turn_every_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"apiVersion: config.kueue.x-k8s.io/{version}\nkind: Configuration\n")
    monkeypatch.setattr(module, "SERVICE_ACCOUNT", tmp_path)
    settings = load_settings(file)
    assert settings.names.queue_name == "kueue.x-k8s.io/queue-name"
    assert settings.configuration.namespace == "kueue-system"
    (tmp_path / "namespace").write_text("batch-system\n")
    assert load_settings(file).configuration.namespace == "batch-system"


@pytest.mark.parametrize(
    ("text", "gates", "field"),
    [
        ("integrations: {frameworks: [example.com/unheard-of]}", "", "integrations.frameworks"),
        ("featureGates: {PartialAdmission: true}", "PartialAdmission=true", "--feature-gates"),
        ("", "NoSuchGate=true", "NoSuchGate"),
        ("tls: {curvePreferences: [P256]}", "", "tls: curvePreferences: 'P256' is not supported"),
        (
            "managedJobsNamespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}",
            "",
            "managedJobsNamespaceSelector: matches namespace kube-system",
        ),
        (
            NOT_OUR_OWN,
            "",
            "managedJobsNamespaceSelector: matches namespace queues",
        ),
        ("metrics: {bindAddres: ':8443'}", "", "metrics.bindAddres"),
        (
            CLASH,
            "CustomMetricLabels=true",
            "metrics.customLabels: 'team' is taken from ClusterQueue and Workload",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path: Path, text: str, gates: str, field: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + text)
    with pytest.raises(ConfigurationError, match=field):
        load_settings(file, gates)


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("configured", [True, False])
def test_gate_switches_metrics(tmp_path: Path, on: bool, configured: bool) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"{HEAD}metrics: {{localQueueMetrics: {{enable: {str(configured).lower()}}}}}")
    said = str(on).lower()
    settings = load_settings(file, f"LocalQueueMetrics={said},MetricsForCohorts={said}")
    assert settings.has_local_queue_metrics is (on and configured)
    assert settings.has_cohort_metrics is on
    measures = MeasuresWithMetrics(
        has_local_queue_series=lambda _: settings.has_local_queue_metrics,
        has_cohort_series=settings.has_cohort_metrics,
    )
    measures.workloads.admitted(workload(), "cq", 4.0, 1.0)
    assert measures.value("admitted_workloads_total", cluster_queue="cq") == 1
    of_queues = measures.value("local_queue_admitted_workloads_total", name="main")
    assert of_queues == (1 if on and configured else None)
    of_cohorts = measures.value("cohort_subtree_admitted_workloads_total", cohort="teams")
    assert of_cohorts == (1 if on else None)


CUSTOM = "metrics: {customLabels: [{name: tier}, {name: team, sourceKind: LocalQueue}]}"


@pytest.mark.parametrize("on", [True, False])
def test_custom_labels_need_their_gate(tmp_path: Path, on: bool) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + CUSTOM)
    settings = load_settings(file, f"CustomMetricLabels={str(on).lower()}")
    assert [(one.name, str(one.source)) for one in settings.custom_labels] == (
        [("tier", "ClusterQueue"), ("team", "LocalQueue")] if on else []
    )
    note = "metrics.customLabels: has no effect: feature gate CustomMetricLabels is off"
    assert settings.notes() == (() if on else (note,))


def test_gate_of_a_missing_feature_is_accepted_and_reported() -> None:
    assert load_settings(None, "TASBalancedPlacement=true,PriorityBoost=true").notes() == (
        "TASBalancedPlacement: has no effect: its feature is not implemented yet",
    )


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", ()),
        ("resources: {excludeResourcePrefixes: [a]}", ()),
        (
            NOT_THERE,
            ("multiKueue", "visibilityServer", "resources.deviceClassMappings", "pprofBindAddress"),
        ),
    ],
)
def test_settings_of_missing_features_are_distinguished(text: str, fields: tuple[str, ...]) -> None:
    assert load_configuration(HEAD + text).list_settings_without_effect() == fields


def test_a_file_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        load_settings(Path("/no/such/file"))
