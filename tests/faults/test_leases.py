"""Leader election: never two leaders at a time, and always a leader after a short time."""

import asyncio
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from admitq.runtime.client import Client
from admitq.runtime.credentials import Credentials, load_credentials
from admitq.runtime.errors import ApiError, NotLeadingError
from admitq.runtime.lease_claim import LeaseTiming, steady_seconds
from admitq.runtime.leases import Elector, Milestone
from admitq.runtime.resources import CONFIG_MAPS, LEASES
from localcluster.cluster import LocalCluster
from localcluster.waiting import eventually
from tests.faults import proxy as p
from tests.faults.proxy import Action, Proxy

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
"""An elector that loses its lease leaves calls open, as a process that ends would."""

QUICK = LeaseTiming(duration=3.0, renew_deadline=2.0, retry=0.1, call=5.0, stall_timeout=5.0)
"""For leases that must expire."""
PATIENT = LeaseTiming(duration=30.0, renew_deadline=25.0, retry=0.1, call=5.0, stall_timeout=20.0)
"""For leases that must not expire, even on a busy machine."""
SHORT_CALLS = replace(PATIENT, call=0.5)
STEADY = LeaseTiming(duration=4.0, renew_deadline=3.5, retry=0.1, call=1.0, stall_timeout=10.0)
"""For leases that must not expire while the test waits longer than their duration."""
AT_ONCE = 20.0
"""Seconds: less than the duration of a patient lease, and long enough for a busy machine."""
NAME = "leader"


@dataclass
class Candidate:
    """An elector, and its milestones with their times."""

    elector: Elector
    milestones: list[tuple[float, Milestone]] = field(default_factory=list[tuple[float, Milestone]])
    lost: list[str] = field(default_factory=list[str])

    def at(self, milestone: Milestone) -> float:
        return next(at for at, what in self.milestones if what is milestone)

    def count(self, milestone: Milestone) -> int:
        return sum(1 for _, what in self.milestones if what is milestone)


StartCandidate = Callable[..., Candidate]


@pytest.fixture(autouse=True)
def collect_open_connections() -> Generator[None]:
    """Collect connections of interrupted calls here, so that no later test reports them."""
    yield
    gc.collect()


@pytest.fixture
async def start_candidate(cluster: LocalCluster, namespace: str) -> AsyncGenerator[StartCandidate]:
    """A function that starts candidates for one lease; by default they call the API server directly."""
    admin = load_credentials(cluster.kubeconfig)
    async with AsyncExitStack() as stack:

        def start(identity: str, *, through: Proxy | None = None, **options: Any) -> Candidate:
            settings: dict[str, Any] = {"timing": QUICK, **options}
            credentials: Credentials = through.credentials if through is not None else admin
            milestones: list[tuple[float, Milestone]] = []
            lost: list[str] = []
            elector = Elector(
                credentials,
                namespace=namespace,
                name=NAME,
                identity=identity,
                user_agent="admitq-tests",
                on_lost=lost.append,
                observe=lambda milestone: milestones.append((steady_seconds(), milestone)),
                **settings,
            )
            elector.start()
            made = Candidate(elector, milestones, lost)
            stack.push_async_callback(elector.stop)
            return made

        yield start


async def until_leading(candidate: Candidate) -> None:
    await asyncio.wait_for(candidate.elector.wait_until_leading(), 60)


async def lease(client: Client, namespace: str) -> dict[str, Any]:
    return (await client.get(LEASES, NAME, namespace))["spec"]


@pytest.mark.parametrize(
    ("action", "what"),
    [
        pytest.param(p.never_answer, "not renewed", id="calls hang"),
        pytest.param(p.reset_before_forwarding, "not renewed", id="connections are reset"),
        pytest.param(p.BAD_GATEWAY, "not renewed", id="502 with HTML"),
        pytest.param(p.refuse_with(500, "InternalError"), "not renewed", id="500"),
        pytest.param(
            p.refuse_with(429, "TooManyRequests", Retry_After="60"), "not renewed", id="429 for long"
        ),
        pytest.param(p.refuse_with(403, "Forbidden"), "not renewed", id="403"),
        pytest.param(p.answer_with(200, b"{half"), "not renewed", id="broken JSON"),
    ],
)
async def test_leader_that_cannot_renew_stops_before_its_successor_leads(
    proxy: Proxy, start_candidate: StartCandidate, action: Action, what: str
):
    first = start_candidate("first", through=proxy)
    await until_leading(first)
    second = start_candidate("second")
    await eventually(lambda: second.elector.leader == "first", interval=0.01)
    proxy.fault(action, times=1_000_000)
    began = claimed = steady_seconds()
    while (looked := steady_seconds()) and first.elector.is_leader():
        claimed = looked
        await asyncio.sleep(0.005)
    assert claimed - began <= QUICK.renew_deadline
    with pytest.raises(NotLeadingError):
        first.elector.assert_leading()
    await until_leading(second)
    assert claimed < second.at(Milestone.ACQUIRED) <= began + QUICK.duration + AT_ONCE
    await eventually(lambda: first.lost, interval=0.01)
    assert what in first.lost[0]


