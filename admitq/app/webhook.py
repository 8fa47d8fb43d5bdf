"""The webhooks of a process, and the certificates that the API server trusts."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from admitq.app.caches import check_caches, wait_until_synced
from admitq.app.certificates import OwnCertificate, check_certificates, serving_certificates
from admitq.app.settings import ProcessSettings
from admitq.metrics.registry import Metrics
from admitq.process.unexpected_errors import ErrorPart
from admitq.runtime.client import Client
from admitq.serving.health import Check
from admitq.serving.http import Handler, HttpRequest, HttpResponse, route_by_path, text
from admitq.serving.rotation import BundleTarget
from admitq.serving.server import Server
from admitq.serving.tls import LiveCertificate
from admitq_api.v1beta1.differences import list_converted_crds
from admitq_api.webhook_names import get_conversion_service_name
from admitq_webhooks.conversion import conversion_handlers
from admitq_webhooks.large_reviews import LargeReviews
from admitq_webhooks.live_lookups import watched_lookups
from admitq_webhooks.policy import configured_policy
from admitq_webhooks.readiness import webhook_check
from admitq_webhooks.review_child import StartMessage
from admitq_webhooks.routes import ReviewObserver, review_handlers


@dataclass(frozen=True)
class WebhookPart:
    """The webhooks of a process, ready to run in its task group."""

    checks: dict[str, Check]
    start: Callable[[asyncio.TaskGroup], Awaitable[None]]
    stop: Callable[[], Awaitable[None]]


def list_host_names(settings: ProcessSettings) -> tuple[str, ...]:
    """Return the host names by which an API server calls the webhooks; the name of the Service is first."""
    configuration = settings.configuration
    service = configuration.internal_cert_management.webhook_service_name
    inside = f"{service}.{configuration.namespace}.svc"
    names = (inside, f"{service}.{configuration.namespace}", f"{inside}.cluster.local", service)
    if settings.names.older_version is not None:
        names += (f"{get_conversion_service_name(service)}.{configuration.namespace}.svc",)
    return (*names, configuration.webhook.host) if configuration.webhook.host else names


def _own_certificate(settings: ProcessSettings) -> OwnCertificate:
    management = settings.configuration.internal_cert_management
    return OwnCertificate(
        name="admitq webhook",
        secret=management.webhook_secret_name,
        targets=(
            BundleTarget("mutatingwebhookconfigurations", management.mutating_webhook_configuration_name),
            BundleTarget("validatingwebhookconfigurations", management.validating_webhook_configuration_name),
            *(
                BundleTarget("customresourcedefinitions", name, is_optional=True)
                for name in list_converted_crds(settings.names)
            ),
        ),
        hosts=list_host_names(settings),
    )


def build_webhook_part(settings: ProcessSettings, client: Client, metrics: Metrics) -> WebhookPart:
    """Build the webhooks. They listen once ``start`` is called."""
    configuration, names = settings.configuration, settings.names
    lookups, watchers = watched_lookups(client, names, settings.integrations, metrics.errors)
    live = LiveCertificate(settings.tls)
    certificates = serving_certificates(settings, client, live, metrics, _own_certificate(settings))
    certificates_are_ours = configuration.internal_cert_management.enable
    synced = asyncio.Event()
    observe = review_observer(metrics)
    policy = configured_policy(configuration, settings.gates, settings.integrations)
    reviews = review_handlers(policy, lookups, settings.known, observe=observe, errors=metrics.errors)
    large = LargeReviews(
        StartMessage(configuration, settings.gates), lookups, observe=observe, errors=metrics.errors
    )
    handlers = {
        **{path: _after_sync(synced, large.wrap(handler)) for path, handler in reviews.items()},
        **conversion_handlers(names, metrics.errors),
    }
    metrics.add_webhook_routes(handlers)
    server = Server(route_by_path(handlers), tls=live.context, errors=metrics.errors)

    async def serving() -> str | None:
        return "stopping" if server.is_draining else None

    async def start(tasks: asyncio.TaskGroup) -> None:
        for watcher in watchers:
            tasks.create_task(watcher.run(), name=f"watch {watcher.resource}")
        tasks.create_task(certificates.run(), name="certificates")
        # The server starts before the caches are complete: the API server may need the conversion webhook to
        # answer the lists that fill the caches.
        await server.start(configuration.webhook.host, configuration.webhook.port)
        await wait_until_synced(watchers, configuration.controller.cache_sync_timeout.total_seconds())
        synced.set()

    async def stop() -> None:
        await server.stop()
        await large.stop()

    return WebhookPart(
        checks={
            "certificates": check_certificates(certificates),
            "webhook caches": check_caches(watchers),
            "serving": serving,
            "webhook": webhook_check(
                names,
                port=configuration.webhook.port,
                host=configuration.webhook.host,
                # Certificates from files may have any host name, which the API server is configured with.
                server_name=list_host_names(settings)[0] if certificates_are_ours else None,
                trust=lambda: certificates.trust,
            ),
        },
        start=start,
        stop=stop,
    )


def _after_sync(synced: asyncio.Event, handler: Handler) -> Handler:
    """Return a handler that answers 503 until the caches are complete, because verdicts depend on them."""

    async def handle(request: HttpRequest) -> HttpResponse:
        return await handler(request) if synced.is_set() else text(503, "the caches are not complete yet")

    return handle


def review_observer(metrics: Metrics) -> ReviewObserver:
    """Return an observer that records reviews in the metrics."""

    def observe(path: str, allowed: bool, seconds: float) -> None:
        with metrics.errors.contain(ErrorPart.METRICS, path):
            metrics.increment("webhook_reviews_total", path=path, result="allowed" if allowed else "refused")
            metrics.observe("webhook_review_duration_seconds", seconds, path=path)

    return observe
