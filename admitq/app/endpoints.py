"""The endpoints of every process: health probes, and metrics for authorized clients."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

from admitq.app.settings import ProcessSettings
from admitq.metrics.registry import Metrics
from admitq.process.unexpected_errors import ErrorPart, UnexpectedErrors
from admitq.serving import certificates
from admitq.serving.authorization import Authorizer, Reviews, require_authorization
from admitq.serving.health import Check, HealthEndpoint
from admitq.serving.http import Handler, HttpRequest, HttpResponse, route_by_path
from admitq.serving.rotation import FileCertificates
from admitq.serving.server import Server, ServerLimits, is_loopback
from admitq.serving.tls import LiveCertificate
from admitq_api.configuration import parse_address

EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
METRICS_PATH = "/metrics"
CERTIFICATE_PERIOD = 60.0
"""Seconds between two checks whether the certificate of the metrics endpoint needs renewal."""


async def serve_health(
    settings: ProcessSettings, checks: Mapping[str, Check], errors: UnexpectedErrors
) -> Server | None:
    """Start the health endpoint. Return None if the configuration disables it.

    Raises:
        OSError: the address is in use, or does not belong to this machine.
    """
    health = settings.configuration.health
    address = parse_address(health.health_probe_bind_address)
    if address is None:
        return None
    server = HealthEndpoint(health.readiness_endpoint_name, health.liveness_endpoint_name, checks).server(
        errors
    )
    await server.start(*address)
    return server


async def serve_metrics(
    settings: ProcessSettings, metrics: Metrics, reviews: Reviews, tasks: asyncio.TaskGroup
) -> Server | None:
    """Start the metrics endpoint: plain on loopback, elsewhere over TLS and only for authorized clients.

    Raises:
        OSError: the address is in use, or does not belong to this machine.
    """
    address = parse_address(settings.configuration.metrics.bind_address)
    if address is None:
        return None
    host, port = address
    handler = route_by_path({METRICS_PATH: _exposition(metrics)})
    limits = ServerLimits(body_bytes=1024, connections=100, connections_per_peer=50, answer_seconds=30.0)
    if is_loopback(host):
        server = Server(handler, tls=None, limits=limits, errors=metrics.errors)
    else:
        live = LiveCertificate(settings.tls)
        await maintain_certificate(settings, live, metrics.errors, tasks)
        server = Server(
            require_authorization(handler, Authorizer(reviews)),
            tls=live.context,
            limits=limits,
            errors=metrics.errors,
        )
    await server.start(host, port)
    return server


def _exposition(metrics: Metrics) -> Handler:
    one_at_a_time = asyncio.Lock()

    async def handle(_: HttpRequest) -> HttpResponse:
        # Queues change in this thread, so this thread counts them. Rendering a large exposition takes long,
        # so another thread does it. A second reader waits, because counting replaces series.
        async with one_at_a_time:
            await metrics.wait_for_cycle_end()
            metrics.run_scrape_updates()
            text = await asyncio.to_thread(metrics.render)
        return HttpResponse(200, text, EXPOSITION)

    return handle


async def maintain_certificate(
    settings: ProcessSettings, live: LiveCertificate, errors: UnexpectedErrors, tasks: asyncio.TaskGroup
) -> None:
    """Serve the certificate from files if another program manages it, else a certificate of this process.

    The certificate of this process ends with the process. Configure certificate files if scrapers are to
    verify the certificate.
    """
    if not settings.configuration.internal_cert_management.enable:
        files = FileCertificates(Path(settings.configuration.webhook.cert_dir), live, errors=errors)
        tasks.create_task(files.run(), name="metrics certificate files")
        return
    names = (f"{settings.names.product.lower()}-metrics.{settings.configuration.namespace}.svc",)

    def renew() -> None:
        now = time.time_ns()
        if live.certificate is None or certificates.validity(live.certificate).is_renewal_due(now):
            authority = certificates.create_authority(now, name="admitq metrics")
            live.use(certificates.create_leaf(authority, now, names=names, name="metrics"))

    async def keep() -> None:
        while True:
            await asyncio.sleep(CERTIFICATE_PERIOD)
            with errors.contain(ErrorPart.CERTIFICATES, "metrics endpoint"):
                renew()

    renew()
    tasks.create_task(keep(), name="metrics certificate")