@pytest.mark.parametrize(
    "action",
    [
        p.never_answer,
        p.reset_before_forwarding,
        p.BAD_GATEWAY,
        p.refuse_with(500, "InternalError"),
        p.execute_and_never_answer,
        p.execute_and_reset,
    ],
)
async def test_leader_keeps_the_lease_through_a_short_fault(
    proxy: Proxy, start_candidate: StartCandidate, client: Client, namespace: str, action: Action
):
    candidate = start_candidate("one", through=proxy, timing=SHORT_CALLS)
    await until_leading(candidate)
    fault = proxy.fault(action, lambda request: request.is_write, times=2)
    await eventually(lambda: fault.hits == 2, interval=0.01)
    renewals = candidate.count(Milestone.RENEWED)
    await eventually(lambda: candidate.count(Milestone.RENEWED) >= renewals + 2, interval=0.01)
    assert candidate.elector.is_leader()
    assert not candidate.lost
    assert (await lease(client, namespace))["leaseTransitions"] == 0


async def test_released_lease_is_acquired_at_once(
    start_candidate: StartCandidate, client: Client, namespace: str
):
    first = start_candidate("first", timing=PATIENT)
    await until_leading(first)
    second = start_candidate("second", timing=PATIENT)
    await eventually(lambda: second.elector.leader == "first", interval=0.01)
    began = time.monotonic()
    await first.elector.stop()
    assert not first.elector.is_leader()
    await until_leading(second)
    assert time.monotonic() - began < AT_ONCE
    spec = await lease(client, namespace)
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("second", 1)
    assert first.count(Milestone.RELEASED) == 1
    assert not first.lost
    await second.elector.stop()
    assert (await lease(client, namespace))["holderIdentity"] == ""


async def test_successor_leads_after_the_lease_of_a_silent_leader_expires(
    proxy: Proxy, start_candidate: StartCandidate, client: Client, namespace: str
):
    first = start_candidate("first", through=proxy)
    await until_leading(first)
    impatient = replace(QUICK, stall_timeout=2.0)
    second = start_candidate("second", timing=impatient)
    await eventually(lambda: second.elector.leader == "first", interval=0.01)
    proxy.fault(p.never_answer, times=1_000_000)
    await until_leading(second)
    assert (await lease(client, namespace))["leaseTransitions"] == 1
    # The candidate waited for longer than an event loop may be stuck, which must not count as stuck.
    await eventually(lambda: second.count(Milestone.RENEWED) > 3, interval=0.01)
    assert not second.lost


@pytest.mark.parametrize("offset", [timedelta(hours=1), timedelta(days=-1), timedelta(days=365)])
async def test_wall_clock_offsets_do_not_change_the_leader(
    start_candidate: StartCandidate, client: Client, namespace: str, offset: timedelta
):
    now = timedelta(0)
    first = start_candidate("first", wall=lambda: datetime.now(UTC) + now, timing=STEADY)
    await until_leading(first)
    second = start_candidate("second", wall=lambda: datetime.now(UTC) - offset, timing=STEADY)
    now = offset
    renewals = first.count(Milestone.RENEWED)
    await eventually(lambda: first.count(Milestone.RENEWED) > renewals + 3, interval=0.01)
    await asyncio.sleep(STEADY.duration + 0.5)
    assert first.elector.is_leader()
    assert not second.elector.is_leader()
    renewed = datetime.fromisoformat((await lease(client, namespace))["renewTime"])
    assert abs(renewed - (datetime.now(UTC) + offset)) < timedelta(seconds=10)


async def test_leader_keeps_the_lease_while_its_event_loop_is_busy(start_candidate: StartCandidate):
    candidate = start_candidate("one", timing=STEADY)
    await until_leading(candidate)
    renewals = candidate.count(Milestone.RENEWED)
    time.sleep(STEADY.renew_deadline + 1.0)  # noqa: ASYNC251 - the stall is what is tested
    assert candidate.elector.is_leader()
    assert candidate.count(Milestone.RENEWED) > renewals + 3
    assert not candidate.lost


async def test_leader_loses_the_lease_when_its_event_loop_is_stuck(start_candidate: StartCandidate):
    candidate = start_candidate("one", timing=replace(PATIENT, stall_timeout=1.0))
    await until_leading(candidate)
    deadline = time.monotonic() + 30
    while candidate.elector.is_leader() and time.monotonic() < deadline:
        time.sleep(0.1)  # noqa: ASYNC251
    assert not candidate.elector.is_leader()
    await eventually(lambda: candidate.lost, interval=0.01)
    assert "event loop has been blocked" in candidate.lost[0]


