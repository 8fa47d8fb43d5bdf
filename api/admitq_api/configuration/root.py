"""The configuration file as a whole: its sections, and the rules that span several of them."""

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
    """The configuration file cannot be used. `problems` has one line for each field that is wrong."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def select_all_namespaces_except(namespace: str) -> Selector:
    """The selector of all namespaces but kube-system and the one that admitq runs in."""
    return {
        "matchExpressions": [
            {"key": NAMESPACE_NAME, "operator": "NotIn", "values": [SYSTEM_NAMESPACE, namespace]}
        ]
    }


class Configuration(Section):
    """The whole file. Frozen: what is configured is read once, at start."""

    api_version: str = names_for().config_api_version
    """`config.<apiGroup>/v1beta2`, or what is said of v1beta1 above."""

    kind: Literal["Configuration"] = KIND
    """`Configuration`."""

    api_group: ApiGroup = DEFAULT_GROUP
    """The API group that everything is served under; absent: that of `apiVersion`."""

    namespace: DnsLabel = names_for().default_namespace
    """The namespace that admitq runs in; absent: that of its service account."""

    webhook: WebhookSection = WebhookSection()
    """The HTTPS server of the admission webhooks."""

    metrics: MetricsServer = MetricsServer()
    """The Prometheus endpoint."""

    health: HealthSection = HealthSection()
    """The endpoint that tells whether a process is alive and ready."""

    leader_election: LeaderElection = LeaderElection()
    """How managers agree on the one that acts."""

    controller: ControllerSection = ControllerSection()
    """The controllers of objects."""

    internal_cert_management: InternalCertManagement = InternalCertManagement()
    """Serving certificates made and renewed by admitq itself."""

    client_connection: ClientConnection = ClientConnection()
    """The connection to the API server."""

    wait_for_pods_ready: WaitForPodsReady | None = WaitForPodsReady()
    """What happens to admitted workloads whose pods do not become ready. Always on in v1beta2; in v1beta1 on
    where `enable` is true."""

    manage_jobs_without_queue_name: bool = False
    """Whether jobs that name no queue are held, too."""

    managed_jobs_namespace_selector: Selector = Field(
        default_factory=lambda: select_all_namespaces_except(names_for().default_namespace)
    )
    """The namespaces whose jobs are queued; absent: all but kube-system and `namespace`."""

    integrations: Integrations = Integrations()
    """Which kinds of jobs are queued."""

    multi_kueue: MultiKueue = MultiKueue()
    """Dispatching workloads to other clusters."""

    fair_sharing: FairSharingSection | None = None
    """Order and preemption by how much of a cohort each queue borrows; absent: classical."""

    admission_fair_sharing: AdmissionFairSharingSection | None = None
    """Order by how much each LocalQueue used in the past; absent: off."""

    resources: ResourcesSection = ResourcesSection()
    """How the requests of pods become the amounts that quota is checked for."""

    feature_gates: dict[str, bool] = Field(default_factory=dict)
    """Feature gates to switch, by name; not together with the flag `--feature-gates`."""

    object_retention_policies: RetentionPolicies = RetentionPolicies()
    """When objects that are done are deleted."""

    failure_recovery: FailureRecovery = FailureRecovery()
    """Pods that hang on nodes which cannot be reached; needs the feature gate `FailureRecoveryPolicy`."""

    visibility_server: VisibilityServer = VisibilityServer()
    """The aggregated API that shows pending workloads."""

    tls: Tls = Tls()
    """What the HTTPS servers accept."""

    pprof_bind_address: Address = "0"
    """Accepted and without effect: there is no profiling endpoint."""

    @property
    def names(self) -> Names:
        """All names under the configured API group."""
        return names_for(self.api_group)

    def create_feature_gates(self, flag: str = "") -> FeatureGates:
        """The feature gates of the file, or of the flag `--feature-gates`.

        Raises:
            ConfigurationError: both are given, or a gate is wrong.
        """
        if flag and self.feature_gates:
            raise ConfigurationError(["featureGates: also given as --feature-gates; use one of the two"])
        try:
            return FeatureGates.parse(flag) if flag else FeatureGates.from_mapping(self.feature_gates)
        except FeatureGateError as error:
            raise ConfigurationError([f"{'--feature-gates' if flag else 'featureGates'}: {error}"]) from None

    def list_settings_without_effect(self) -> tuple[str, ...]:
        """What it sets of features that are not there."""
        given: dict[str, object] = {
            # The dispatcher's name follows from the API group unless it is set.
            "multiKueue": self.multi_kueue.model_fields_set - {"dispatcher_name"},
            "visibilityServer": self.visibility_server.model_fields_set,
            "resources.deviceClassMappings": self.resources.device_class_mappings,
            "pprofBindAddress": parse_address(self.pprof_bind_address),
        }
        return tuple(field for field, value in given.items() if value)

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
