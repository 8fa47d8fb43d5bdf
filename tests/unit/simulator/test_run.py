"""What happens on the virtual clock, told by its timeline."""

from pathlib import Path

import pytest

from admitq.core.state import AdmissionState
from admitq.simulator import Simulation, read, report, shipped_scenarios
from admitq.simulator.plan import WorkloadSource
from admitq.simulator.report import Report, Waits
from admitq.simulator.run import Ending
from admitq.simulator.timeline import TimelineEvent
from tests.unit.simulator.stage import WORLD, Story, plan, played, write

SUBMITTED, ADMITTED, FINISHED = TimelineEvent.SUBMITTED, TimelineEvent.ADMITTED, TimelineEvent.FINISHED
FAILED, KILLED, STOPPED, PREEMPTED = (
    TimelineEvent.FAILED,
    TimelineEvent.KILLED,
    TimelineEvent.STOPPED,
    TimelineEvent.PREEMPTED,
)


def small(count: int, run_time: str = "1m", **more: str) -> str:
    """So many workloads of 2 CPU, of which two fit at a time, all there at the start."""
    others = "".join(f", {key}: {value}" for key, value in more.items())
    return (
        f"workloads:\n  - {{name: w, queue: team/main, requests: {{cpu: 2}}, runTime: {run_time}, "
        f"arrivals: {{fixed: {{count: {count}}}}}{others}}}\n"
    )


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        pytest.param(
            small(3),
            "0 Admitted w-1|0 Admitted w-2|60 Finished w-1|60 Finished w-2|60 Admitted w-3|120 Finished w-3",
            id="a job that does not fit waits for those before it",
        ),
        pytest.param(
            small(1, podsReadyAfter="10s"),
            "0 Admitted w-1|70 Finished w-1",
            id="run time counts from ready pods",
        ),
        pytest.param(
            small(1, run_time="{constant: 1m, atMost: 40s}"), "0 Admitted w-1|40 Finished w-1", id="at most"
        ),
        pytest.param(
            "runTime: 1m\nworkloads: [{name: w, queue: team/main, requests: {cpu: 1}, "
            "arrivals: [{at: [5s]}, {fixed: {count: 2, start: 1s, every: 8s}}]}]",
            "1 Admitted w-1|5 Admitted w-2|9 Admitted w-3|61 Finished w-1|65 Finished w-2|69 Finished w-3",
            id="arrivals of several kinds come in the order of time",
        ),
        pytest.param(
            small(1) + "kills: [{at: 30s}]",
            "0 Admitted w-1|30 Killed w-1|90 Finished w-1",
            id="a killed job starts over",
        ),
        pytest.param(
            small(1, podsReadyAfter="10s") + "kills: [{at: 30s}]",
            "0 Admitted w-1|30 Killed w-1|100 Finished w-1",
            id="a killed job has ready pods again after a while",
        ),
        pytest.param(
            small(3) + "kills: [{at: 30s, count: 5, then: Fail}]",
            "0 Admitted w-1|0 Admitted w-2|30 Killed|30 Failed|30 Killed|30 Failed|30 Admitted w-3|90 F",
            id="a job that fails for good frees quota",
        ),
        pytest.param(
            small(1) + "kills: [{at: 30s, workloads: other}, {at: 30s, flavor: spot}]",
            "0 Admitted w-1|60 Finished w-1",
            id="kills hit the named jobs",
        ),
        pytest.param(
            small(4) + "changes: [{at: 30s, patch: {kind: ClusterQueue, name: queue, patch: {spec: "
            "{resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: "
            "[{name: cpu, nominalQuota: 8}]}]}]}}}}]",
            "0 Admitted w-1|0 Admitted w-2|30 Admitted w-3|30 Admitted w-4|"
            "60 Finished w-1|60 Finished w-2|90 Finished w-3|90 Finished w-4",
            id="more quota admits at once",
        ),
        pytest.param(
            small(3) + "changes: [{at: 30s, patch: {kind: ClusterQueue, name: queue, patch: "
            "{spec: {stopPolicy: Hold}}}}, {at: 90s, patch: {kind: ClusterQueue, name: queue, patch: "
            "{spec: {stopPolicy: null}}}}]",
            "0 Admitted w-1|0 Admitted w-2|60 Finished w-1|60 Finished w-2|90 Admitted w-3|150 Finished w-3",
            id="a queue that is held admits nothing until it goes on",
        ),
        pytest.param(
            "workloads: [{name: w, queue: team/main, requests: {cpu: 1}, pods: 4, minPods: 2, runTime: 1m, "
            "arrivals: {at: [10s]}}, {name: first, queue: team/main, requests: {cpu: 2}, runTime: 5m}]",
            "0 Admitted first-1|10 Admitted w-1|130 Finished w-1|300 Finished first-1",
            id="with half of its pods a job takes twice as long",
        ),
    ],
)  # fmt: skip
def test_what_happens(tmp_path: Path, spec: str, told: str) -> None:
    _, story = played(tmp_path, spec)
    lines = [line for line in story.lines if SUBMITTED not in line]
    assert len(lines) == len(told.split("|")), lines
    for line, begin in zip(lines, told.split("|"), strict=True):
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
    ("completions", "deadline", "told"),
    [
        (2, 1000, "60 Finished job-1"),
        (3, 1000, "120 Finished job-1"),
        (5, 1000, "180 Finished job-1"),
        (2, 50, "50 Failed job-1"),
    ],
)
def test_a_job_of_the_manifests_is_submitted_and_runs_its_completions(
    tmp_path: Path, completions: int, deadline: int, told: str
) -> None:
    _, story = played(tmp_path, "runTime: 1m", with_job(completions, deadline))
    assert story.lines[-1] == told


