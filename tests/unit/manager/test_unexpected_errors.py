"""An unexpected exception ends only one item of work: it is counted, and the next item is processed."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import orjson
import pytest
from structlog.testing import capture_logs

from admitq.app import endpoints
from admitq.app.settings import load_settings
from admitq.manager import guarded_writes
from admitq.metrics.registry import Metrics
from admitq.process.unexpected_errors import ErrorPart
from admitq.runtime import leases
from admitq.runtime.credentials import Credentials
from admitq.runtime.errors import ApiError
from admitq.runtime.lease_claim import LeaseTiming
from admitq.runtime.leases import Elector
from admitq.serving import certificates
from admitq.serving.http import HttpRequest
from admitq.serving.rotation import FileCertificates
from admitq.serving.server import Server
from admitq.serving.tls import LiveCertificate
from admitq_api.labels import names_for
from admitq_webhooks import conversion, routes
from admitq_webhooks.validate import cluster_queue
from tests.unit.manager.errors_once import FailsOnce, Setup, errors_by_part, running, until
from tests.unit.manager.failing_work import (
    change_is_not_handled,
    cycle_is_not_counted,
    discovery_is_not_read,
    dropped_event_is_not_counted,
    event_has_no_object,
    event_is_not_written,
    finding_is_not_reported,
    job_is_not_started,
    kind_does_not_start,
    list_is_not_read,
    malformed_object_is_not_counted,
    metric_is_not_counted,
    preemption_has_no_event,
    quarantine_is_not_reported,
    queue_is_not_measured,
    reconciliation_is_not_counted,
    refusal_is_not_checked,
    refusal_is_not_explained,
    reservation_has_no_event,
    status_is_not_refreshed,
    watch_is_not_observed,
)
from tests.unit.serving import support
from tests.unit.serving import test_rotation as rotation
from tests.unit.webhooks import support as webhooks

# --- the lease, certificates and servers --------------------------------------------------------------


async def lease_is_not_read(setup: Setup) -> Metrics:
    class Api:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        async def get(self, *_: Any) -> dict[str, Any]:
            raise ApiError(404, "NotFound", "no lease")

        async def create(self, _: Any, lease: dict[str, Any]) -> dict[str, Any]:
            return lease

    setup.fails_once(Api, "get")
    setup.patch.setattr(leases, "Client", Api)
    metrics = Metrics()
    elector = Elector(
        Credentials("http://127.0.0.1:9"),
        namespace="ns",
        name="lease",
        identity="me",
        user_agent="test",
        timing=LeaseTiming(duration=60, renew_deadline=40, retry=0.01),
        on_lost=lambda _: None,
        errors=metrics.errors,
    )
    elector.start()
    try:
        await asyncio.wait_for(elector.wait_until_leading(), 20)
    finally:
        await elector.stop()
    return metrics


async def certificate_authority_is_not_read(setup: Setup) -> Metrics:
    metrics, api = Metrics(), rotation.api_with_objects()
    setup.fails_once(api, "get_secret")
    replica = rotation.create_replica(api, rotation.Clock(), period=0.01, errors=metrics.errors)
    async with running(replica.run()):
        await asyncio.wait_for(replica.first.wait(), 20)
    return metrics


async def expiry_of_files_is_not_reported(setup: Setup) -> Metrics:
    metrics, on_expiry, authority = Metrics(), FailsOnce(), support.authority()
    rotation.write_files(setup.folder, authority, support.leaf_of(authority))
    files = FileCertificates(
        setup.folder, LiveCertificate(), on_expiry=on_expiry, period=0.01, errors=metrics.errors
    )
    async with running(files.run()):
        await until(lambda: len(on_expiry.calls) == 2)
    return metrics


async def certificate_of_metrics_is_not_checked(setup: Setup) -> Metrics:
    metrics, live = Metrics(), LiveCertificate()
    setup.patch.setattr(endpoints, "CERTIFICATE_PERIOD", 0.001)

    async def maintain() -> None:
        async with asyncio.TaskGroup() as tasks:
            await endpoints.maintain_certificate(load_settings(None), live, metrics.errors, tasks)
            failing.append(setup.fails_once(certificates, "validity"))

    failing: list[FailsOnce] = []
    async with running(maintain()):
        await until(lambda: failing and len(failing[0].calls) > 1)
    return metrics


async def connection_is_not_admitted(setup: Setup) -> Metrics:
    metrics = Metrics()
    server = Server(support.echo_size, tls=None, errors=metrics.errors)
    setup.fails_once(server.connections, "admit")
    address = await server.start("127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection(*address)
        assert await support.is_closed(reader)
        writer.close()
        reader, writer = await asyncio.open_connection(*address)
        status, _, _ = await support.exchange(reader, writer)
        assert status == 200
        writer.close()
    finally:
        await server.stop(linger=0, grace=1)
    return metrics


# --- webhooks -----------------------------------------------------------------------------------------


async def object_is_not_reviewed(setup: Setup) -> Metrics:
    setup.fails_once(cluster_queue, "validate_create")
    return await _reviews()


async def answer_is_not_written(setup: Setup) -> Metrics:
    setup.fails_once(routes, "encode_verdict")
    return await _reviews()


async def _reviews() -> Metrics:
    metrics, gvk = Metrics(), (names_for().group, names_for().version, "ClusterQueue")
    path = names_for().webhook_path("validate", *gvk)
    handlers = routes.review_handlers(webhooks.policy(), webhooks.FakeLookups(), (), errors=metrics.errors)
    body = webhooks.review({"metadata": {"name": "a"}, "spec": {}}, gvk=gvk)
    for code in (500, 200):
        answer = await handlers[path](HttpRequest("POST", path, body=orjson.dumps(body)))
        response = orjson.loads(answer.body)["response"]
        assert response.get("status", {}).get("code", 200) == code
    assert _route_with_error(metrics) == path
    return metrics


async def object_is_not_converted(setup: Setup) -> Metrics:
    metrics, names = Metrics(), names_for("kueue.x-k8s.io")
    setup.fails_once(conversion, "convert")
    queue = {
        "apiVersion": f"{names.group}/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": "a"},
        "spec": {},
    }
    request = {"uid": "u", "desiredAPIVersion": f"{names.group}/{names.version}", "objects": [queue]}
    body = orjson.dumps({"apiVersion": conversion.API_VERSION, "kind": conversion.KIND, "request": request})
    ((path, handler),) = conversion.conversion_handlers(names, metrics.errors).items()
    for status in ("Failure", "Success"):
        answer = await handler(HttpRequest("POST", path, body=body))
        assert orjson.loads(answer.body)["response"]["result"]["status"] == status
    assert _route_with_error(metrics) == path
    return metrics


def _route_with_error(metrics: Metrics) -> str:
    """Return the path of the webhook in which errors were counted."""
    (route,) = re.findall(
        r'^admitq_unexpected_errors_total\{.*route="(.+)"\} 1.0', metrics.render().decode(), re.MULTILINE
    )
    return route


@pytest.mark.parametrize(
    ("part", "work"),
    [
        (ErrorPart.REPORT, refusal_is_not_explained),
        (ErrorPart.REPORT, refusal_is_not_checked),
        (ErrorPart.REPORT, reservation_has_no_event),
        (ErrorPart.REPORT, preemption_has_no_event),
        (ErrorPart.REPORT, quarantine_is_not_reported),
        (ErrorPart.REPORT, status_is_not_refreshed),
        (ErrorPart.REPORT, finding_is_not_reported),
        (ErrorPart.EVENT, event_is_not_written),
        (ErrorPart.EVENT, dropped_event_is_not_counted),
        (ErrorPart.EVENT, event_has_no_object),
        (ErrorPart.WATCH, list_is_not_read),
        (ErrorPart.OBSERVATION, change_is_not_handled),
        (ErrorPart.METRICS, watch_is_not_observed),
        (ErrorPart.METRICS, malformed_object_is_not_counted),
        (ErrorPart.METRICS, reconciliation_is_not_counted),
        (ErrorPart.METRICS, cycle_is_not_counted),
        (ErrorPart.METRICS, queue_is_not_measured),
        (ErrorPart.METRICS, metric_is_not_counted),
        (ErrorPart.WRITE, job_is_not_started),
        (ErrorPart.KIND, discovery_is_not_read),
        (ErrorPart.KIND, kind_does_not_start),
        (ErrorPart.LEASE, lease_is_not_read),
        (ErrorPart.CERTIFICATES, certificate_authority_is_not_read),
        (ErrorPart.CERTIFICATES, expiry_of_files_is_not_reported),
        (ErrorPart.CERTIFICATES, certificate_of_metrics_is_not_checked),
        (ErrorPart.SERVER, connection_is_not_admitted),
        (ErrorPart.REVIEW, object_is_not_reviewed),
        (ErrorPart.REVIEW, answer_is_not_written),
        (ErrorPart.REVIEW, object_is_not_converted),
    ],
)
async def test_unexpected_error_is_counted_and_next_item_is_processed(
    part: ErrorPart,
    work: Callable[[Setup], Awaitable[Metrics]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(guarded_writes, "backoff_seconds", lambda _: 0.0)
    with capture_logs() as lines:
        metrics = await work(Setup(monkeypatch, tmp_path))
    assert errors_by_part(metrics) == {part: 1}
    [line] = [line for line in lines if line["event"] == "unexpected error"]
    assert (line["log_level"], line["part"]) == ("error", part)
    assert isinstance(line["exc_info"], Exception)


def test_cancellation_is_not_counted_as_unexpected_error() -> None:
    metrics = Metrics()
    with pytest.raises(asyncio.CancelledError), metrics.errors.contain(ErrorPart.REPORT):
        raise asyncio.CancelledError
    assert errors_by_part(metrics) == {}


def test_unexpected_error_counters_are_exposed_before_first_error() -> None:
    metrics = Metrics(role="follower")
    metrics.add_webhook_routes(["/review"])
    metrics.change_role("leader")
    exposed = metrics.render().decode()
    for part in ErrorPart:
        route = "/review" if part is ErrorPart.REVIEW else ""
        labels = f'part="{part}",replica_role="leader",route="{route}"'
        assert f"unexpected_errors_total{{{labels}}} 0.0" in exposed
