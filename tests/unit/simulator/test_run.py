"""Runs of scenarios on the virtual clock, checked by their timeline and report."""

from pathlib import Path

import pytest

from admitq.core.state import AdmissionState
from admitq.simulator import Simulation, read, report, shipped_scenarios
from admitq.simulator.plan import WorkloadSource
from admitq.simulator.report import Report, Waits
from admitq.simulator.run import Ending
from admitq.simulator.timeline import TimelineEvent
from tests.unit.simulator.stage import WORLD, RecordedTimeline, plan, run_scenario, write

SUBMITTED, ADMITTED, FINISHED = TimelineEvent.SUBMITTED, TimelineEvent.ADMITTED, TimelineEvent.FINISHED
FAILED, KILLED, STOPPED, PREEMPTED = (
    TimelineEvent.FAILED,
    TimelineEvent.KILLED,
    TimelineEvent.STOPPED,
    TimelineEvent.PREEMPTED,
)


def workloads_of_2_cpu(count: int, run_time: str = "1m", **more: str) -> str:
    """Return a workload class of 2 CPU, with all arrivals at the start. Two workloads fit at a time."""
    others = "".join(f", {key}: {value}" for key, value in more.items())
    return (
        f"workloads:\n  - {{name: w, queue: team/main, requests: {{cpu: 2}}, runTime: {run_time}, "
        f"arrivals: {{fixed: {{count: {count}}}}}{others}}}\n"
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            workloads_of_2_cpu(3),
            "0 Admitted w-1|0 Admitted w-2|60 Finished w-1|60 Finished w-2|60 Admitted w-3|120 Finished w-3",
            id="job that does not fit waits for earlier jobs",
        ),
        pytest.param(
            workloads_of_2_cpu(1, podsReadyAfter="10s"),
            "0 Admitted w-1|70 Finished w-1",
            id="run time starts when pods are ready",
        ),
        pytest.param(
            workloads_of_2_cpu(1, run_time="{constant: 1m, atMost: 40s}"),
            "0 Admitted w-1|40 Finished w-1",
            id="run time has maximum",
        ),
        pytest.param(
            "runTime: 1m\nworkloads: [{name: w, queue: team/main, requests: {cpu: 1}, "
            "arrivals: [{at: [5s]}, {fixed: {count: 2, start: 1s, every: 8s}}]}]",
            "1 Admitted w-1|5 Admitted w-2|9 Admitted w-3|61 Finished w-1|65 Finished w-2|69 Finished w-3",
            id="arrivals of several kinds are in order of time",
        ),
        pytest.param(
            workloads_of_2_cpu(1) + "kills: [{at: 30s}]",
            "0 Admitted w-1|30 Killed w-1|90 Finished w-1",
            id="killed job starts over",
        ),
        pytest.param(
            workloads_of_2_cpu(1, podsReadyAfter="10s") + "kills: [{at: 30s}]",
            "0 Admitted w-1|30 Killed w-1|100 Finished w-1",
            id="pods of killed job become ready again",
        ),
        pytest.param(
            workloads_of_2_cpu(3) + "kills: [{at: 30s, count: 5, then: Fail}]",
            "0 Admitted w-1|0 Admitted w-2|30 Killed|30 Failed|30 Killed|30 Failed|30 Admitted w-3|90 F",
            id="failed job releases quota",
        ),
        pytest.param(
            workloads_of_2_cpu(1) + "kills: [{at: 30s, workloads: other}, {at: 30s, flavor: spot}]",
            "0 Admitted w-1|60 Finished w-1",
            id="only selected jobs are killed",
        ),
        pytest.param(
            workloads_of_2_cpu(4)
            + "changes: [{at: 30s, patch: {kind: ClusterQueue, name: queue, patch: {spec: "
            "{resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: "
            "[{name: cpu, nominalQuota: 8}]}]}]}}}}]",
            "0 Admitted w-1|0 Admitted w-2|30 Admitted w-3|30 Admitted w-4|"
            "60 Finished w-1|60 Finished w-2|90 Finished w-3|90 Finished w-4",
            id="added quota is used at once",
        ),
        pytest.param(
            workloads_of_2_cpu(3) + "changes: [{at: 30s, patch: {kind: ClusterQueue, name: queue, patch: "
            "{spec: {stopPolicy: Hold}}}}, {at: 90s, patch: {kind: ClusterQueue, name: queue, patch: "
            "{spec: {stopPolicy: null}}}}]",
            "0 Admitted w-1|0 Admitted w-2|60 Finished w-1|60 Finished w-2|90 Admitted w-3|150 Finished w-3",
            id="held queue admits nothing until it is resumed",
        ),
        pytest.param(
            "workloads: [{name: w, queue: team/main, requests: {cpu: 1}, pods: 4, minPods: 2, runTime: 1m, "
            "arrivals: {at: [10s]}}, {name: first, queue: team/main, requests: {cpu: 2}, runTime: 5m}]",
            "0 Admitted first-1|10 Admitted w-1|130 Finished w-1|300 Finished first-1",
            id="job with half of its pods runs twice as long",
        ),
    ],
)  # fmt: skip
def test_timeline_of_scenario_has_expected_events(tmp_path: Path, spec: str, expected: str) -> None:
    _, timeline = run_scenario(tmp_path, spec)
    lines = [line for line in timeline.lines if SUBMITTED not in line]
    assert len(lines) == len(expected.split("|")), lines
    for line, begin in zip(lines, expected.split("|"), strict=True):
        assert line.startswith(begin), lines