async def test_renewal_that_takes_long_does_not_count_as_a_stuck_event_loop(
    proxy: Proxy, start_candidate: StartCandidate
):
    candidate = start_candidate("one", through=proxy, timing=replace(PATIENT, call=2.5, stall_timeout=2.0))
    await until_leading(candidate)
    proxy.fault(p.never_answer)
    await eventually(lambda: candidate.count(Milestone.FAILED), interval=0.01)
    renewals = candidate.count(Milestone.RENEWED)
    await eventually(lambda: candidate.lost or candidate.count(Milestone.RENEWED) > renewals, interval=0.01)
    assert not candidate.lost


async def test_leader_stops_at_its_next_renewal_when_the_lease_has_another_holder(
    start_candidate: StartCandidate, client: Client, namespace: str
):
    candidate = start_candidate("one", timing=PATIENT)
    await until_leading(candidate)
    await client.merge_patch(LEASES, NAME, {"spec": {"holderIdentity": "other"}}, namespace)
    await eventually(lambda: candidate.lost, interval=0.005)
    assert candidate.lost == ["other holds the lease"]
    assert not candidate.elector.is_leader()


async def test_deleted_lease_is_recreated_by_its_leader(
    start_candidate: StartCandidate, client: Client, namespace: str
):
    candidate = start_candidate("one", timing=PATIENT)
    await until_leading(candidate)
    await client.delete(LEASES, NAME, namespace)
    await eventually(lambda: lease(client, namespace), interval=0.02)
    assert candidate.elector.is_leader()
    assert not candidate.lost


@pytest.mark.parametrize("spec", [{}, {"holderIdentity": ""}, {"leaseDurationSeconds": 1}])
async def test_lease_without_a_holder_is_acquired_at_once(
    start_candidate: StartCandidate, client: Client, namespace: str, spec: dict[str, Any]
):
    await client.create(LEASES, {"metadata": {"name": NAME, "namespace": namespace}, "spec": spec})
    began = time.monotonic()
    await until_leading(start_candidate("one", timing=PATIENT))
    assert time.monotonic() - began < AT_ONCE


async def test_lease_of_a_dead_holder_expires_counted_from_its_first_observation(
    start_candidate: StartCandidate, client: Client, namespace: str
):
    long_ago = "2001-01-01T00:00:00.000000Z"
    spec = {
        "holderIdentity": "dead",
        "leaseDurationSeconds": 4,
        "renewTime": long_ago,
        "acquireTime": long_ago,
    }
    await client.create(LEASES, {"metadata": {"name": NAME, "namespace": namespace}, "spec": spec})
    began = steady_seconds()
    candidate = start_candidate("one")
    await until_leading(candidate)
    # The duration in the lease counts (4 s), not that of the candidate (3 s).
    assert candidate.at(Milestone.ACQUIRED) - began >= 4.0


async def test_only_one_of_many_candidates_leads_at_any_time(proxy: Proxy, start_candidate: StartCandidate):
    """The connection of each leader fails in turn, while a thread reads all candidates every millisecond."""
    timing = LeaseTiming(duration=1.5, renew_deadline=1.0, retry=0.05, call=0.3)
    candidates = [
        start_candidate(f"c{number}", through=proxy if number % 2 else None, timing=timing)
        for number in range(6)
    ]
    most = 0
    stopped: list[Candidate] = []
    end = threading.Event()

    def current_leader() -> Candidate:
        [found] = [c for c in candidates if c not in stopped and c.elector.is_leader()]
        return found

    def sample() -> None:
        nonlocal most
        while not end.wait(0.001):
            # A candidate that leads in both rounds led between them, because no candidate leads twice.
            rounds = [[candidate.elector.is_leader() for candidate in candidates] for _ in range(2)]
            most = max(most, sum(map(all, zip(*rounds, strict=True))))

    watcher = threading.Thread(target=sample)
    watcher.start()
    try:
        for _ in range(3):
            leader = await eventually(current_leader, interval=0.01)
            fault = proxy.fault(p.never_answer, times=1_000_000)
            if leader.elector.identity in {"c1", "c3", "c5"}:
                await eventually(lambda leader=leader: leader.lost, interval=0.01)
            else:
                stopped.append(leader)
                await leader.elector.stop()
            proxy.faults.remove(fault)
    finally:
        end.set()
        watcher.join()
    assert most == 1


