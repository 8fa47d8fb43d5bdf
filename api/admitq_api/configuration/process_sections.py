"""The sections of the configuration file about processes: servers, metrics, leadership, connections.

Their docstrings are the descriptions on the reference page of the file.
"""

import re
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from ipaddress import ip_address
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from admitq_api.configuration.fields import (
    Address,
    Count,
    DnsLabel,
    LabelKey,
    NonNegativeDuration,
    PathName,
    Port,
    PositiveDuration,
    Section,
    Selector,
    Subdomain,
    check_selector,
    reject_duplicates,
)
from admitq_api.labels import names_for
from admitq_api.syntax import check_dns_subdomain

CIPHER_SUITES: Mapping[str, str] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
}
"""The cipher suites of TLS 1.2 that can be configured, and their names in OpenSSL."""

TLS_1_3_CIPHER_SUITES = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
"""The cipher suites of TLS 1.3. They are always offered, whether they are listed or not."""

CURVES: Mapping[str, str] = {
    "X25519MLKEM768": "X25519MLKEM768",
    "X25519": "X25519",
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
}
"""The curves that can be configured, and their names in OpenSSL."""


class WebhookSection(Section):
    """The HTTPS server of the admission webhooks."""

    port: Port = 9443
    """The port to listen on."""

    host: str = ""
    """The address to listen on. If empty, the server listens on all addresses."""

    cert_dir: str = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 the path where certificates are mounted
    """The directory of tls.crt, tls.key and ca.crt, if admitq does not manage the certificates itself."""

    reject_increases_of_running_jobs: bool = False
    """Whether updates of running jobs are rejected if they increase the number of pods or their requests.
    Otherwise admitq stops the job and queues it again with the new requests. Such updates of elastic jobs are
    never rejected."""


class LocalQueueMetrics(Section):
    """Metrics for each LocalQueue."""

    enable: bool = True
    """Whether the metrics are exposed."""

    local_queue_selector: Selector | None = None
    """The LocalQueues with metrics, by label. By default all LocalQueues have metrics."""

    @field_validator("local_queue_selector")
    @classmethod
    def _well_formed(cls, value: Selector | None) -> Selector | None:
        return check_selector(value)


class CustomLabelSection(Section):
    """A metric label with a value from a label or annotation of an object."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z][a-zA-Z0-9_]*$")]
    """The name of the metric label. In metrics it has the prefix `custom_`."""

    source_kind: Literal["ClusterQueue", "Cohort", "LocalQueue", "Workload"] = "ClusterQueue"
    """The kind of object that has the label or annotation."""

    source_label_key: LabelKey | None = None
    """The key of the label with the value. If neither a label nor an annotation is set, the key is `name`."""

    source_annotation_key: LabelKey | None = None
    """The key of the annotation with the value, instead of a label."""

    tracked_values: Annotated[tuple[str, ...], AfterValidator(reject_duplicates)] = ()
    """The values that are distinguished: at most 16, for Workloads 1 to 12. All other values are counted as
    one. If empty, all values are distinguished."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.source_label_key is not None and self.source_annotation_key is not None:
            raise ValueError("sourceLabelKey and sourceAnnotationKey are both set: remove one")
        most = 12 if self.source_kind == "Workload" else 16
        if len(self.tracked_values) > most:
            raise ValueError(f"trackedValues has more than {most} values: remove some")
        if self.source_kind == "Workload" and not self.tracked_values:
            raise ValueError(
                "trackedValues is required for sourceKind Workload: list the values to tell apart"
            )
        return self


class MetricsServer(Section):
    """The Prometheus endpoint."""

    bind_address: Address = ":8443"
    """The address to listen on. "0" disables the endpoint."""

    enable_cluster_queue_resources: bool = False
    """Whether the quota and usage of each ClusterQueue are exposed by flavor and resource."""

    local_queue_metrics: LocalQueueMetrics = LocalQueueMetrics()
    """Metrics for each LocalQueue."""

    custom_labels: tuple[CustomLabelSection, ...] = ()
    """Custom metric labels: at most 20, of which at most 6 from each kind of object, and 2 from Workloads."""

    @field_validator("custom_labels")
    @classmethod
    def _bounded(cls, value: tuple[CustomLabelSection, ...]) -> tuple[CustomLabelSection, ...]:
        if len(value) > 20:
            raise ValueError("has more than 20 labels: remove some")
        for kind, count in Counter(label.source_kind for label in value).items():
            most = 2 if kind == "Workload" else 6
            if count > most:
                raise ValueError(f"has more than {most} labels from {kind}: remove some")
        reject_duplicates(tuple((label.source_kind, label.name) for label in value))
        return value


class HealthSection(Section):
    """The endpoint for liveness and readiness probes."""

    health_probe_bind_address: Address = ":8081"
    """The address to listen on. "0" disables the endpoint."""

    readiness_endpoint_name: PathName = "readyz"
    """The path of the readiness probe."""

    liveness_endpoint_name: PathName = "healthz"
    """The path of the liveness probe."""


