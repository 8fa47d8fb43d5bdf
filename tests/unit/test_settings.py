"""Settings of a process: errors in the configuration file and in flags name the field."""

from pathlib import Path

import pytest

from admitq.app import load_settings
from admitq.app import settings as module
from admitq_api.configuration import ConfigurationError, load_configuration
from tests.unit.metrics.test_measures import MeasuresWithMetrics, workload

HEAD = "apiVersion: config.admitq.dev/v1beta2\nkind: Configuration\n"

SETTINGS_WITHOUT_EFFECT = """
multiKueue: {origin: hub}
resources: {deviceClassMappings: [{name: gpu, deviceClassNames: [a]}]}
pprofBindAddress: ':8083'
"""

LABELS_WITH_EQUAL_NAME = (
    "metrics: {customLabels: [{name: team}, {name: team, sourceKind: Workload, trackedValues: [a]}]}"
)
SELECTOR_WITHOUT_OWN_NAMESPACE = """
namespace: queues
managedJobsNamespaceSelector:
  matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]
"""


def test_settings_without_file_have_defaults() -> None:
    settings = load_settings(None)
    assert settings.names.group == "admitq.dev"
    assert [kind.framework for kind in settings.integrations] == ["batch/job"]
    assert settings.tls.minimum == "VersionTLS13"


def test_names_are_those_of_configured_api_group(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\napiGroup: kueue.x-k8s.io\n"
    )
    assert load_settings(file).names.queue_name == "kueue.x-k8s.io/queue-name"


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_names_and_namespace_follow_group_of_api_version(
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
            SELECTOR_WITHOUT_OWN_NAMESPACE,
            "",
            "managedJobsNamespaceSelector: matches namespace queues",
        ),
        ("metrics: {bindAddres: ':8443'}", "", "metrics.bindAddres"),
        (
            LABELS_WITH_EQUAL_NAME,
            "CustomMetricLabels=true",
            "metrics.customLabels: 'team' is taken from ClusterQueue and Workload",
        ),
    ],
)
def test_invalid_setting_is_refused_with_its_field(tmp_path: Path, text: str, gates: str, field: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + text)
    with pytest.raises(ConfigurationError, match=field):
        load_settings(file, gates)


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("configured", [True, False])
def test_metrics_of_local_queues_and_cohorts_need_their_gates(
    tmp_path: Path, on: bool, configured: bool
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"{HEAD}metrics: {{localQueueMetrics: {{enable: {str(configured).lower()}}}}}")
    gate = str(on).lower()
    settings = load_settings(file, f"LocalQueueMetrics={gate},MetricsForCohorts={gate}")
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
    assert [(label.name, str(label.source)) for label in settings.custom_labels] == (
        [("tier", "ClusterQueue"), ("team", "LocalQueue")] if on else []
    )
    note = "metrics.customLabels: has no effect: feature gate CustomMetricLabels is off"
    assert settings.notes() == (() if on else (note,))


def test_gate_of_missing_feature_is_accepted_and_reported() -> None:
    assert load_settings(None, "SchedulerLibraryIntegration=true,PriorityBoost=true").notes() == (
        "SchedulerLibraryIntegration: has no effect: its feature is not implemented yet",
    )


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", ()),
        ("resources: {excludeResourcePrefixes: [a]}", ()),
        (
            SETTINGS_WITHOUT_EFFECT,
            ("multiKueue", "resources.deviceClassMappings", "pprofBindAddress"),
        ),
    ],
)
def test_settings_of_missing_features_are_listed_as_without_effect(
    text: str, fields: tuple[str, ...]
) -> None:
    assert load_configuration(HEAD + text).list_settings_without_effect() == fields


def test_missing_configuration_file_raises_error() -> None:
    with pytest.raises(FileNotFoundError):
        load_settings(Path("/no/such/file"))
