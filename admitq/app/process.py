"""One process from start to stop: the event loop, the signals, and the components."""

import asyncio
import os
import signal
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from admitq.app.components import LEASED_COMPONENTS, Component
from admitq.app.endpoints import serve_health, serve_metrics
from admitq.app.manager import ManagerPart
from admitq.app.settings import ProcessSettings
from admitq.app.shadow import METRIC_PREFIX, ShadowPart, ShadowSettings
from admitq.app.visibility import VisibilityPart
from admitq.app.webhook import WebhookPart, build_webhook_part
from admitq.metrics.registry import Metrics
from admitq.process.logs import logger
from admitq.process.unexpected_errors import ErrorPart
from admitq.runtime.client import ApiCall, Client, user_agent
from admitq.runtime.credentials import Credentials, CredentialsError, load_credentials
from admitq.serving.health import Check
from admitq.serving.server import Server
from admitq_api.version import VERSION
from admitq_webhooks.live_lookups import ServingCalls

log = logger(__name__)

OK: Final = 0
FAILED: Final = 1

LEFT_TO_OTHERS: Final = {
    Component.CORE: "the statuses of Workloads and queues, and evictions",
    Component.JOBS: "Workloads of jobs, and the start and stop of jobs",
    Component.CYCLE: "the reservation of quota",
    Component.TOPOLOGY: "the scheduling gates of pods with a topology assignment, and failed nodes",
}
"""What another process must do if this process runs without a component."""


Part = WebhookPart | VisibilityPart | ManagerPart | ShadowPart


class ProcessStopped(Exception):
    """SIGTERM or SIGINT was received."""


def run(
    command: str,
    components: Collection[Component],
    settings: ProcessSettings,
    kubeconfig: Path | None,
    shadow: ShadowSettings | None = None,
) -> int:
    """Run components until SIGTERM or SIGINT.

    Args:
        command: the name of the command; part of the User-Agent.
        components: the components to run.
        settings: the settings of the process.
        kubeconfig: the kubeconfig file; None for the pod's service account, then KUBECONFIG.
        shadow: the settings of a shadow; None for a process that acts.

    Returns:
        The exit code: 0 after SIGTERM or SIGINT, 1 after a failure.
    """
    try:
        credentials = load_credentials(kubeconfig)
    except CredentialsError as error:
        log.critical("no credentials for the cluster", error=str(error))
        return FAILED
    code = OK
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(command, components, settings, credentials, shadow))
    except* ProcessStopped:
        log.info("process stopped")
    except* Exception as failures:
        code = FAILED
        log.exception("process failed, exiting", failures=[repr(failure) for failure in failures.exceptions])
    return code


def _loop_factory() -> "type[asyncio.AbstractEventLoop] | None":
    # For platforms and debuggers that uvloop does not support.
    if os.environ.get("ADMITQ_EVENT_LOOP") == "asyncio":
        return None
    try:
        import uvloop  # noqa: PLC0415 not installed on platforms without a wheel
    except ImportError:
        return None
    return uvloop.Loop


async def _serve(
    command: str,
    components: Collection[Component],
    settings: ProcessSettings,
    credentials: Credentials,
    shadow: ShadowSettings | None,
) -> None:
    configuration = settings.configuration
    acting = LEASED_COMPONENTS.intersection(components)
    elects = bool(acting) and shadow is None and configuration.leader_election.leader_elect
    metrics = Metrics(
        settings.names.metric_prefix if shadow is None else METRIC_PREFIX,
        role="follower" if elects else "standalone",
        custom=settings.custom_labels,
    )

    def observe(call: ApiCall) -> None:
        labels = {"verb": call.verb, "resource": call.resource, "code": str(call.status)}
        with metrics.errors.contain(ErrorPart.METRICS, call.resource):
            metrics.increment("api_requests_total", **labels)

    log.info(
        "process is starting",
        version=VERSION,
        api_group=settings.names.group,
        components=list(components),
        shadow=shadow is not None,
    )
    for note in settings.notes():
        log.warning("setting has no effect", setting=note)
    for left_out in sorted(LEASED_COMPONENTS - acting if acting else ()):
        log.warning(
            "component does not run in this process", component=left_out, duties=LEFT_TO_OTHERS[left_out]
        )
    async with Client(
        credentials,
        user_agent=user_agent(command),
        qps=configuration.client_connection.qps,
        burst=configuration.client_connection.burst,
        observe=observe,
    ) as client:
        webhooks = build_webhook_part(settings, client, metrics) if Component.WEBHOOK in components else None
        visibility = (
            VisibilityPart(settings, credentials, client, metrics, user_agent(command), observe)
            if Component.VISIBILITY in components
            else None
        )
        manager: ManagerPart | ShadowPart | None = None
        if shadow is not None:
            manager = ShadowPart(settings, credentials, metrics, user_agent(command), observe, shadow)
        elif acting:
            manager = ManagerPart(
                settings, credentials, metrics, user_agent(command), observe, components=acting
            )
        try:
            async with asyncio.TaskGroup() as tasks:
                parts = [webhooks, visibility, manager]
                servers = await _listen(settings, client, metrics, parts, tasks)
                callees = [part for part in (webhooks, visibility) if part is not None]
                # The start of the components may take long, so signals are handled during it.
                tasks.create_task(
                    _run_until_signal([*servers, *callees], manager or visibility), name="signals"
                )
                await _start(parts, tasks)
        finally:
            if visibility is not None:
                await visibility.close()
            if manager is not None:
                await manager.stop()


async def _listen(
    settings: ProcessSettings,
    client: Client,
    metrics: Metrics,
    parts: "Sequence[Part | None]",
    tasks: asyncio.TaskGroup,
) -> list[Server]:
    """Start the endpoints for health probes and metrics."""
    checks: dict[str, Check] = {}
    for part in parts:
        if part is not None:
            checks.update(part.checks)
    servers = [
        await serve_health(settings, checks, metrics.errors),
        await serve_metrics(settings, metrics, ServingCalls(client), tasks),
    ]
    return [server for server in servers if server is not None]


async def _start(parts: "Sequence[Part | None]", tasks: asyncio.TaskGroup) -> None:
    await asyncio.gather(*(part.start(tasks) for part in parts if part is not None))
    log.info("process started")


async def _run_until_signal(
    servers: Sequence[Server | WebhookPart | VisibilityPart],
    core: ManagerPart | ShadowPart | VisibilityPart | None,
) -> None:
    """Stop the servers, and end the process, after a signal. ``core`` is the part with a state to dump."""
    stop_requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_requested.set)
    loop.add_signal_handler(signal.SIGUSR2, _log_missing_state if core is None else core.dump)
    await stop_requested.wait()
    log.info("process is stopping")
    await asyncio.gather(*(server.stop() for server in servers))
    raise ProcessStopped


def _log_missing_state() -> None:
    """Handle SIGUSR2 in a process without a core; the default action would end the process."""
    log.info("process has no state to dump", remedy="signal the process that runs core, jobs or cycle")