JOB = """\
---
apiVersion: batch/v1
kind: Job
metadata:
  name: job
  namespace: team
  labels: {admitq.dev/queue-name: main}
spec:
  parallelism: 2
  completions: COMPLETIONS
  activeDeadlineSeconds: DEADLINE
  template:
    spec:
      containers: [{name: main, resources: {requests: {cpu: 2}}}]
"""


def with_job(completions: int = 2, deadline: int = 1000) -> str:
    job = JOB.replace("COMPLETIONS", str(completions)).replace("DEADLINE", str(deadline))
    return WORLD + job


@pytest.mark.parametrize(
    ("completions", "deadline", "last_line"),
    [
        (2, 1000, "60 Finished job-1"),
        (3, 1000, "120 Finished job-1"),
        (5, 1000, "180 Finished job-1"),
        (2, 50, "50 Failed job-1"),
    ],
)
def test_job_of_manifests_runs_its_completions_until_deadline(
    tmp_path: Path, completions: int, deadline: int, last_line: str
) -> None:
    _, timeline = run_scenario(tmp_path, "runTime: 1m", with_job(completions, deadline))
    assert timeline.lines[-1] == last_line


def test_job_used_as_template_is_submitted_only_by_its_class(tmp_path: Path) -> None:
    spec = """
        workloads:
          - name: again
            template: {namespace: team, name: job}
            runTime: 1m
            arrivals: {at: [10s, 20s]}
        """
    _, timeline = run_scenario(tmp_path, spec, with_job())
    assert timeline.lines_of(SUBMITTED) == ["10 Submitted again-1", "20 Submitted again-2"]


def test_quota_of_ended_pods_is_released(tmp_path: Path) -> None:
    spec = """
        workloads:
          - {name: wide, queue: team/main, pods: 2, requests: {cpu: 2},
             runTime: {uniform: {min: 10s, max: 5m}, per: Pod}}
          - {name: next, queue: team/main, requests: {cpu: 2}, runTime: 1s}
        """
    _, timeline = run_scenario(tmp_path, spec)
    assert [line.split()[2] for line in timeline.lines_of(ADMITTED, FINISHED)] == [
        "wide-1",
        "next-1",
        "next-1",
        "wide-1",
    ]


def test_admission_checks_delay_admission(tmp_path: Path) -> None:
    world = WORLD.replace(
        "  namespaceSelector: {}\n",
        "  namespaceSelector: {}\n  admissionChecksStrategy: {admissionChecks: [{name: check}]}\n",
    )
    check = "---\napiVersion: admitq.dev/v1beta2\nkind: AdmissionCheck\nmetadata: {name: check}\n"
    spec = f"admissionChecks: 30s\n{workloads_of_2_cpu(1)}"
    _, timeline = run_scenario(tmp_path, spec, f"{world}{check}spec: {{controllerName: example.com/check}}\n")
    assert timeline.lines_of(ADMITTED, FINISHED) == ["30 Admitted w-1", "90 Finished w-1"]


def test_inadmissible_workload_is_reported_with_its_reason(tmp_path: Path) -> None:
    simulation, _ = run_scenario(
        tmp_path, "workloads: [{name: w, queue: team/main, requests: {cpu: 5}, runTime: 1m}]"
    )
    result = report(simulation)
    assert (result.ending, result.waiting) == (Ending.STUCK, 1)
    (left,) = result.left_waiting
    assert (left.workload, left.cluster_queue, left.reason) == ("team/w-1", "queue", "ExceedsMaxQuota")
    assert "insufficient quota for cpu in flavor default" in left.message


