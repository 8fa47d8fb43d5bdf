"""API priority and fairness gives the manager few seats, and rejects its other calls with 429.

Many Workloads wait, each of which gets a reason, while others get quota.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from admitq.runtime.resources import EVENTS, Resource
from admitq.runtime.write_scheduler import BOUNDS
from admitq_api.json_objects import value_at
from benchmarks.manager_calls import ManagerWrites
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.controlplane.conftest import StagesBeside
from tests.controlplane.recording import Record, record_versions, sum_of_series
from tests.controlplane.stage import Stage, condition_of

FLOW: Final = "flowcontrol.apiserver.k8s.io"
FLOW_SCHEMAS: Final = Resource(FLOW, "v1", "flowschemas", "FlowSchema", namespaced=False)
PRIORITY_LEVELS: Final = Resource(
    FLOW, "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", namespaced=False
)
FEW_SEATS: Final = "few-seats"
UNUSED_SEATS: Final = "unused-seats"
SEATS: Final = 2

WAITING: Final = 300
"""Workloads that wait, each of which gets a reason."""
CREATORS: Final = 8
BURST: Final = 30
"""Workloads that are created at once and get quota, while others wait for their reason."""
FEWEST_NEWCOMERS: Final = 5
"""Workloads that follow them one by one; as many as there is time for."""
QUOTA: Final = 1_000


# --- seats ----------------------------------------------------------------------------------------


@asynccontextmanager
async def few_seats(stage: Stage, installation: Installation) -> AsyncGenerator[None]:
    """Let the API server process two calls of the manager at a time, and reject further ones."""
    account = {"name": f"{installation.prefix}-manager", "namespace": installation.namespace}
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    rule = {
        "subjects": [{"kind": "ServiceAccount", "serviceAccount": account}],
        "resourceRules": [{**everything, "clusterScope": True}],
    }
    schema = {"priorityLevelConfiguration": {"name": FEW_SEATS}, "matchingPrecedence": 2, "rules": [rule]}
    # The API server has about a thousand seats for all shares. With the unused ones, a share is a seat.
    for name, shares in ((UNUSED_SEATS, 1_000), (FEW_SEATS, SEATS)):
        limited = {
            "nominalConcurrencyShares": shares,
            "lendablePercent": 0,
            "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"},
        }
        await stage.create(PRIORITY_LEVELS, name, {"spec": {"type": "Limited", "limited": limited}})
    await stage.create(FLOW_SCHEMAS, FEW_SEATS, {"spec": schema})

    async def is_limited() -> bool:
        assert await flow_series(stage, "nominal_limit_seats") == SEATS
        return await flow_series(stage, "dispatched_requests_total") > 0

    try:
        await eventually(is_limited, what="the API server to limit the manager")
        yield
    finally:
        await stage.client.delete(FLOW_SCHEMAS, FEW_SEATS)
        for name in (FEW_SEATS, UNUSED_SEATS):
            await stage.client.delete(PRIORITY_LEVELS, name)


async def flow_series(stage: Stage, name: str) -> float:
    """The sum of a metric of the API server about the few seats."""
    text = await stage.client.request_text("/metrics")
    series = f"apiserver_flowcontrol_{name}{{"
    values = [line for line in text.splitlines() if line.startswith(series) and f'"{FEW_SEATS}"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in values)


# --- Workloads ------------------------------------------------------------------------------------


async def create_workload(stage: Stage, name: str, queue: str) -> None:
    container = {"name": "c", "image": "example.com/c:1", "resources": {"requests": {"cpu": 1}}}
    podset = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    await stage.create(stage.kinds.workloads, name, {"spec": {"queueName": queue, "podSets": [podset]}})


async def create_waiting(stage: Stage) -> None:
    """Create the Workloads that wait, a few at a time."""
    numbers = iter(range(WAITING))

    async def create_some() -> None:
        for number in numbers:
            await create_workload(stage, f"waiting-{number}", "full")

    await asyncio.gather(*(create_some() for _ in range(CREATORS)))


def reasons(record: Record, queue: str) -> dict[str, str]:
    """The reason of QuotaReserved of each Workload of a queue, in its latest version; empty without it."""
    latest = {one["metadata"]["name"]: one for one in record.versions if one["spec"]["queueName"] == queue}
    return {name: (condition_of(one, "QuotaReserved") or ("", "", ""))[1] for name, one in latest.items()}


def count_with_reason(record: Record) -> int:
    """How many Workloads that wait have a reason."""
    found = reasons(record, "full")
    return sum(bool(reason) for name, reason in found.items() if name != "holder")


async def create_burst(stage: Stage, record: Record) -> list[str]:
    """Create Workloads that fit, all at once, while others wait for their reason. Each gets quota before."""
    names = [f"burst-{number}" for number in range(BURST)]
    await asyncio.gather(*(create_workload(stage, name, "free") for name in names))
    await eventually(
        lambda: Counter(reasons(record, "free").values()) == {"QuotaReserved": BURST},
        what=f"quota of {BURST} Workloads",
    )
    assert count_with_reason(record) < WAITING
    return names


async def create_newcomers(stage: Stage, record: Record) -> list[str]:
    """Create Workloads that fit, one after the other, while others wait for their reason.

    Returns:
        The newcomers. Each got quota before all that wait had a reason.
    """
    newcomers: list[str] = []
    while True:
        name = f"newcomer-{len(newcomers)}"
        await create_workload(stage, name, "free")
        await eventually(
            lambda name=name: reasons(record, "free").get(name) == "QuotaReserved",
            what=f"quota of {name} while {WAITING - count_with_reason(record)} wait for their reason",
        )
        if count_with_reason(record) == WAITING:
            return newcomers
        newcomers.append(name)


class WriteLimits:
    """The metrics of the write scheduler, as they were while a block ran."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self.lowest: dict[str, float] = {}
        """The lowest limit of each class."""
        self.most_waiting: dict[str, float] = {}
        """The most writes that waited, of each class."""
        self.most_slowness = 0.0

    async def read(self) -> None:
        """Read the metrics once."""
        for write_class in (priority.name.lower() for priority in BOUNDS):
            labels = {"write_class": write_class}
            limit = await sum_of_series(self._installation, "concurrent_writes_limit", **labels)
            waiting = await sum_of_series(self._installation, "waiting_writes", **labels)
            self.lowest[write_class] = min(limit, self.lowest.get(write_class, limit))
            self.most_waiting[write_class] = max(waiting, self.most_waiting.get(write_class, waiting))
        slowness = await sum_of_series(self._installation, "api_server_slowness")
        self.most_slowness = max(self.most_slowness, slowness)


