"""A preemption is written exactly once, whether or not call and answer arrive."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from admitq.core.instructions import Preempt, PreemptionReason
from admitq.core.model import ObjectKey
from admitq.manager.guarded_writes import GuardedWrites
from admitq.manager.preemption_writer import PreemptionWriter
from admitq.metrics.measures.scope import MeasureScope
from admitq.metrics.measures.workloads import WorkloadMeasures
from admitq.metrics.registry import Metrics
from admitq.runtime.client import Client
from admitq.runtime.kinds import kinds_of
from admitq.runtime.store import Store
from admitq.translate.messages import EffectivePriority
from admitq_api.conditions import format_time
from admitq_api.labels import names_for
from tests.faults import proxy as p
from tests.faults.proxy import Action, Proxy, SeenRequest

Through = Callable[..., Awaitable[Client]]


class RecordedReasons:
    """A recorder that keeps the reasons of events."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def event(self, regarding: dict[str, Any], kind: str, reason: str, note: str) -> None:
        del regarding, kind, note
        self.reasons.append(reason)


async def admitted_workload(client: Client, namespace: str, group: str) -> dict[str, Any]:
    """Create a Workload that holds quota."""
    workloads = kinds_of(names_for(group)).workloads
    container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    made = await client.create(
        workloads,
        {
            "apiVersion": workloads.api_version,
            "kind": workloads.kind,
            "metadata": {"name": "victim", "namespace": namespace},
            "spec": {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": template}]},
        },
    )
    state = [
        {
            "type": type_,
            "status": "True",
            "reason": type_,
            "message": "",
            "lastTransitionTime": format_time(time.time_ns()),
        }
        for type_ in ("QuotaReserved", "Admitted")
    ]
    assigned = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}, "count": 1}
    status = {"conditions": state, "admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]}}
    name = made["metadata"]["name"]
    return await client.merge_patch(workloads, name, {"status": status}, namespace, "status")


def is_preemption(request: SeenRequest) -> bool:
    return request.is_write and request.path.endswith("/victim/status")


@pytest.mark.parametrize(
    "faults",
    [
        (),
        (p.execute_and_reset,),
        (p.execute_and_never_answer,),
        (p.reset_before_forwarding, p.execute_and_reset),
        (
            p.refuse_with(503, "ServiceUnavailable"),
            p.never_answer,
            p.execute_and_reset,
            p.refuse_with(500, "InternalError"),
        ),
    ],
    ids=["none", "answer lost", "answer late", "call lost", "many"],
)
async def test_preemption_is_counted_once_despite_lost_calls_and_answers(
    client: Client,
    namespace: str,
    installed: str,
    proxy: Proxy,
    through: Through,
    faults: tuple[Action, ...],
) -> None:
    victim = await admitted_workload(client, namespace, installed)
    names = names_for(installed)
    workloads = kinds_of(names).workloads
    store = Store(workloads)
    store.upsert(victim)
    recorder = RecordedReasons()
    writer = PreemptionWriter(
        writes=GuardedWrites(
            client=await through(timeout=0.5),
            resource=workloads,
            workloads=store,
            store_answer=lambda _, obj: cast("None", store.upsert(obj)),
            is_same_to_core=lambda *_: True,
            metrics=Metrics(),
            field_manager="test",
        ),
        names=names,
        recorder=cast("Any", recorder),
        measures=WorkloadMeasures(MeasureScope(Metrics(), lambda _: "cq")),
        clock=time.time_ns,
        priority_of=lambda _: EffectivePriority(0, 0),
    )
    for action in faults:
        proxy.fault(action, is_preemption)
    key, uid = ObjectKey(namespace, "victim"), victim["metadata"]["uid"]
    instruction = Preempt(
        key, uid, PreemptionReason.IN_CLUSTER_QUEUE, ObjectKey("ns", "p"), "p", ("cq",), ("cq",)
    )
    assert await writer.preempt(instruction)
    status = (await client.get(workloads, "victim", namespace))["status"]
    assert [one["count"] for one in status["schedulingStats"]["evictions"]] == [1]
    assert status["admission"]["clusterQueue"] == "cq"
    assert recorder.reasons == ["Preempted", "EvictedDueToPreempted"]
