"""One process from start to stop: the event loop, the signals, and the parts that a component is made of."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Final

from admitq.app.endpoints import serve_health, serve_metrics
from admitq.app.manager import ManagerPart
from admitq.app.settings import Settings
from admitq.app.webhook import WebhookPart, webhook_part
from admitq.health import Check
from admitq.logs import logger
from admitq.metrics import Metrics
from admitq.runtime.client import Call, Client, user_agent
from admitq.runtime.credentials import Credentials, CredentialsError, load_credentials
from admitq_api.version import VERSION
from admitq_webhooks.live import ServingCalls

log = logger(__name__)

OK: Final = 0
FAILED: Final = 1

COMPONENTS: Final = {
    "manager": ("manager",),
    "webhook": ("webhook",),
    "all-in-one": ("manager", "webhook"),
}
"""The parts of each component."""


class Stopped(Exception):
    """The process was asked to end."""


def run(component: str, settings: Settings, kubeconfig: Path | None) -> int:
    """Run a component until it is told to stop.

    Args:
        component: one of ``COMPONENTS``.
        settings: what it was started with.
        kubeconfig: how to reach the cluster; None for the pod's own account, then KUBECONFIG.

    Returns:
        The exit code: 0 after SIGTERM or SIGINT, 1 when something ended that must not.
    """
    try:
        credentials = load_credentials(kubeconfig)
    except CredentialsError as error:
        log.critical("no way to reach the cluster", reason=str(error))
        return FAILED
    code = OK
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(component, settings, credentials))
    except* Stopped:
        log.info("stopped")
    except* Exception as failures:
        code = FAILED
        log.exception("ended", failures=[repr(failure) for failure in failures.exceptions])
    return code


def _loop_factory() -> "type[asyncio.AbstractEventLoop] | None":
    # An escape for platforms and debuggers that uvloop does not get along with.
    if os.environ.get("ADMITQ_EVENT_LOOP") == "asyncio":
        return None
    try:
        import uvloop  # noqa: PLC0415 absent where no wheel exists
    except ImportError:
        return None
    return uvloop.Loop


async def _serve(component: str, settings: Settings, credentials: Credentials) -> None:
    parts = COMPONENTS[component]
    configuration = settings.configuration
    elects = "manager" in parts and configuration.leader_election.leader_elect
    metrics = Metrics(
        settings.names.metric_prefix,
        role="follower" if elects else "standalone",
        custom=settings.custom_labels,
    )

    def observe(call: Call) -> None:
        metrics.increment("api_requests_total", verb=call.verb, resource=call.resource, code=str(call.status))

    log.info("starting", version=VERSION, api_group=settings.names.group, parts=list(parts))
    for note in settings.notes():
        log.warning("a setting does less than it says", setting=note)
    async with Client(
        credentials,
        user_agent=user_agent(component),
        qps=configuration.client_connection.qps,
        burst=configuration.client_connection.burst,
        observe=observe,
    ) as client:
        webhooks = webhook_part(settings, client, metrics) if "webhook" in parts else None
        manager = (
            ManagerPart(settings, credentials, metrics, user_agent(component), observe)
            if "manager" in parts
            else None
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                await _start(settings, client, metrics, [webhooks, manager], tasks)
                tasks.create_task(_until_told(webhooks, manager), name="signals")
        finally:
            if manager is not None:
                await manager.stop()


async def _start(
    settings: Settings,
    client: Client,
    metrics: Metrics,
    parts: "list[WebhookPart | ManagerPart | None]",
    tasks: asyncio.TaskGroup,
) -> None:
    present = [part for part in parts if part is not None]
    checks: dict[str, Check] = {}
    for part in present:
        checks.update(part.checks)
    await serve_health(settings, checks)
    await serve_metrics(settings, metrics, ServingCalls(client), tasks)
    for part in present:
        await part.start(tasks)
    log.info("started")


async def _until_told(webhooks: WebhookPart | None, manager: ManagerPart | None) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    if manager is not None:
        loop.add_signal_handler(signal.SIGUSR2, manager.dump)
    await told.wait()
    log.info("stopping")
    if webhooks is not None:
        await webhooks.stop()
    raise Stopped