# --- the story ------------------------------------------------------------------------------------


async def test_reservations_are_written_during_a_flood_of_reports_and_all_reasons_at_the_end(
    default_installation: Installation, stages_beside: StagesBeside
) -> None:
    installation = default_installation
    fresh_stage = await stages_beside(installation)
    process = installation.process("manager")
    async with fresh_stage() as stage:
        await stage.flavor()
        for name, cpu in (("full", 1), ("free", QUOTA)):
            await stage.cluster_queue(name, cpu=cpu)
            await stage.local_queue(name, cluster_queue=name)
            await stage.until_active(stage.kinds.local_queues, name)
        await create_workload(stage, "holder", "full")
        async with record_versions(stage) as record, few_seats(stage, installation):
            await eventually(lambda: reasons(record, "full") == {"holder": "QuotaReserved"})
            writes, limits = ManagerWrites(installation.cluster), WriteLimits(installation)
            flood = asyncio.create_task(create_waiting(stage))

            async def limits_are_reduced() -> bool:
                await limits.read()
                most = BOUNDS[next(each for each in BOUNDS if each.name == "STATUS")].most
                assert limits.lowest["status"] < most, limits.lowest
                assert limits.most_waiting["status"] > 0, limits.most_waiting
                return True

            watching = asyncio.create_task(eventually(limits_are_reduced, what="reduced limits"))
            await eventually(lambda: count_with_reason(record) > 0, what="the first reason")
            burst = await create_burst(stage, record)
            newcomers = await create_newcomers(stage, record)
            await flood
            await watching
            check_reservations(record, burst, newcomers, writes)
            assert limits.most_slowness >= 1
            await check_latest_states(stage, record, len(burst) + len(newcomers) + 1)
        assert process is not None
        assert process.alive(), "the manager could not renew its Lease"


def check_reservations(record: Record, burst: list[str], newcomers: list[str], writes: ManagerWrites) -> None:
    """Each reservation was written during the flood, and no later write of the Workload took it back.

    A newcomer needed few attempts.
    """
    assert len(newcomers) >= FEWEST_NEWCOMERS
    statuses = [write for write in writes.all() if write.resource == "workloads/status"]
    rejected = Counter(write.name for write in statuses if write.code == 429)
    assert rejected.total() > 0, "the API server rejected no write"
    assert {write.code for write in statuses} == {200, 429}
    # While a reservation waits for its retry, hardly any report can be in its way.
    assert max((rejected[name] for name in newcomers), default=0) <= 2, rejected
    for name in (*burst, *newcomers):
        versions = [one for one in record.versions if one["metadata"]["name"] == name]
        states = [condition_of(one, "QuotaReserved") for one in versions]
        # Before the reservation, the state may be absent or False.
        has_quota = [state is not None and state[0] == "True" for state in states]
        assert has_quota == sorted(has_quota)
        assert has_quota[-1]


async def check_latest_states(stage: Stage, record: Record, reserved: int) -> None:
    """After the queue has stopped, all Workloads have the new reason, and queues and events are complete."""
    queues = stage.kinds.cluster_queues
    await stage.change(queues, stage.own("full"), {"spec": {"stopPolicy": "Hold"}})

    async def states_are_written() -> bool:
        found = Counter(reason for name, reason in reasons(record, "full").items() if name != "holder")
        assert found == {"Suspended": WAITING}
        full = await stage.get(queues, stage.own("full"))
        assert (condition_of(full, "Active") or ())[:2] == ("False", "Stopped")
        assert value_at(full, ("status", "pendingWorkloads")) == WAITING
        free = await stage.get(stage.kinds.local_queues, "free")
        assert value_at(free, ("status", "reservingWorkloads")) == reserved
        events, _ = await stage.client.list(EVENTS, stage.namespace)
        of = {one["regarding"]["name"] for one in events if one["reason"] == "QuotaReserved"}
        assert len(of) >= reserved, of
        return True

    await eventually(states_are_written, timeout=120, interval=0.5, what="all states to be written")
