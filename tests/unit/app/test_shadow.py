"""The shadow process: it cannot write, and reads the preemptor of a Workload from its status."""

from typing import Any

import pytest

from admitq.app.settings import load_settings
from admitq.app.shadow import ShadowPart, ShadowSettings, WritesNothingError, preemption_of
from admitq.core.instructions import Preempt, PreemptionReason
from admitq.core.model import ObjectKey
from admitq.metrics.registry import Metrics
from admitq.runtime.client import Client
from admitq.runtime.credentials import Credentials
from admitq.runtime.resources import CONFIG_MAPS
from admitq.shadow.findings import Preempted
from admitq.translate.messages import preempted_message

OBJECT: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "c", "namespace": "n"},
}


@pytest.fixture
def part() -> ShadowPart:
    # No server listens there: a refused write is not sent.
    nowhere = Credentials("http://127.0.0.1:9")
    return ShadowPart(load_settings(None), nowhere, Metrics(), "test", lambda _: None, ShadowSettings(1.0))


async def test_shadow_client_refuses_every_write(part: ShadowPart) -> None:
    client: Client = part._client  # pyright: ignore[reportPrivateUsage]
    writes = (
        lambda: client.create(CONFIG_MAPS, OBJECT),
        lambda: client.replace(CONFIG_MAPS, OBJECT),
        lambda: client.merge_patch(CONFIG_MAPS, "c", {}, "n"),
        lambda: client.apply(CONFIG_MAPS, OBJECT, field_manager="m"),
        lambda: client.delete(CONFIG_MAPS, "c", "n"),
    )
    async with client:
        for write in writes:
            with pytest.raises(WritesNothingError, match="a shadow writes nothing"):
                await write()


async def test_shadow_is_not_ready_before_caches_are_filled(part: ShadowPart) -> None:
    problem = await part.checks["caches"]()
    assert problem is not None
    assert "workloads" in problem


def workload(**condition: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": "Evicted", "status": "True", **condition}]}}


def test_preemptor_is_read_from_eviction_message() -> None:
    reason = PreemptionReason.IN_CLUSTER_QUEUE
    key = ObjectKey("n", "w")
    message = preempted_message(Preempt(key, "uid-w", reason, key, "uid-p", ("cq",), ("cq",)), "uid-job")
    assert preemption_of(workload(reason="Preempted", message=message)) == Preempted("uid-p", message)
    assert preemption_of(workload(reason="Preempted", message="so")) == Preempted("", "so")


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"status": {}},
        workload(reason="PodsReadyTimeout", message=""),
        workload(reason="Preempted", message="", status="False"),
    ],
)
def test_workload_evicted_for_another_reason_is_not_preempted(other: dict[str, Any]) -> None:
    assert preemption_of(other) is None