def test_timers_of_core_do_not_prolong_run(tmp_path: Path) -> None:
    usage_based = "  admissionScope: {admissionMode: UsageBasedAdmissionFairSharing}\n"
    configuration = """---
apiVersion: config.admitq.dev/v1beta2
kind: Configuration
admissionFairSharing: {usageHalfLifeTime: 10m, usageSamplingInterval: 1m}
"""
    world = WORLD.replace("  resourceGroups:\n", f"{usage_based}  resourceGroups:\n") + configuration
    spec = (
        f"{workloads_of_2_cpu(3)}  - {{name: never, queue: team/main, requests: {{cpu: 5}}, runTime: 1m}}\n"
    )
    simulation, _ = run_scenario(tmp_path, spec, world)
    result = report(simulation)
    assert (result.ending, result.waiting, result.seconds) == (Ending.STUCK, 1, 120.0)


@pytest.mark.parametrize(("period", "seconds"), [("0s", 120.0), ("10s", 130.0)])
def test_requeued_workloads_are_evaluated_when_their_batch_is_due(
    tmp_path: Path, period: str, seconds: float
) -> None:
    head = "---\napiVersion: config.admitq.dev/v1beta2\nkind: Configuration\n"
    world = f"{WORLD}{head}controller: {{requeueBatchPeriod: {period}}}\n"
    simulation, _ = run_scenario(tmp_path, workloads_of_2_cpu(3), world)
    result = report(simulation)
    assert (result.ending, result.seconds) == (Ending.FINISHED, seconds)


def test_run_ends_at_given_time(tmp_path: Path) -> None:
    simulation, _ = run_scenario(tmp_path, f"until: 90s\n{workloads_of_2_cpu(5)}")
    result = report(simulation)
    assert (result.ending, result.seconds, result.running, result.waiting) == (Ending.UNTIL, 90.0, 2, 1)
    assert result.makespan is None


def test_unlimited_arrivals_end_with_the_run(tmp_path: Path) -> None:
    spec = """
        until: 10m
        workloads:
          - {name: w, queue: team/main, requests: {cpu: 1}, runTime: 1s, arrivals: {poisson: {every: 10s}}}
        """
    simulation, _ = run_scenario(tmp_path, spec)
    assert 30 < simulation.workloads.submitted < 90
    assert simulation.plan.expected is None


# --- determinism ----------------------------------------------------------------------------------

RANDOM_SCENARIO = """
    kills: [{at: 5m, count: 2}]
    workloads:
      - {name: a, queue: team/main, pods: 3, requests: {cpu: 1},
         runTime: {lognormal: {median: 2m, sigma: 1}, per: Pod}, arrivals: {poisson: {every: 1m, count: 40}}}
      - {name: b, queue: team/main, requests: {cpu: 2}, runTime: {weibull: {scale: 1m, shape: 0.7}},
         podsReadyAfter: {exponential: {mean: 5s}}, arrivals: {poisson: {every: 90s, count: 30}}}
    """


def result_of(folder: Path, spec: str) -> Report:
    simulation = Simulation(plan(folder, spec))
    simulation.run()
    return report(simulation)


def test_equal_files_and_seed_give_equal_reports(tmp_path: Path) -> None:
    assert result_of(tmp_path, RANDOM_SCENARIO).to_json() == result_of(tmp_path, RANDOM_SCENARIO).to_json()


@pytest.mark.parametrize("name", ["borrowing", "preemption", "fair-sharing"])
def test_decisions_do_not_depend_on_writing_statuses(name: str) -> None:
    results: list[tuple[list[str], bytes]] = []
    for statuses in (True, False):
        timeline = RecordedTimeline()
        simulation = Simulation(read([shipped_scenarios()[name]], until=600 * 10**9), timeline)
        simulation.state = AdmissionState(simulation.plan.settings, statuses=statuses)
        simulation.run()
        simulation.state.validate()
        results.append((timeline.lines, report(simulation).to_json()))
    assert results[0] == results[1]


def test_other_seed_gives_other_run(tmp_path: Path) -> None:
    path = write(tmp_path, RANDOM_SCENARIO)
    waits = set[Waits]()
    for seed in (1, 2):
        simulation = Simulation(read([path], seed=seed))
        simulation.run()
        waits.add(report(simulation).all.waits)
    assert len(waits) == 2


