"""The sections of the configuration file about processes: servers, metrics, leadership, connections.

Their docstrings are the reference of the file.
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
"""The cipher suites of TLS 1.2 that can be asked for, and what OpenSSL calls them."""

TLS_1_3_CIPHER_SUITES = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
"""The cipher suites of TLS 1.3. They may be listed with the others, and are offered either way."""

CURVES: Mapping[str, str] = {
    "X25519MLKEM768": "X25519MLKEM768",
    "X25519": "X25519",
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
}
"""The curves that can be asked for, and what OpenSSL calls them."""


class WebhookSection(Section):
    """The HTTPS server of the admission webhooks."""

    port: Port = 9443
    """The port to listen on."""

    host: str = ""
    """The address to listen on; empty: all."""

    cert_dir: str = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 the path where certificates are mounted
    """Where tls.crt, tls.key and ca.crt are, when they are not managed by admitq itself."""

    reject_increases_of_running_jobs: bool = False
    """Whether to reject a change by which a running job asks for more pods, or for larger pods. Otherwise the
    job is stopped, and queued again with what it asks for. Elastic jobs are never rejected for it."""


class LocalQueueMetrics(Section):
    """Metrics for each LocalQueue."""

    enable: bool = True
    """Whether to expose them."""

    local_queue_selector: Selector | None = None
    """Which LocalQueues, by label; absent: all."""

    @field_validator("local_queue_selector")
    @classmethod
    def _well_formed(cls, value: Selector | None) -> Selector | None:
        return check_selector(value)


class CustomLabelSection(Section):
    """A metric label whose value is taken from a label or annotation of an object."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z][a-zA-Z0-9_]*$")]
    """The name of the metric label, which starts with `custom_` in the metrics."""

    source_kind: Literal["ClusterQueue", "Cohort", "LocalQueue", "Workload"] = "ClusterQueue"
    """Which object carries the value."""

    source_label_key: LabelKey | None = None
    """The label that carries the value; absent, together with the annotation: `name`."""

    source_annotation_key: LabelKey | None = None
    """The annotation that carries the value, instead of a label."""

    tracked_values: Annotated[tuple[str, ...], AfterValidator(reject_duplicates)] = ()
    """The values to tell apart (at most 16, for Workloads 1 to 12); all others count as one. Empty: all."""

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
    """Where to listen; "0": nowhere."""

    enable_cluster_queue_resources: bool = False
    """Whether to expose quota and usage of each ClusterQueue by flavor and resource."""

    local_queue_metrics: LocalQueueMetrics = LocalQueueMetrics()
    """Metrics for each LocalQueue."""

    custom_labels: tuple[CustomLabelSection, ...] = ()
    """Further metric labels: at most 20, of them 6 from each kind (2 from Workloads)."""

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
    """The endpoint that tells whether a process is alive and ready."""

    health_probe_bind_address: Address = ":8081"
    """Where to listen; "0": nowhere."""

    readiness_endpoint_name: PathName = "readyz"
    """The path that tells whether the process can do its work."""

    liveness_endpoint_name: PathName = "healthz"
    """The path that tells whether the process should go on living."""


class LeaderElection(Section):
    """How managers agree on the one that acts."""

    leader_elect: bool = True
    """Whether to agree at all; switch off only where a single manager ever runs."""

    lease_duration: PositiveDuration = timedelta(seconds=15)
    """How long others wait, after the last sign of the leader, before they take over."""

    renew_deadline: PositiveDuration = timedelta(seconds=10)
    """How long the leader tries to renew before it stops acting."""

    retry_period: PositiveDuration = timedelta(seconds=2)
    """How long to wait between tries."""

    resource_lock: Literal["leases"] = "leases"
    """What to agree on: a Lease."""

    resource_name: Subdomain = names_for().lease_name
    """The name of the Lease."""

    resource_namespace: DnsLabel | Literal[""] = ""
    """The namespace of the Lease; empty: `namespace`."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.lease_duration <= self.renew_deadline:
            raise ValueError("leaseDuration must be longer than renewDeadline")
        if self.renew_deadline <= self.retry_period * 1.2:
            raise ValueError("renewDeadline must be longer than 1.2 times retryPeriod")
        return self


class ControllerSection(Section):
    """The controllers of objects."""

    group_kind_concurrency: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """How many objects of a kind are worked on at a time, by `Kind.group`, like `Job.batch`: of kinds of
    jobs, and of Workloads."""

    cache_sync_timeout: PositiveDuration = timedelta(minutes=2)
    """How long to wait for the first list of every kind before the start counts as failed."""

    requeue_batch_period: NonNegativeDuration = timedelta(0)
    """How long to collect changes before the waiting workloads of a cohort tree, or of a ClusterQueue without
    a cohort, are retried together; 0: retry at once."""

    @field_validator("group_kind_concurrency")
    @classmethod
    def _kinds(cls, value: dict[str, int]) -> dict[str, int]:
        for name in value:
            kind, _, group = name.partition(".")
            if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", kind) or (group and check_dns_subdomain(group)):
                raise ValueError(f'{name!r} is no kind: write Kind.group, like "Job.batch" or "Pod"')
        return value


class InternalCertManagement(Section):
    """Serving certificates made and renewed by admitq itself."""

    enable: bool = True
    """Whether to; otherwise they are read from `webhook.certDir`."""

    webhook_service_name: DnsLabel = names_for().webhook_objects.service
    """The Service of the webhooks, whose name the certificate carries."""

    webhook_secret_name: Subdomain = names_for().webhook_objects.secret
    """The Secret through which replicas share the certificate."""

    mutating_webhook_configuration_name: Subdomain = names_for().webhook_objects.mutating_configuration
    """The MutatingWebhookConfiguration that the CA is written into."""

    validating_webhook_configuration_name: Subdomain = names_for().webhook_objects.validating_configuration
    """The ValidatingWebhookConfiguration that the CA is written into."""


class ClientConnection(Section):
    """The connection to the API server."""

    qps: float = 300
    """Requests per second; 0 or negative: no limit. At the limit, watches go first, then reservations
    and starts of jobs, evictions, reads, statuses, and events. One request of ten is the one that has waited
    longest."""

    burst: Count = 500
    """Requests at once."""


class VisibilityServer(Section):
    """The aggregated API that shows pending workloads."""

    bind_address: str = ""
    """The IP address to listen on; empty: all."""

    bind_port: Port = 8082
    """The port to listen on."""

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
    """What the HTTPS servers accept."""

    min_version: Literal["VersionTLS12", "VersionTLS13"] | None = None
    """The oldest version of TLS."""

    cipher_suites: Annotated[tuple[str, ...], AfterValidator(reject_duplicates)] = ()
    """The cipher suites of TLS 1.2; those of TLS 1.3 cannot be chosen. If only such are listed, TLS 1.2 is
    not spoken."""

    curve_preferences: Annotated[tuple[str, ...], AfterValidator(reject_duplicates)] = ()
    """The curves, best first. Of these the first that OpenSSL has is the one that is offered."""

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