class LeaderElection(Section):
    """Leader election between replicas of the manager."""

    leader_elect: bool = True
    """Whether leader election is enabled. Disable it only if never more than one manager runs."""

    lease_duration: PositiveDuration = timedelta(seconds=15)
    """How long other replicas wait after the leader's last renewal before they take over."""

    renew_deadline: PositiveDuration = timedelta(seconds=10)
    """How long the leader tries to renew the Lease before it stops acting."""

    retry_period: PositiveDuration = timedelta(seconds=2)
    """The interval between attempts to acquire or renew the Lease."""

    resource_lock: Literal["leases"] = "leases"
    """The kind of the lock. Only Leases are supported."""

    resource_name: Subdomain = names_for().lease_name
    """The name of the Lease."""

    resource_namespace: DnsLabel | Literal[""] = ""
    """The namespace of the Lease. If empty, it is `namespace`."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.lease_duration <= self.renew_deadline:
            raise ValueError("leaseDuration must be longer than renewDeadline")
        if self.renew_deadline <= self.retry_period * 1.2:
            raise ValueError("renewDeadline must be longer than 1.2 times retryPeriod")
        return self


class ControllerSection(Section):
    """The controllers."""

    group_kind_concurrency: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """The number of objects of a kind that are reconciled concurrently, by `Kind.group` such as `Job.batch`.
    It applies to job kinds and Workloads."""

    cache_sync_timeout: PositiveDuration = timedelta(minutes=2)
    """How long the manager waits for the next object of the first lists. After that time the start fails."""

    requeue_batch_period: NonNegativeDuration = timedelta(0)
    """How long changes are collected before the waiting workloads of a cohort tree are retried together.
    With 0 they are retried at once."""

    @field_validator("group_kind_concurrency")
    @classmethod
    def _kinds(cls, value: dict[str, int]) -> dict[str, int]:
        for name in value:
            kind, _, group = name.partition(".")
            if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", kind) or (group and check_dns_subdomain(group)):
                raise ValueError(f'{name!r} is not a kind: write Kind.group, like "Job.batch" or "Pod"')
        return value


class InternalCertManagement(Section):
    """Serving certificates that admitq creates and renews itself."""

    enable: bool = True
    """Whether admitq manages the certificates. Otherwise they are read from `webhook.certDir`."""

    webhook_service_name: DnsLabel = names_for().webhook_objects.service
    """The Service of the webhooks. The certificate is issued for its name."""

    webhook_secret_name: Subdomain = names_for().webhook_objects.secret
    """The Secret with the certificate, which all replicas share."""

    mutating_webhook_configuration_name: Subdomain = names_for().webhook_objects.mutating_configuration
    """The MutatingWebhookConfiguration in which admitq sets the CA bundle."""

    validating_webhook_configuration_name: Subdomain = names_for().webhook_objects.validating_configuration
    """The ValidatingWebhookConfiguration in which admitq sets the CA bundle."""


class ClientConnection(Section):
    """The connection to the API server."""

    qps: float = 300
    """The maximum number of requests per second. 0 or a negative number disables the limit. At the limit,
    watches come first, then reservations and starts of jobs, evictions, the creation and end of workloads,
    reads, statuses, and events. Every tenth request is the one that has waited longest."""

    burst: Count = 500
    """The number of requests that can be sent in a burst."""


class VisibilityServer(Section):
    """The aggregated API that shows pending workloads."""

    bind_address: str = ""
    """The IP address to listen on. If empty, the server listens on all addresses."""

    bind_port: Port = 8082
    """The port to listen on."""

    service_name: DnsLabel = names_for().visibility_service
    """The Service of the API. The certificate is issued for its name."""

    secret_name: Subdomain = names_for().visibility_secret
    """The Secret with the certificate, which all replicas share."""

    @field_validator("bind_address")
    @classmethod
    def _ip(cls, value: str) -> str:
        if value:
            try:
                ip_address(value)
            except ValueError:
                raise ValueError(f'{value!r} is not an IP address: write one, or "" for all') from None
        return value


class Tls(Section):
    """The TLS settings of the HTTPS servers."""

    min_version: Literal["VersionTLS12", "VersionTLS13"] | None = None
    """The minimum version of TLS."""

    cipher_suites: Annotated[tuple[str, ...], AfterValidator(reject_duplicates)] = ()
    """The cipher suites of TLS 1.2. Cipher suites of TLS 1.3 cannot be chosen. If only those are listed, TLS
    1.2 is disabled."""

    curve_preferences: Annotated[tuple[str, ...], AfterValidator(reject_duplicates)] = ()
    """The curves in order of preference. Only the first curve that OpenSSL supports is offered."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.cipher_suites and self.min_version == "VersionTLS13":
            raise ValueError("cipherSuites cannot be chosen with minVersion VersionTLS13: remove them")
        for field, values, known in (
            ("cipherSuites", self.cipher_suites, (*CIPHER_SUITES, *TLS_1_3_CIPHER_SUITES)),
            ("curvePreferences", self.curve_preferences, tuple(CURVES)),
        ):
            for value in values:
                if value not in known:
                    raise ValueError(f"{field}: {value!r} is not supported: use {', '.join(known)}")
        return self