async def test_leader_continued_after_sigstop_no_longer_leads(
    start_candidate: StartCandidate, cluster: LocalCluster, namespace: str
):
    """SIGSTOP for longer than the lease: after SIGCONT the process must check its clock before any answer."""
    script = Path(__file__).with_name("lease_holder.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        str(cluster.kubeconfig),
        namespace,
        NAME,
        "sleeper",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    try:
        await asyncio.wait_for(process.stdout.readline(), 60)
        successor = start_candidate("successor", timing=LeaseTiming(3.0, 2.0, 0.1, 0.5))
        await eventually(lambda: successor.elector.leader == "sleeper", interval=0.01)
        process.send_signal(signal.SIGSTOP)
        await until_leading(successor)
        process.send_signal(signal.SIGCONT)
        output, _ = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 1
        claims = [float(line) for line in output.split()]
        assert max(claims) < successor.at(Milestone.ACQUIRED)
        assert successor.elector.is_leader()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def test_write_after_loss_of_the_lease_is_refused_before_it_is_sent(
    proxy: Proxy, start_candidate: StartCandidate, namespace: str
):
    candidate = start_candidate("one", through=proxy)
    await until_leading(candidate)
    fenced = Client(proxy.credentials, user_agent="admitq-tests", fence=candidate.elector.assert_leading)
    async with fenced as client:
        obj = {"metadata": {"name": "a", "namespace": namespace}}
        await client.create(CONFIG_MAPS, obj)
        proxy.fault(p.never_answer, lambda request: "leases" in request.path, times=1_000_000)
        await eventually(lambda: not candidate.elector.is_leader(), interval=0.01)
        sent = len(proxy.seen)
        with pytest.raises(NotLeadingError):
            await client.merge_patch(CONFIG_MAPS, "a", {"data": {"x": "late"}}, namespace)
        assert not [
            request for request in proxy.seen[sent:] if request.is_write and "configmaps" in request.path
        ]


async def test_candidates_that_start_together_agree_on_one_leader(
    start_candidate: StartCandidate, client: Client, namespace: str
):
    candidates = [start_candidate(f"c{number}", timing=PATIENT) for number in range(5)]
    await eventually(lambda: any(c.elector.is_leader() for c in candidates), interval=0.01)
    await eventually(lambda: {c.elector.leader for c in candidates} != {""}, interval=0.01)
    leaders = [c.elector.identity for c in candidates if c.elector.is_leader()]
    assert leaders == [(await lease(client, namespace))["holderIdentity"]]


async def test_elector_stops_in_time_while_the_server_is_unreachable(
    proxy: Proxy, start_candidate: StartCandidate
):
    candidate = start_candidate("one", through=proxy, timing=SHORT_CALLS)
    await until_leading(candidate)
    proxy.fault(p.never_answer, times=1_000_000)
    began = time.monotonic()
    await candidate.elector.stop()
    assert time.monotonic() - began <= AT_ONCE
    assert not candidate.elector.is_leader()


@pytest.mark.parametrize(
    ("duration", "renew_deadline", "retry"), [(10, 10, 2), (15, 10, 9), (15, 10, 0), (5, 10, 2), (15, 10, -1)]
)
def test_unsafe_lease_timing_is_refused(duration: float, renew_deadline: float, retry: float):
    with pytest.raises(ValueError, match="leaseDuration"):
        LeaseTiming(duration, renew_deadline, retry)


async def test_candidate_does_not_lead_while_its_lease_calls_fail(
    proxy: Proxy, start_candidate: StartCandidate
):
    proxy.fault(p.never_answer, times=1_000_000)
    candidate = start_candidate("one", through=proxy, timing=SHORT_CALLS)
    await eventually(lambda: candidate.count(Milestone.FAILED) >= 2, interval=0.01)
    assert not candidate.elector.is_leader()
    with pytest.raises(NotLeadingError, match="does not hold lease"):
        candidate.elector.assert_leading()


async def test_lease_has_holder_duration_transitions_and_times(
    start_candidate: StartCandidate, client: Client, namespace: str
):
    await until_leading(start_candidate("one"))
    spec = await lease(client, namespace)
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("one", 3, 0)
    for key in ("acquireTime", "renewTime"):
        assert abs(datetime.now(UTC) - datetime.fromisoformat(spec[key])) < timedelta(seconds=10)
    with pytest.raises(ApiError):
        await client.get(LEASES, "another", namespace)


async def test_acquired_lease_keeps_its_labels_and_annotations(
    start_candidate: StartCandidate, client: Client, namespace: str
):
    """Without its labels and annotations, helm could not upgrade the lease of the chart."""
    metadata = {
        "name": NAME,
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"a": "b"},
    }
    await client.create(
        LEASES,
        {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": metadata, "spec": {}},
        namespace,
    )
    await until_leading(start_candidate("one"))
    seen = await client.get(LEASES, NAME, namespace)
    assert seen["metadata"]["labels"] == metadata["labels"]
    assert seen["metadata"]["annotations"] == metadata["annotations"]
    assert seen["spec"]["leaseTransitions"] == 0, "the lease had no holder before"
