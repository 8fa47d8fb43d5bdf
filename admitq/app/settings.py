"""The settings of a process: the configuration file and the flags, validated together."""

from dataclasses import dataclass
from pathlib import Path

from admitq.core.selectors import selects_namespace
from admitq.integrations import custom
from admitq.integrations.base import Integration
from admitq.integrations.registry import list_framework_names
from admitq.metrics.custom_labels import SeriesLabel
from admitq.metrics.registry import label_name_problems
from admitq.serving.tls import TlsSettings
from admitq.translate.selectors import read_label_selector
from admitq_api.configuration import Configuration, ConfigurationError, load_configuration
from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.labels import Names
from admitq_api.namespaces import NAMESPACE_NAME, SYSTEM_NAMESPACE

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder into which Kubernetes mounts the service account of a pod."""


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """The settings of one process."""

    configuration: Configuration
    names: Names
    gates: FeatureGates
    integrations: tuple[Integration, ...]
    """The enabled job kinds."""
    known: tuple[Integration, ...]
    """All job kinds, including those that are not enabled."""
    tls: TlsSettings
    custom_labels: tuple[SeriesLabel, ...] = ()
    """The custom labels of metrics; empty while their feature gate is off."""

    @property
    def has_local_queue_metrics(self) -> bool:
        """Whether selected LocalQueues have metrics."""
        return self.configuration.metrics.local_queue_metrics.enable and self.gates[Gate.LOCAL_QUEUE_METRICS]

    @property
    def has_cohort_metrics(self) -> bool:
        """Whether cohorts have metrics."""
        return self.gates[Gate.METRICS_FOR_COHORTS]

    def notes(self) -> tuple[str, ...]:
        """Return a note for each setting that has less effect than its name says, or none."""
        unused = self.configuration.metrics.custom_labels and not self.gates[Gate.CUSTOM_METRIC_LABELS]
        labels = f"metrics.customLabels: has no effect: feature gate {Gate.CUSTOM_METRIC_LABELS} is off"
        to_come = (
            f"{field}: has no effect: its feature is not implemented yet"
            for field in self.configuration.list_settings_without_effect()
        )
        return (*self.gates.list_notes(), *((labels,) if unused else ()), *to_come)


def load_settings(file: Path | None, feature_gates: str = "") -> ProcessSettings:
    """Read the configuration file, or use the defaults, and set the feature gates.

    Args:
        file: the configuration file; None for the defaults.
        feature_gates: the value of the flag: Name=true,Other=false.

    Raises:
        ConfigurationError: a field or a gate is unknown or invalid, or gates are set in both places.
        OSError: the file cannot be read.
    """
    configuration = load_configuration(
        "" if file is None else file.read_text(), service_account_namespace=_own_namespace()
    )
    _spare_the_system(configuration)
    gates = configuration.create_feature_gates(feature_gates)
    missing = set(configuration.integrations.frameworks).difference(list_framework_names())
    if missing:
        raise ConfigurationError(
            [
                f"integrations.frameworks: {name!r} is not supported yet: "
                f"use one of {', '.join(list_framework_names())}"
                for name in sorted(missing)
            ]
        )
    integrations, known = custom.load_enabled_and_all_kinds(configuration, gates)
    return ProcessSettings(
        configuration,
        configuration.names,
        gates,
        integrations,
        known,
        _tls(configuration),
        _custom_labels(configuration) if gates[Gate.CUSTOM_METRIC_LABELS] else (),
    )


def _spare_the_system(configuration: Configuration) -> None:
    selector = read_label_selector(configuration.managed_jobs_namespace_selector)
    for namespace in (SYSTEM_NAMESPACE, configuration.namespace):
        if selects_namespace(selector, {NAMESPACE_NAME: namespace}):
            remedy = f"operator: NotIn, values: [{SYSTEM_NAMESPACE}, {configuration.namespace}]"
            problem = f"matches namespace {namespace}, whose pods must never wait"
            raise ConfigurationError(
                [f"managedJobsNamespaceSelector: {problem}; add {{key: {NAMESPACE_NAME}, {remedy}}}"]
            )


def _custom_labels(configuration: Configuration) -> tuple[SeriesLabel, ...]:
    untracked = configuration.names.untracked_label_value
    labels = tuple(
        SeriesLabel.from_configuration(label, untracked) for label in configuration.metrics.custom_labels
    )
    if problems := label_name_problems(labels):
        raise ConfigurationError([f"metrics.customLabels: {problem}" for problem in problems])
    return labels


def _tls(configuration: Configuration) -> TlsSettings:
    """Return the TLS settings of all HTTPS servers of a process; TLS 1.3 unless configured otherwise."""
    tls = configuration.tls
    version = tls.min_version or ("VersionTLS12" if tls.cipher_suites else "VersionTLS13")
    try:
        return TlsSettings(version, tls.cipher_suites, tls.curve_preferences)
    except ValueError as error:
        raise ConfigurationError([str(error)]) from error


def _own_namespace() -> str:
    file = SERVICE_ACCOUNT / "namespace"
    return file.read_text().strip() if file.exists() else ""
