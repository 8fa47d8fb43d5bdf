"""The event recorder with a real API server, also while calls fail."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from admitq.runtime.client import Client
from admitq.runtime.errors import NotLeadingError
from admitq.runtime.events import EventLimits, EventRecorder
from admitq.runtime.resources import CLUSTER_ROLES, CONFIG_MAPS, EVENTS, NAMESPACES
from localcluster.waiting import eventually
from tests.faults import proxy as p
from tests.faults.proxy import Action, Proxy

Through = Callable[..., Awaitable[Client]]

CONTROLLER = "admitq.dev/manager"
OTHER_CONTROLLER = "admitq.dev/provisioning"


def recorder_of(client: Client, **limits: Any) -> EventRecorder:
    return EventRecorder(client, CONTROLLER, "pod-1", limits=EventLimits(**limits))


@pytest.fixture
async def subject(client: Client, namespace: str) -> dict[str, Any]:
    return await client.create(CONFIG_MAPS, {"metadata": {"name": "subject", "namespace": namespace}})


async def events_of(
    client: Client, obj: dict[str, Any], namespace: str | None = None
) -> list[dict[str, Any]]:
    found, _ = await client.list(EVENTS, namespace or obj["metadata"]["namespace"])
    return [event for event in found if event["regarding"].get("uid") == obj["metadata"]["uid"]]


async def test_event_has_all_fields_and_is_readable_through_the_core_api(
    client: Client, subject: dict[str, Any]
):
    recorder = recorder_of(client)
    recorder.event(
        subject, "Normal", "Admitted", "Admitted by ClusterQueue main", action="Admit", related=subject
    )
    await recorder.flush()
    (event,) = await events_of(client, subject)
    assert (event["type"], event["reason"], event["action"]) == ("Normal", "Admitted", "Admit")
    assert event["note"] == "Admitted by ClusterQueue main"
    assert event["regarding"]["kind"] == "ConfigMap"
    assert event["related"]["name"] == "subject"
    assert (event["reportingController"], event["reportingInstance"]) == (CONTROLLER, "pod-1")
    assert "series" not in event
    path = f"/api/v1/namespaces/{subject['metadata']['namespace']}/events"
    described = await client.request_json(
        "GET", path, query={"fieldSelector": f"involvedObject.uid={subject['metadata']['uid']}"}
    )
    assert described["items"][0]["message"] == "Admitted by ClusterQueue main"


@pytest.mark.parametrize(
    ("resource", "name", "namespaced"),
    [
        (CONFIG_MAPS, "x" * 253, True),
        (CONFIG_MAPS, "a" * 235 + "." + "b" * 17, True),
        (NAMESPACES, None, False),
        (CLUSTER_ROLES, "system:node", False),
    ],
)
async def test_event_is_recorded_for_any_object_name_and_scope(
    client: Client, namespace: str, resource: Any, name: str | None, namespaced: bool
):
    if namespaced:
        obj = await client.create(resource, {"metadata": {"name": name, "namespace": namespace}})
    else:
        obj = await client.get(resource, name or namespace)
        obj |= {"kind": resource.kind, "apiVersion": resource.api_version}
    recorder = recorder_of(client)
    recorder.event(obj, "Warning", "Noticed", "something")
    await recorder.flush()
    assert not recorder.dropped
    assert len(await events_of(client, obj, namespace if namespaced else "default")) >= 1


async def test_long_note_of_an_event_is_truncated(client: Client, subject: dict[str, Any]):
    recorder = recorder_of(client)
    recorder.event(subject, "Normal", "Long", "ß" * 2000)
    await recorder.flush()
    (event,) = await events_of(client, subject)
    assert len(event["note"].encode()) <= 1024
    assert event["note"].endswith("ß…")


def counts_by_note(events: list[dict[str, Any]]) -> dict[str, int]:
    return {event["note"]: event.get("series", {}).get("count", 1) for event in events}


async def test_d21_repeated_event_increments_count_of_series(client: Client, subject: dict[str, Any]):
    recorder = recorder_of(client)
    recorder.event(subject, "Warning", "Pending", "no quota")
    await recorder.flush()
    (event,) = await events_of(client, subject)
    assert "series" not in event
    for _ in range(6):
        recorder.event(subject, "Warning", "Pending", "no quota")
    await recorder.flush()
    (event,) = await events_of(client, subject)
    assert event["series"]["count"] == 7
    assert event["series"]["lastObservedTime"] > event["eventTime"]


async def test_d21_events_with_different_notes_join_one_series_with_first_note(
    client: Client, subject: dict[str, Any]
):
    recorder = recorder_of(client)
    for number in range(8):
        recorder.event(subject, "Normal", "PreemptedWorkload", f"Preempted workload {number}")
    await recorder.flush()
    assert counts_by_note(await events_of(client, subject)) == {"Preempted workload 0": 8}
    recorder.event(subject, "Normal", "PreemptedWorkload", "Preempted workload 8")
    await recorder.flush()
    assert counts_by_note(await events_of(client, subject)) == {"Preempted workload 0": 9}


async def test_d21_event_about_newer_resource_version_begins_new_series(
    client: Client, subject: dict[str, Any]
):
    recorder = recorder_of(client)
    metadata = subject["metadata"]
    changed = await client.merge_patch(
        CONFIG_MAPS, metadata["name"], {"data": {"a": "b"}}, metadata["namespace"]
    )
    for obj in (subject, subject, changed, changed, changed):
        recorder.event(obj, "Warning", "Pending", "no quota")
    await recorder.flush()
    counts = {
        event["regarding"]["resourceVersion"]: event["series"]["count"]
        for event in await events_of(client, subject)
    }
    assert counts == {metadata["resourceVersion"]: 2, changed["metadata"]["resourceVersion"]: 3}


@pytest.mark.parametrize(
    "differs", ["type", "reason", "action", "related", "regarding", "controller", "instance"]
)
async def test_d21_event_that_differs_in_one_field_begins_new_series(
    client: Client, subject: dict[str, Any], differs: str
):
    other: dict[str, Any] = {
        "metadata": {"name": "other", "namespace": subject["metadata"]["namespace"], "uid": "o"}
    }
    recorders = [
        EventRecorder(client, CONTROLLER, "pod-1"),
        EventRecorder(
            client,
            OTHER_CONTROLLER if differs == "controller" else CONTROLLER,
            "pod-2" if differs == "instance" else "pod-1",
        ),
    ]
    recorders[0].event(subject, "Normal", "Stopped", "first", "Stop", subject)
    recorders[differs in {"controller", "instance"}].event(
        other if differs == "regarding" else subject,
        "Warning" if differs == "type" else "Normal",
        "Started" if differs == "reason" else "Stopped",
        "second",
        "Start" if differs == "action" else "Stop",
        other if differs == "related" else subject,
    )
    for recorder in recorders:
        await recorder.flush()
    found, _ = await client.list(EVENTS, subject["metadata"]["namespace"])
    ours = [event for event in found if event["reportingController"] in {CONTROLLER, OTHER_CONTROLLER}]
    assert counts_by_note(ours) == {"first": 1, "second": 1}


async def test_repeated_event_is_written_at_most_once_per_interval(
    proxy: Proxy, through: Through, subject: dict[str, Any]
):
    recorder = recorder_of(await through(), series_interval=0.3)
    running = asyncio.create_task(recorder.run())
    began = time.monotonic()
    repetitions = 0
    while time.monotonic() - began < 1.0:
        recorder.event(subject, "Warning", "Pending", "no quota")
        repetitions += 1
        await asyncio.sleep(0.005)
    await eventually(lambda: proxy.count(lambda request: request.method == "PATCH") >= 2)
    assert len(proxy.seen) <= 8 < repetitions
    running.cancel()


async def test_series_continues_when_its_event_was_deleted(client: Client, subject: dict[str, Any]):
    recorder = recorder_of(client)
    recorder.event(subject, "Warning", "Pending", "no quota")
    await recorder.flush()
    (event,) = await events_of(client, subject)
    await client.delete(EVENTS, event["metadata"]["name"], event["metadata"]["namespace"])
    recorder.event(subject, "Warning", "Pending", "no quota")
    await recorder.flush()
    (event,) = await events_of(client, subject)
    assert event["series"]["count"] == 2
    assert not recorder.dropped


async def test_expired_series_is_followed_by_a_new_event(client: Client, subject: dict[str, Any]):
    now = 0.0
    recorder = EventRecorder(client, CONTROLLER, "pod-1", clock=lambda: now)
    for now in (0.0, 1000.0):  # noqa: B007 - read by the clock
        recorder.event(subject, "Warning", "Pending", "no quota")
        await recorder.flush()
    assert len(await events_of(client, subject)) == 2


@pytest.mark.parametrize(
    "action",
    [
        p.refuse_with(500, "InternalError"),
        p.refuse_with(429, "TooManyRequests", Retry_After="0"),
        p.BAD_GATEWAY,
        p.reset_before_forwarding,
        p.execute_and_reset,
        p.execute_and_never_answer,
        p.never_answer,
    ],
)
async def test_event_is_recorded_exactly_once_despite_a_short_fault(
    proxy: Proxy, through: Through, client: Client, subject: dict[str, Any], action: Action
):
    is_unanswered = action in {p.never_answer, p.execute_and_never_answer}
    recorder = recorder_of(await through(timeout=1.0 if is_unanswered else 10.0))
    proxy.fault(action)
    recorder.event(subject, "Normal", "Admitted", "once")
    await recorder.flush()
    (event,) = await events_of(client, subject)
    assert event["note"] == "once"
    assert not recorder.dropped


@pytest.mark.parametrize(
    ("action", "tries"),
    [
        (p.refuse_with(403, "Forbidden"), 1),
        (p.refuse_with(422, "Invalid"), 1),
        (p.BAD_GATEWAY, 3),
        (p.never_answer, 3),
    ],
)
async def test_event_is_dropped_and_counted_when_its_write_is_refused_or_keeps_failing(
    proxy: Proxy, through: Through, client: Client, subject: dict[str, Any], action: Action, tries: int
):
    recorder = recorder_of(await through(timeout=1.5 if action is p.never_answer else 10.0), flush=30.0)
    proxy.fault(action, times=tries)
    recorder.event(subject, "Normal", "Lost", "lost")
    recorder.event(subject, "Normal", "Kept", "kept")
    await recorder.flush()
    assert [event["note"] for event in await events_of(client, subject)] == ["kept"]
    assert recorder.dropped == {"rejected": 1}


@pytest.mark.parametrize(
    "regarding", [{}, {"metadata": {}}, {"metadata": None}, {"metadata": {"name": 5}}, {"metadata": []}]
)
async def test_event_about_a_malformed_object_is_dropped_and_the_next_one_is_recorded(
    client: Client, subject: dict[str, Any], regarding: Any
):
    recorder = recorder_of(client)
    recorder.event(regarding, "Normal", "Odd", "odd")
    recorder.event(subject, "Normal", "Kept", "kept")
    await recorder.flush()
    assert [event["note"] for event in await events_of(client, subject)] == ["kept"]
    assert sum(recorder.dropped.values()) == 1


async def test_recorder_does_not_block_and_drops_events_when_its_queue_is_full(
    proxy: Proxy, through: Through, subject: dict[str, Any]
):
    proxy.fault(p.never_answer, times=1_000_000)
    recorder = recorder_of(await through(timeout=60), queue=10, burst=1000)
    running = asyncio.create_task(recorder.run())
    began = time.monotonic()
    for number in range(100):
        recorder.event(subject, "Normal", f"Busy{number}", "note")
    assert time.monotonic() - began < 10.0
    assert recorder.dropped["queue full"] == 90
    running.cancel()


async def test_event_limit_applies_to_each_object_separately(
    client: Client, subject: dict[str, Any], namespace: str
):
    other = await client.create(CONFIG_MAPS, {"metadata": {"name": "other", "namespace": namespace}})
    recorder = recorder_of(client, burst=5)
    for number in range(50):
        recorder.event(subject, "Normal", f"Loud{number}", "note")
    recorder.event(other, "Normal", "Quiet", "note")
    await recorder.flush()
    assert len(await events_of(client, subject)) == 5
    assert len(await events_of(client, other)) == 1
    assert recorder.dropped == {"too many for the object": 45}


async def test_events_are_dropped_without_the_lease(through: Through, subject: dict[str, Any]):
    def fence() -> None:
        raise NotLeadingError("no")

    recorder = recorder_of(await through(fence=fence))
    recorder.event(subject, "Normal", "Late", "late")
    await recorder.flush()
    assert recorder.dropped == {"not leading": 1}
