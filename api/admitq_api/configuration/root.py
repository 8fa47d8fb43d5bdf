"""The root of the configuration file: its sections, and rules that affect several of them."""

from collections.abc import Iterable
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from admitq_api.configuration.fields import (
    Address,
    DnsLabel,
    Section,
    Selector,
    check_selector,
    parse_address,
)
from admitq_api.configuration.process_sections import (
    ClientConnection,
    ControllerSection,
    HealthSection,
    InternalCertManagement,
    LeaderElection,
    MetricsServer,
    Tls,
    VisibilityServer,
    WebhookSection,
)
from admitq_api.configuration.sections import (
    AdmissionFairSharingSection,
    FailureRecovery,
    FairSharingSection,
    Integrations,
    MultiKueue,
    ResourcesSection,
    RetentionPolicies,
    WaitForPodsReady,
)
from admitq_api.feature_gates import FeatureGateError, FeatureGates
from admitq_api.labels import DEFAULT_GROUP, GROUPS, ApiGroup, Names, names_for
from admitq_api.namespaces import NAMESPACE_NAME, SYSTEM_NAMESPACE

KIND = "Configuration"


class ConfigurationError(ValueError):
    """The configuration file is invalid. `problems` has one line for each invalid field."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def select_all_namespaces_except(namespace: str) -> Selector:
    """Return the selector of all namespaces except kube-system and the namespace that admitq runs in."""
    return {
        "matchExpressions": [
            {"key": NAMESPACE_NAME, "operator": "NotIn", "values": [SYSTEM_NAMESPACE, namespace]}
        ]
    }


class Configuration(Section):
    """The whole file. It is read once, at start."""

    api_version: str = names_for().config_api_version
    """`config.<apiGroup>/v1beta2`, or the version v1beta1 as described above."""

    kind: Literal["Configuration"] = KIND
    """`Configuration`."""

    api_group: ApiGroup = DEFAULT_GROUP
    """The API group of all kinds, labels and annotations. The default is the group of `apiVersion`."""

    namespace: DnsLabel = names_for().default_namespace
    """The namespace that admitq runs in. The default is the namespace of its service account."""

    webhook: WebhookSection = WebhookSection()
    """The HTTPS server of the admission webhooks."""

    metrics: MetricsServer = MetricsServer()
    """The Prometheus endpoint."""

    health: HealthSection = HealthSection()
    """The endpoint for liveness and readiness probes."""

    leader_election: LeaderElection = LeaderElection()
    """Leader election between replicas of the manager."""

    controller: ControllerSection = ControllerSection()
    """The controllers."""

    internal_cert_management: InternalCertManagement = InternalCertManagement()
    """Serving certificates that admitq creates and renews itself."""

    client_connection: ClientConnection = ClientConnection()
    """The connection to the API server."""

    wait_for_pods_ready: WaitForPodsReady | None = WaitForPodsReady()
    """How admitted workloads with pods that do not become ready are handled. It is always enabled in v1beta2,
    and enabled in v1beta1 if `enable` is true."""

    manage_jobs_without_queue_name: bool = False
    """Whether jobs without a queue name are managed too."""

    managed_jobs_namespace_selector: Selector = Field(
        default_factory=lambda: select_all_namespaces_except(names_for().default_namespace)
    )
    """The namespaces of managed jobs. The default is all namespaces except kube-system and
    `namespace`."""

    integrations: Integrations = Integrations()
    """The job kinds that are queued."""

    multi_kueue: MultiKueue = MultiKueue()
    """Dispatching workloads to other clusters."""

    fair_sharing: FairSharingSection | None = None
    """Fair sharing: queues that borrow less of their cohort's quota come first. It is disabled by default."""

    admission_fair_sharing: AdmissionFairSharingSection | None = None
    """Admission fair sharing: LocalQueues with less past usage come first. It is disabled by default."""

    resources: ResourcesSection = ResourcesSection()
    """How the requests of pods are converted to the amounts that are charged to quota."""

    feature_gates: dict[str, bool] = Field(default_factory=dict)
    """The feature gates to enable or disable, by name. It cannot be combined with the flag `--feature-
    gates`."""

    object_retention_policies: RetentionPolicies = RetentionPolicies()
    """When objects that are no longer needed are deleted."""

    failure_recovery: FailureRecovery = FailureRecovery()
    """How pods on unreachable nodes are handled. It needs the feature gate `FailureRecoveryPolicy`."""

    visibility_server: VisibilityServer = VisibilityServer()
    """The aggregated API that shows pending workloads."""

    tls: Tls = Tls()
    """The TLS settings of the HTTPS servers."""

    pprof_bind_address: Address = "0"
    """This field is accepted and has no effect: there is no profiling endpoint."""

    @property
    def names(self) -> Names:
        """Return all names under the configured API group."""
        return names_for(self.api_group)

    def create_feature_gates(self, flag: str = "") -> FeatureGates:
        """Return the feature gates of the file, or of the flag `--feature-gates`.

        Raises:
            ConfigurationError: both are given, or a gate is invalid.
        """
        if flag and self.feature_gates:
            raise ConfigurationError(["featureGates: also given as --feature-gates; use one of the two"])
        try:
            return FeatureGates.parse(flag) if flag else FeatureGates.from_mapping(self.feature_gates)
        except FeatureGateError as error:
            raise ConfigurationError([f"{'--feature-gates' if flag else 'featureGates'}: {error}"]) from None

    def list_settings_without_effect(self) -> tuple[str, ...]:
        """Return the fields that are set and have no effect, because their features do not exist."""
        ignored: dict[str, object] = {
            # The dispatcher's name follows from the API group unless it is set.
            "multiKueue": self.multi_kueue.model_fields_set - {"dispatcher_name"},
            "resources.deviceClassMappings": self.resources.device_class_mappings,
            "pprofBindAddress": parse_address(self.pprof_bind_address),
        }
        return tuple(field for field, value in ignored.items() if value)

    @field_validator("feature_gates")
    @classmethod
    def _gates_known(cls, value: dict[str, bool]) -> dict[str, bool]:
        FeatureGates.from_mapping(value)
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.api_version != self.names.config_api_version:
            pairs = " or ".join(
                f"{names_for(group).config_api_version} (apiGroup: {group})" for group in GROUPS
            )
            raise ValueError(
                f"apiVersion: {self.api_version!r} with apiGroup: {self.api_group}: write {pairs}"
            )
        incremental = self.names.dispatcher_incremental
        if self.multi_kueue.incremental_dispatcher_config and self.multi_kueue.dispatcher_name != incremental:
            raise ValueError(
                "multiKueue.incrementalDispatcherConfig: needs "
                f"multiKueue.dispatcherName: {incremental}; remove one"
            )
        check_selector(self.managed_jobs_namespace_selector, "managedJobsNamespaceSelector: ")
        return self
