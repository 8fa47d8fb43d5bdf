"""The serving certificates of a process: its own, or those that another program writes to files."""

from dataclasses import dataclass
from pathlib import Path

from admitq.app.settings import ProcessSettings
from admitq.metrics.registry import Metrics
from admitq.process.unexpected_errors import ErrorPart
from admitq.runtime.client import Client
from admitq.serving.health import Check
from admitq.serving.rotation import BundleTarget, FileCertificates, ManagedCertificates
from admitq.serving.tls import LiveCertificate
from admitq_webhooks.live_lookups import ServingCalls


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """A certificate that the replicas of a process create and renew.

    Attributes:
        name: the name of the server, for readers of the certificate.
        secret: the Secret that the replicas share.
        targets: objects that contain the bundle of authorities.
        hosts: the host names by which the API server calls the server.
    """

    name: str
    secret: str
    targets: tuple[BundleTarget, ...]
    hosts: tuple[str, ...]


def serving_certificates(
    settings: ProcessSettings, client: Client, live: LiveCertificate, metrics: Metrics, own: OwnCertificate
) -> ManagedCertificates | FileCertificates:
    """Return the certificates of a server: files if another program manages them, otherwise its own."""

    def on_expiry(certificate: str, at: int) -> None:
        with metrics.errors.contain(ErrorPart.METRICS, certificate):
            metrics.set("certificate_expiry_timestamp_seconds", at / 1e9, certificate=certificate)

    configuration = settings.configuration
    if not configuration.internal_cert_management.enable:
        folder = Path(configuration.webhook.cert_dir)
        return FileCertificates(folder, live, on_expiry=on_expiry, errors=metrics.errors)
    return ManagedCertificates(
        ServingCalls(client),
        live,
        secret=(configuration.namespace, own.secret),
        targets=own.targets,
        hosts=own.hosts,
        name=own.name,
        on_expiry=on_expiry,
        errors=metrics.errors,
    )


def check_certificates(certificates: ManagedCertificates | FileCertificates) -> Check:
    """Return the readiness check that clients trust the served certificate."""

    async def check() -> str | None:
        if certificates.first.is_set():
            return None
        return f"no certificate that the API server trusts yet{certificates.problem}"

    return check