def test_a_job_that_a_class_refers_to_comes_only_when_the_class_says_so(tmp_path: Path) -> None:
    spec = """
        workloads:
          - name: again
            template: {namespace: team, name: job}
            runTime: 1m
            arrivals: {at: [10s, 20s]}
        """
    _, story = played(tmp_path, spec, with_job())
    assert story.of(SUBMITTED) == ["10 Submitted again-1", "20 Submitted again-2"]


def test_quota_of_pods_that_ended_is_free_for_others(tmp_path: Path) -> None:
    spec = """
        workloads:
          - {name: wide, queue: team/main, pods: 2, requests: {cpu: 2},
             runTime: {uniform: {min: 10s, max: 5m}, per: Pod}}
          - {name: next, queue: team/main, requests: {cpu: 2}, runTime: 1s}
        """
    _, story = played(tmp_path, spec)
    assert [line.split()[2] for line in story.of(ADMITTED, FINISHED)] == [
        "wide-1",
        "next-1",
        "next-1",
        "wide-1",
    ]


def test_admission_checks_take_their_time(tmp_path: Path) -> None:
    world = WORLD.replace(
        "  namespaceSelector: {}\n",
        "  namespaceSelector: {}\n  admissionChecksStrategy: {admissionChecks: [{name: check}]}\n",
    )
    check = "---\napiVersion: admitq.dev/v1beta2\nkind: AdmissionCheck\nmetadata: {name: check}\n"
    spec = f"admissionChecks: 30s\n{small(1)}"
    _, story = played(tmp_path, spec, f"{world}{check}spec: {{controllerName: example.com/check}}\n")
    assert story.of(ADMITTED, FINISHED) == ["30 Admitted w-1", "90 Finished w-1"]


def test_workload_that_can_never_be_admitted_is_reported_with_its_reason(tmp_path: Path) -> None:
    simulation, _ = played(
        tmp_path, "workloads: [{name: w, queue: team/main, requests: {cpu: 5}, runTime: 1m}]"
    )
    result = report(simulation)
    assert (result.ending, result.waiting) == (Ending.STUCK, 1)
    (left,) = result.left_waiting
    assert (left.workload, left.cluster_queue, left.reason) == ("team/w-1", "queue", "ExceedsMaxQuota")
    assert "insufficient quota for cpu in flavor default" in left.message


def test_timers_of_the_core_do_not_make_a_run_longer(tmp_path: Path) -> None:
    usage_based = "  admissionScope: {admissionMode: UsageBasedAdmissionFairSharing}\n"
    configuration = """---
apiVersion: config.admitq.dev/v1beta2
kind: Configuration
admissionFairSharing: {usageHalfLifeTime: 10m, usageSamplingInterval: 1m}
"""
    world = WORLD.replace("  resourceGroups:\n", f"{usage_based}  resourceGroups:\n") + configuration
    spec = f"{small(3)}  - {{name: never, queue: team/main, requests: {{cpu: 5}}, runTime: 1m}}\n"
    simulation, _ = played(tmp_path, spec, world)
    result = report(simulation)
    assert (result.ending, result.waiting, result.seconds) == (Ending.STUCK, 1, 120.0)


@pytest.mark.parametrize(("period", "seconds"), [("0s", 120.0), ("10s", 130.0)])
def test_woken_workloads_are_evaluated_when_their_batch_is_due(
    tmp_path: Path, period: str, seconds: float
) -> None:
    head = "---\napiVersion: config.admitq.dev/v1beta2\nkind: Configuration\n"
    world = f"{WORLD}{head}controller: {{requeueBatchPeriod: {period}}}\n"
    simulation, _ = played(tmp_path, small(3), world)
    result = report(simulation)
    assert (result.ending, result.seconds) == (Ending.FINISHED, seconds)


