"""The command line of `hack/bench`."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from admitq_api.labels import DEFAULT_GROUP
from benchmarks import cli, pods, seed, webhook
from benchmarks.cli import main
from benchmarks.commands import BENCHMARKS, SHAPES
from benchmarks.core_speed import reference_cpu_s
from benchmarks.pods import PodsPlan
from benchmarks.seed import Plan
from benchmarks.webhook import WebhookLoad
from benchmarks.webhook_processes import WebhookFailed

SPEED = {"before": 0.25, "after": 0.5}
SEED_OPTIONS = ["--setting", "ten-minute", "--scale", "5", "--jobs", "7", "--no-queue"]


@pytest.fixture(autouse=True)
def core_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that has half of its speed after a run."""
    speeds = iter([*SPEED.values()] * 10)
    monkeypatch.setattr(cli, "reference_cpu_s", lambda: next(speeds))


@pytest.fixture
def seed_plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans of all runs, which end at once without a cluster."""
    plans: list[Plan] = []

    async def run(plan: Plan) -> tuple[dict[str, Any], bool]:
        plans.append(plan)
        return {"benchmark": "seed", "done": plan.jobs}, plan.jobs > 1

    monkeypatch.setattr(seed, "run", run)
    return plans


def test_shape_runs_the_benchmark_of_its_name_with_the_same_options(
    seed_plans: list[Plan], capsys: pytest.CaptureFixture[str]
):
    assert main(["throughput", "--shape", "seed", *SEED_OPTIONS]) == 0
    assert main(["seed", *SEED_OPTIONS]) == 0
    assert seed_plans[0] == seed_plans[1]
    assert (seed_plans[0].setting, seed_plans[0].scale, seed_plans[0].queue) == ("ten-minute", 5.0, False)
    shape, benchmark = capsys.readouterr().out.splitlines()
    options = " ".join(SEED_OPTIONS)
    command = f"hack/bench throughput --shape seed {options}"
    assert json.loads(shape) == {
        "command": command,
        "reference_cpu_s": SPEED,
        "benchmark": "throughput",
        "shape": "seed",
        "done": 7,
    }
    assert json.loads(benchmark) == {
        "command": f"hack/bench seed {options}",
        "reference_cpu_s": SPEED,
        "benchmark": "seed",
        "done": 7,
    }


def test_reference_is_the_cpu_time_of_one_round():
    before = time.process_time()
    reference = reference_cpu_s()
    assert 0 < reference <= time.process_time() - before


@pytest.mark.parametrize("options", [["--json", "FILE"], ["--json=FILE"]])
def test_result_and_its_command_are_written_to_a_file(
    options: list[str], seed_plans: list[Plan], tmp_path: Path
):
    file = tmp_path / "new" / "seed.json"
    arguments = [option.replace("FILE", str(file)) for option in options]
    assert main(["seed", *arguments, "--jobs", "7"]) == 0
    assert [plan.jobs for plan in seed_plans] == [7]
    written = json.loads(file.read_text())
    expected = {
        "command": "hack/bench seed --jobs 7",
        "reference_cpu_s": SPEED,
        "benchmark": "seed",
        "done": 7,
    }
    assert written == expected


@pytest.mark.parametrize(
    ("options", "variants", "checks"),
    [
        ([], (pods.QUEUE,), False),
        (["--no-queue"], (pods.NO_QUEUE,), False),
        (["--compare"], (pods.QUEUE, pods.NO_QUEUE), False),
        (["--check"], (pods.QUEUE, pods.NO_QUEUE), True),
    ],
)
def test_pods_run_with_admitq_or_without_it_or_both(
    options: list[str], variants: tuple[str, ...], checks: bool, monkeypatch: pytest.MonkeyPatch
):
    plans: list[PodsPlan] = []

    def run(plan: PodsPlan) -> tuple[dict[str, Any], bool]:
        plans.append(plan)
        return {}, True

    monkeypatch.setattr(pods, "run", run)
    assert main(["throughput", "--shape", "pods", "--form", "20x500", *options]) == 0
    assert plans == [PodsPlan(("20x500",), variants, 1.0, 1800.0, DEFAULT_GROUP, checks)]


def test_missed_bound_of_a_shape_is_the_status_of_the_command(seed_plans: list[Plan]):
    assert main(["throughput", "--shape", "seed", "--jobs", "1"]) == 1
    assert seed_plans[0].setting == "literal"


def test_webhook_shape_runs_the_cases_and_reports_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    loads: list[WebhookLoad] = []

    def run(load: WebhookLoad) -> tuple[dict[str, Any], bool]:
        loads.append(load)
        raise WebhookFailed("the webhook did not start")

    monkeypatch.setattr(webhook, "run", run)
    assert main(["throughput", "--shape=webhook", "--only", "highest-jobs-2", "--seconds", "3"]) == 1
    assert loads == [WebhookLoad(cases=("highest-jobs-2",), seconds=3.0)]
    assert capsys.readouterr().err == "hack/bench throughput: the webhook did not start\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--shape", "restart", "--timeout", "5"], "unrecognized arguments: --timeout 5"),
        (["--shape", "webhook", "--setting", "literal"], "unrecognized arguments: --setting literal"),
        (["--shape", "pods", "--check", "--no-queue"], "not allowed with argument"),
        (["--shape", "seed", "--jobs", "0"], "must be at least 1"),
        (["--shape", "huge"], "invalid choice: 'huge'"),
        (["--shape"], "expected one argument"),
    ],
)
def test_option_that_the_shape_does_not_have_is_refused(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        main(["throughput", *arguments])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("shape", SHAPES)
def test_help_of_throughput_describes_the_shape_and_its_options(
    shape: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        main(["throughput", "--shape", shape, "--help"])
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"--shape {shape}: {SHAPES[shape].help}." in text
    assert "--json FILE" in text
    assert ("--setting" in text) == (shape == "seed")
    assert ("--hostile-rate" in text) == (shape == "webhook")


def test_help_lists_all_benchmarks(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    for name, command in BENCHMARKS.items():
        assert f"{name} {command.help}" in text