def submissions_of(source: WorkloadSource) -> list[tuple[object, object]]:
    return [(submission.at, submission.work) for submission in source.submissions]


def test_added_class_does_not_change_arrivals_and_run_times_of_others(tmp_path: Path) -> None:
    added = "      - {name: c, queue: team/main, requests: {cpu: 1}, runTime: 1s}"
    more = f"{RANDOM_SCENARIO.rstrip()}\n{added}\n"
    first, second = plan(tmp_path, RANDOM_SCENARIO), plan(tmp_path, more)
    for source, other in zip(first.sources, second.sources, strict=False):
        assert submissions_of(source) == submissions_of(other)


def test_scenario_without_seed_gets_random_seed(tmp_path: Path) -> None:
    path = write(tmp_path, workloads_of_2_cpu(1))
    path.write_text(path.read_text().replace("  seed: 1\n", ""))
    assert read([path]).seed != read([path]).seed


# --- measured use -----------------------------------------------------------------------------------


def test_measured_use_and_queue_depth_equal_status_of_core(tmp_path: Path) -> None:
    simulation = Simulation(plan(tmp_path, RANDOM_SCENARIO))
    comparisons = 0

    def compare(simulation: Simulation) -> None:
        nonlocal comparisons
        status = simulation.state.queries.cluster_queue_status("queue")
        assert status is not None
        meter = simulation.measures.queues["queue"]
        reserved = {
            total.resource: total.total for flavor in status.flavors_reservation for total in flavor.resources
        }
        assert {pair.resource: level.value for pair, level in meter.uses.items()} == reserved
        assert meter.waiting.value == status.pending
        comparisons += 1

    simulation.run(compare, every=1)
    assert comparisons > 100


# --- preemption -----------------------------------------------------------------------------------

PREEMPTING = WORLD.replace(
    "  namespaceSelector: {}\n",
    "  namespaceSelector: {}\n  preemption: {withinClusterQueue: LowerPriority}\n",
)

LOW_THEN_HIGH = """\
runTime: 100s
workloads:
  - {name: low, queue: team/main, requests: {cpu: 4}}
  - {name: high, queue: team/main, requests: {cpu: 4}, priorityClass: high, arrivals: {at: [70s]}}
"""


@pytest.mark.parametrize(
    ("evictions", "admitted", "finished", "lost"),
    [
        pytest.param("{}", 70, 270, 280, id="no termination time and no checkpoints"),
        pytest.param("{termination: 10s}", 80, 280, 280, id="termination time"),
        pytest.param("{checkpoints: Always}", 70, 200, 0, id="all work kept"),
        pytest.param("{checkpoints: 30s}", 70, 210, 40, id="work kept until last checkpoint"),
    ],
)
def test_preempted_job_stops_and_is_admitted_again(
    tmp_path: Path, evictions: str, admitted: int, finished: int, lost: int
) -> None:
    simulation, timeline = run_scenario(tmp_path, f"evictions: {evictions}\n{LOW_THEN_HIGH}", PREEMPTING)
    assert timeline.lines == [
        "0 Submitted low-1",
        "0 Admitted low-1",
        "70 Submitted high-1",
        "70 Preempted low-1",
        f"{admitted} Stopped low-1",
        f"{admitted} Admitted high-1",
        f"{admitted + 100} Finished high-1",
        f"{admitted + 100} Admitted low-1",
        f"{finished} Finished low-1",
    ]
    result = report(simulation)
    assert result.preemptions.by_reason == {"InClusterQueue": 1}
    assert result.preemptions.lost.get("cpu", 0) == lost
    (queue,) = result.preemptions.cluster_queues
    assert (queue.preempted, queue.preempting) == (1, 1)


def test_pods_that_ended_before_preemption_do_not_run_again(tmp_path: Path) -> None:
    low = "completions: 4\n  activeDeadlineSeconds: 1000"
    job = JOB.replace("completions: COMPLETIONS\n  activeDeadlineSeconds: DEADLINE", low)
    spec = """
        runTime: 50s
        workloads:
          - {name: high, queue: team/main, requests: {cpu: 4}, priorityClass: high, arrivals: {at: [70s]}}
        """
    _, timeline = run_scenario(tmp_path, spec, PREEMPTING + job)
    assert timeline.lines[-2:] == ["120 Admitted job-1", "170 Finished job-1"]