def test_the_run_ends_when_its_time_is_up(tmp_path: Path) -> None:
    simulation, _ = played(tmp_path, f"until: 90s\n{small(5)}")
    result = report(simulation)
    assert (result.ending, result.seconds, result.running, result.waiting) == (Ending.UNTIL, 90.0, 2, 1)
    assert result.makespan is None


def test_arrivals_without_end_are_cut_by_the_end_of_the_run(tmp_path: Path) -> None:
    spec = """
        until: 10m
        workloads:
          - {name: w, queue: team/main, requests: {cpu: 1}, runTime: 1s, arrivals: {poisson: {every: 10s}}}
        """
    simulation, _ = played(tmp_path, spec)
    assert 30 < simulation.workloads.submitted < 90
    assert simulation.plan.expected is None


# --- determinism ----------------------------------------------------------------------------------

CHANCE = """
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


def test_the_same_files_and_seed_give_the_same_bytes(tmp_path: Path) -> None:
    assert result_of(tmp_path, CHANCE).to_json() == result_of(tmp_path, CHANCE).to_json()


@pytest.mark.parametrize("name", ["borrowing", "preemption", "fair-sharing"])
def test_decisions_are_those_of_a_driver_that_writes_statuses(name: str) -> None:
    told: list[tuple[list[str], bytes]] = []
    for statuses in (True, False):
        story = Story()
        simulation = Simulation(read([shipped_scenarios()[name]], until=600 * 10**9), story)
        simulation.state = AdmissionState(simulation.plan.settings, statuses=statuses)
        simulation.run()
        simulation.state.validate()
        told.append((story.lines, report(simulation).to_json()))
    assert told[0] == told[1]


def test_another_seed_gives_another_run(tmp_path: Path) -> None:
    path = write(tmp_path, CHANCE)
    waits = set[Waits]()
    for seed in (1, 2):
        simulation = Simulation(read([path], seed=seed))
        simulation.run()
        waits.add(report(simulation).all.waits)
    assert len(waits) == 2


def drawn(source: WorkloadSource) -> list[tuple[object, object]]:
    return [(submission.at, submission.work) for submission in source.submissions]


def test_another_class_changes_no_arrival_and_no_run_time_of_the_others(tmp_path: Path) -> None:
    more = f"{CHANCE.rstrip()}\n      - {{name: c, queue: team/main, requests: {{cpu: 1}}, runTime: 1s}}\n"
    first, second = plan(tmp_path, CHANCE), plan(tmp_path, more)
    for one, other in zip(first.sources, second.sources, strict=False):
        assert drawn(one) == drawn(other)


def test_scenario_without_seed_draws_and_reports_one(tmp_path: Path) -> None:
    path = write(tmp_path, small(1))
    path.write_text(path.read_text().replace("  seed: 1\n", ""))
    assert read([path]).seed != read([path]).seed


# --- what is measured is what a status would show ---------------------------------------------------


def test_measured_use_is_what_the_core_reports(tmp_path: Path) -> None:
    simulation = Simulation(plan(tmp_path, CHANCE))
    seen: list[bool] = []

    def compare(of: Simulation) -> None:
        status = of.state.queries.cluster_queue_status("queue")
        assert status is not None
        meter = of.measures.queues["queue"]
        held = {
            total.resource: total.total for flavor in status.flavors_reservation for total in flavor.resources
        }
        assert {pair.resource: level.value for pair, level in meter.uses.items()} == held
        assert meter.waiting.value == status.pending
        seen.append(True)

    simulation.run(compare, every=1)
    assert len(seen) > 100


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
        pytest.param("{}", 70, 270, 280, id="at once and with nothing kept"),
        pytest.param("{termination: 10s}", 80, 280, 280, id="after a while"),
        pytest.param("{checkpoints: Always}", 70, 200, 0, id="all is kept"),
        pytest.param("{checkpoints: 30s}", 70, 210, 40, id="up to the last checkpoint"),
    ],
)
def test_preempted_job_stops_waits_and_is_admitted_again(
    tmp_path: Path, evictions: str, admitted: int, finished: int, lost: int
) -> None:
    simulation, story = played(tmp_path, f"evictions: {evictions}\n{LOW_THEN_HIGH}", PREEMPTING)
    assert story.lines == [
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


def test_pods_that_ended_before_a_preemption_stay_ended(tmp_path: Path) -> None:
    low = "completions: 4\n  activeDeadlineSeconds: 1000"
    job = JOB.replace("completions: COMPLETIONS\n  activeDeadlineSeconds: DEADLINE", low)
    spec = """
        runTime: 50s
        workloads:
          - {name: high, queue: team/main, requests: {cpu: 4}, priorityClass: high, arrivals: {at: [70s]}}
        """
    _, story = played(tmp_path, spec, PREEMPTING + job)
    assert story.lines[-2:] == ["120 Admitted job-1", "170 Finished job-1"]
