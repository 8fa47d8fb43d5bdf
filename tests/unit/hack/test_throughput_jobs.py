"""The jobs that the throughput benchmark plays."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from admitq_api.conditions import parse_time
from admitq_api.labels import names_for
from benchmarks.throughput_connection import LoadAnswer, LoadConnection
from benchmarks.throughput_jobs import JOB_WRITES, JobsOfLoad
from benchmarks.throughput_shapes import PlannedWorkload, WorkloadClass
from localcluster.waiting import eventually

NAMES = names_for("admitq.dev")
NOW = "2026-01-01T00:00:00Z"


class RecordedConnection(LoadConnection):
    """Records patches. Each answer is the next of `statuses`, or success."""

    def __init__(self) -> None:
        self.patches: list[tuple[str, Any]] = []
        self.statuses: list[int] = []
        self.in_progress = 0
        self.most_in_progress = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def call(
        self, verb: str, resource: str, path: str, body: Any = None, content_type: str = ""
    ) -> LoadAnswer:
        assert (verb, resource) == ("patch", "workloads.admitq.dev/status")
        self.in_progress += 1
        self.most_in_progress = max(self.most_in_progress, self.in_progress)
        await self.may_answer.wait()
        await asyncio.sleep(0)
        self.in_progress -= 1
        self.patches.append((path.split("/")[-2], body))
        return LoadAnswer(self.statuses.pop(0) if self.statuses else 200, b"")


@pytest.fixture
def connection() -> RecordedConnection:
    return RecordedConnection()


@pytest.fixture
async def jobs(connection: RecordedConnection) -> AsyncGenerator[JobsOfLoad]:
    jobs = JobsOfLoad(connection, NAMES, expected=2)
    writers = [asyncio.create_task(jobs.write()) for _ in range(JOB_WRITES)]
    yield jobs
    jobs.stop()
    async with asyncio.timeout(10):
        await asyncio.gather(*writers)


def planned(number: int, *, run_ms: int = 1, cpu: int = 5) -> PlannedWorkload:
    kind = WorkloadClass("small", cpu=cpu, run_ms=run_ms, priority=1, per_queue=9, interval_ms=1)
    return PlannedWorkload(0.0, 0, kind, number)


def stored(planned: PlannedWorkload, version: int = 1, **conditions: bool) -> dict[str, Any]:
    """A Workload as the watch shows it."""
    entries = [
        {
            "type": name,
            "status": str(value),
            "reason": "Preempted" if name == "Evicted" else name,
            "message": "",
            "lastTransitionTime": NOW,
        }
        for name, value in conditions.items()
    ]
    admission = {"admission": {"clusterQueue": "queue-0000"}} if conditions.get("QuotaReserved") else {}
    return {
        "metadata": {"name": planned.name, "resourceVersion": str(version), "generation": 1},
        "status": {"conditions": entries, **admission},
    }


async def test_admitted_workload_finishes_after_its_run_time(
    jobs: JobsOfLoad, connection: RecordedConnection
):
    one, other = planned(1), planned(2, run_ms=60_000, cpu=1)
    for each in (one, other):
        jobs.expect(each)
        jobs.observe(stored(each))
        jobs.observe(stored(each, QuotaReserved=True, Admitted=True))
        # An event without a change of the admission starts no second run.
        jobs.observe(stored(each, QuotaReserved=True, Admitted=True))
    assert (jobs.admissions, jobs.in_use.value) == (2, 6)
    await eventually(lambda: connection.patches, what="the end of the first run")
    [(name, [operation])] = connection.patches
    assert name == one.name
    assert (operation["op"], operation["path"]) == ("add", "/status/conditions/-")
    assert (operation["value"]["type"], operation["value"]["status"]) == ("Finished", "True")
    assert parse_time(operation["value"]["lastTransitionTime"]) > parse_time(NOW)
    assert jobs.finished == 0
    jobs.observe(stored(one, QuotaReserved=True, Admitted=True, Finished=True))
    assert (jobs.finished, jobs.in_use.value, jobs.is_over.is_set()) == (1, 1, False)
    jobs.observe(stored(other, QuotaReserved=True, Admitted=True, Finished=True))
    assert (jobs.finished, jobs.in_use.value, jobs.is_over.is_set()) == (2, 0, True)
    assert len(jobs.waits) == len(jobs.own_waits) == 1


async def test_stop_waits_for_answers_and_sends_nothing_more(connection: RecordedConnection):
    """A write that the watch shows before its answer is counted."""
    jobs = JobsOfLoad(connection, NAMES, expected=JOB_WRITES + 1)
    connection.may_answer.clear()
    writers = [asyncio.create_task(jobs.write()) for _ in range(JOB_WRITES)]
    for number in range(JOB_WRITES + 1):
        job = planned(number)
        jobs.expect(job)
        jobs.observe(stored(job, QuotaReserved=True, Admitted=True))
    await eventually(lambda: connection.in_progress == JOB_WRITES, what="the writes in progress")
    jobs.stop()
    connection.may_answer.set()
    async with asyncio.timeout(10):
        await asyncio.gather(*writers)
    assert len(connection.patches) == JOB_WRITES


async def test_evicted_workload_releases_its_quota_and_runs_again(
    jobs: JobsOfLoad, connection: RecordedConnection
):
    one = planned(1, run_ms=60_000)
    jobs.expect(one)
    jobs.observe(stored(one, QuotaReserved=True, Admitted=True))
    jobs.observe(stored(one, 7, QuotaReserved=True, Admitted=True, Evicted=True))
    jobs.observe(stored(one, 7, QuotaReserved=True, Admitted=True, Evicted=True))
    assert (jobs.evictions, jobs.in_use.value) == (1, 0)
    await eventually(lambda: connection.patches, what="the release")
    [(name, patch)] = connection.patches
    assert name == one.name
    assert patch["metadata"] == {"resourceVersion": "7"}
    assert patch["status"]["admission"] is None
    states = {entry["type"]: entry["status"] for entry in patch["status"]["conditions"]}
    assert states == {"QuotaReserved": "False", "Admitted": "False", "Evicted": "True", "Requeued": "True"}
    jobs.observe(stored(one, QuotaReserved=False, Admitted=False, Evicted=True))
    jobs.observe(stored(one, QuotaReserved=True, Admitted=True, Evicted=False))
    assert (jobs.admissions, jobs.in_use.value) == (2, 5)


async def test_release_is_repeated_for_the_version_that_the_watch_shows_after_a_conflict(
    jobs: JobsOfLoad, connection: RecordedConnection
):
    one = planned(1, run_ms=60_000)
    connection.statuses = [409]
    jobs.expect(one)
    jobs.observe(stored(one, 7, QuotaReserved=True, Admitted=True, Evicted=True))
    await eventually(lambda: len(connection.patches) == 1, what="the conflict")
    jobs.observe(stored(one, 8, QuotaReserved=True, Admitted=True, Evicted=True))
    await eventually(lambda: len(connection.patches) == 2, what="the second release")
    versions = [patch["metadata"]["resourceVersion"] for _, patch in connection.patches]
    assert versions == ["7", "8"]
    assert jobs.evictions == 1


async def test_run_that_an_eviction_ended_is_not_finished(jobs: JobsOfLoad, connection: RecordedConnection):
    one, other = planned(1, run_ms=1), planned(2, run_ms=1)
    for each in (one, other):
        jobs.expect(each)
        jobs.observe(stored(each, QuotaReserved=True, Admitted=True))
    jobs.observe(stored(one, 7, QuotaReserved=True, Admitted=True, Evicted=True))
    await eventually(lambda: len(connection.patches) == 2, what="the end and the release")
    assert isinstance(dict(connection.patches)[one.name], dict)
    assert isinstance(dict(connection.patches)[other.name], list)


async def test_job_that_ended_before_its_eviction_finishes(jobs: JobsOfLoad, connection: RecordedConnection):
    one = planned(1)
    connection.statuses = [503]
    jobs.expect(one)
    jobs.observe(stored(one, QuotaReserved=True, Admitted=True))
    await eventually(lambda: len(connection.patches) == 1, what="the first attempt")
    jobs.observe(stored(one, 7, QuotaReserved=True, Admitted=True, Evicted=True))
    assert (jobs.evictions, jobs.in_use.value) == (1, 5)
    await eventually(lambda: len(connection.patches) == 2, what="the second attempt")
    assert all(isinstance(operations, list) for _, operations in connection.patches)
    jobs.observe(stored(one, QuotaReserved=True, Admitted=True, Evicted=True, Finished=True))
    assert (jobs.finished, jobs.in_use.value) == (1, 0)


async def test_writes_of_jobs_are_at_most_five_at_once(jobs: JobsOfLoad, connection: RecordedConnection):
    for number in range(50):
        jobs.expect(planned(number))
        jobs.observe(stored(planned(number), QuotaReserved=True, Admitted=True))
    await eventually(lambda: len(connection.patches) == 50, what="all ends")
    assert connection.most_in_progress == JOB_WRITES == 5
    assert len(jobs.waits) == 50


async def test_end_is_repeated_after_a_temporary_failure(jobs: JobsOfLoad, connection: RecordedConnection):
    connection.statuses = [503, 409, 0]
    jobs.expect(planned(1))
    jobs.observe(stored(planned(1), QuotaReserved=True, Admitted=True))
    await eventually(lambda: len(connection.patches) == 4, what="the fourth attempt")
    assert {name for name, _ in connection.patches} == {planned(1).name}
