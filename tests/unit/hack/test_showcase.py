import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from admitq_api.labels import COMPAT_GROUP, DEFAULT_GROUP, names_for
from showcase import cli, samples
from showcase.objects import path_of
from showcase.progress import JobProgress, JobStage, read_jobs, read_queues
from showcase.view import Story

NAMES = names_for()


class FixedLists:
    """API client that returns fixed lists."""

    def __init__(self, **lists: list[dict[str, Any]]) -> None:
        self._lists = lists

    def request(self, _method: str, path: str) -> dict[str, Any]:
        return {"items": self._lists.get(path.rpartition("/")[2], [])}


def job(*, suspend: bool = False, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "team-a", "name": "first", "uid": "u1"},
        "spec": {"parallelism": 4, "suspend": suspend},
        "status": status,
    }


def workload(**status: Any) -> dict[str, Any]:
    return {"metadata": {"ownerReferences": [{"uid": "u1"}]}, "status": status}


def condition(name: str, status: str = "True", message: str = "") -> dict[str, str]:
    return {"type": name, "status": status, "message": message}


ADMITTED = workload(admission={"podSetAssignments": [{"flavors": {"cpu": "spot", "memory": "spot"}}]})
HELD = workload(conditions=[condition("QuotaReserved", "False", "no quota")])


@pytest.mark.parametrize(
    ("job_object", "workloads", "expected"),
    [
        (job(suspend=True), [], (JobStage.HELD, (), "")),
        (job(suspend=True), [HELD], (JobStage.HELD, (), "no quota")),
        (job(active=4), [ADMITTED], (JobStage.ADMITTED, ("spot",), "")),
        (job(active=4, ready=3), [ADMITTED], (JobStage.RUNNING, ("spot",), "")),
        (job(succeeded=4), [ADMITTED], (JobStage.RUNNING, ("spot",), "")),
        (job(conditions=[condition("Complete")]), [ADMITTED], (JobStage.FINISHED, ("spot",), "")),
        (job(conditions=[condition("Failed")]), [], (JobStage.FAILED, (), "")),
        (job(conditions=[condition("Complete", "False")]), [], (JobStage.ADMITTED, (), "")),
    ],
)
def test_job_progress_follows_status_and_conditions(
    job_object: dict[str, Any],
    workloads: list[dict[str, Any]],
    expected: tuple[JobStage, tuple[str, ...], str],
):
    api: Any = FixedLists(jobs=[job_object], workloads=workloads)
    (progress,) = read_jobs(api, NAMES, [("team-a", "first")])
    assert (progress.stage, progress.flavors, progress.reason) == expected


def test_queue_progress_lists_cpu_usage_in_order_of_flavors():
    queue = {
        "metadata": {"name": "team-a"},
        "spec": {
            "resourceGroups": [
                {
                    "flavors": [
                        {
                            "name": name,
                            "resources": [
                                {"name": "cpu", "nominalQuota": 4},
                                {"name": "memory", "nominalQuota": 1},
                            ],
                        }
                        for name in ("on-demand", "spot")
                    ]
                }
            ]
        },
        "status": {
            "pendingWorkloads": 2,
            "admittedWorkloads": 1,
            "flavorsUsage": [
                {"name": "on-demand", "resources": [{"name": "cpu", "total": "8", "borrowed": "4"}]}
            ],
        },
    }
    api: Any = FixedLists(clusterqueues=[queue])
    (progress,) = read_queues(api, NAMES)
    assert (progress.pending, progress.admitted) == (2, 1)
    assert [(use.flavor, use.used, use.borrowed, use.nominal) for use in progress.flavors] == [
        ("on-demand", "8", "4", "4"),
        ("spot", "0", "0", "4"),
    ]


def test_story_has_one_line_per_stage_and_one_for_the_reason():
    def progress(stage: JobStage, reason: str = "") -> list[JobProgress]:
        return [
            JobProgress("team-a/first", stage, 4, 4, ("spot",) if stage is not JobStage.HELD else (), reason)
        ]

    story = Story(begin=100.0)
    lines_of_steps = [
        story.lines(progress(JobStage.HELD), 100.0),
        story.lines(progress(JobStage.HELD, "no quota"), 100.5),
        story.lines(progress(JobStage.HELD, "still no quota"), 101.0),
        story.lines(progress(JobStage.RUNNING), 102.0),
        story.lines(progress(JobStage.FINISHED), 110.0),
    ]
    assert [line.split(maxsplit=3)[2:] for lines in lines_of_steps for line in lines] == [
        ["team-a/first", "held"],
        ["team-a/first", "held: no quota"],
        ["team-a/first", "running on spot, 4 of 4 pods ready"],
        ["team-a/first", "finished"],
    ]


@pytest.mark.parametrize(
    ("stage", "ready", "reason", "is_decided", "is_settled"),
    [
        (JobStage.HELD, 0, "", False, False),
        (JobStage.HELD, 0, "no quota", True, True),
        (JobStage.ADMITTED, 0, "", True, True),
        (JobStage.RUNNING, 3, "", True, False),
        (JobStage.RUNNING, 4, "", True, True),
    ],
)
def test_job_is_settled_once_it_has_a_reason_or_all_pods(
    stage: JobStage, ready: int, reason: str, is_decided: bool, is_settled: bool
):
    progress = JobProgress("team-a/first", stage, ready, 4, (), reason)
    assert (progress.is_decided, progress.is_settled) == (is_decided, is_settled)


@pytest.mark.parametrize("sample", samples.names())
@pytest.mark.parametrize("group", [DEFAULT_GROUP, COMPAT_GROUP])
def test_samples_use_chosen_group_and_their_jobs_end_or_stay_in_a_stage(
    sample: str, group: str, tmp_path: Path
):
    written = samples.write(sample, group, tmp_path)
    objects = [obj for path in written.values() for obj in yaml.safe_load_all(path.read_text())]
    groups = {
        obj["apiVersion"].partition("/")[0] for obj in objects if obj["kind"].endswith(("Queue", "Flavor"))
    }
    assert groups == {group}
    last_stages = samples.load(sample).last_stages
    jobs = [obj for obj in objects if obj["kind"] == "Job"]
    for obj in jobs:
        assert f"{group}/queue-name" in obj["metadata"]["labels"]
        annotations = obj["spec"]["template"]["metadata"]["annotations"]
        name = f"{obj['metadata']['namespace']}/{obj['metadata'].get('name')}"
        assert ("kwok.admitq.dev/run-seconds" in annotations) is (name not in last_stages)
        own = {key.partition("/")[0] for key in annotations if not key.startswith("kwok.")}
        assert own <= {group}
    names = {f"{obj['metadata']['namespace']}/{obj['metadata'].get('name')}" for obj in jobs}
    assert set(last_stages) <= names


def test_commands_of_samples_name_existing_manifests(tmp_path: Path):
    folder = tmp_path / "with space"
    for name in samples.names():
        written = samples.write(name, DEFAULT_GROUP, folder)
        for command in samples.load(name).commands_in(folder):
            words = shlex.split(command)
            assert words[0] == "kubectl"
            for word in words:
                assert not word.startswith(str(folder)) or Path(word) in written.values()


def test_help_lists_the_samples_with_what_they_create(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    shown = capsys.readouterr().out
    for name in ("teams", "topology"):
        assert f"{name:<10} {samples.load(name).summary}" in shown


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}, "/api/v1/namespaces/a"),
        (
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "a"}},
            "/apis/batch/v1/namespaces/a/jobs/j",
        ),
    ],
)
def test_object_path_contains_version_namespace_and_name(obj: dict[str, Any], path: str):
    assert path_of(obj) == path
