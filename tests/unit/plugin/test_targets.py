"""Which Workload a command line names."""

from typing import Any

import pytest

from admitq.plugin.remedies import CommandError
from admitq.plugin.targets import Target, find_key_of_stored, read_target


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["w"], Target("w")),
        (["workload", "w"], Target("w")),
        (["kwl/w"], Target("w")),
        (["job/j"], Target("j", "job")),
        (["job", "j"], Target("j", "job")),
        (["rayjob.ray.io/j"], Target("j", "rayjob.ray.io")),
    ],
)
def test_words_name_a_workload_or_a_job(words: list[str], expected: Target) -> None:
    assert read_target(words) == expected


@pytest.mark.parametrize(
    "words", [["/w"], ["job/"], ["a/b/c"], ["job", "a/b"], ["a", "b", "c"], [".."], ["job/.."]]
)
def test_words_of_another_form_are_refused(words: list[str]) -> None:
    with pytest.raises(CommandError, match="is not a workload\nWrite NAME, workload NAME, or TYPE/NAME"):
        read_target(words)


def workload(
    name: str,
    owner: str = "Job/j",
    namespace: str = "ns",
    *,
    api_version: str = "batch/v1",
    created: int = 0,
    finished: bool = False,
) -> dict[str, Any]:
    kind, _, owner_name = owner.partition("/")
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "creationTimestamp": f"2030-01-01T00:00:0{created}Z",
            "ownerReferences": [{"apiVersion": api_version, "kind": kind, "name": owner_name}],
        },
        "status": {"conditions": [{"type": "Finished", "status": str(finished)}]},
    }


def found(target: Target, *workloads: dict[str, Any], namespace: str | None = None) -> str:
    return str(find_key_of_stored(workloads, target, namespace))


@pytest.mark.parametrize(
    ("target", "owner", "api_version"),
    [
        (Target("w"), "Job/j", "batch/v1"),
        (Target("j", "job"), "Job/j", "batch/v1"),
        (Target("j", "Jobs"), "Job/j", "batch/v1"),
        (Target("j", "rayjob"), "RayJob/j", "ray.io/v1"),
        (Target("j", "rayjobs.ray.io"), "RayJob/j", "ray.io/v1"),
        (Target("j", "robots.example.com"), "Robot/j", "example.com/v1"),
    ],
)
def test_workload_is_found_by_its_name_and_its_job(target: Target, owner: str, api_version: str) -> None:
    others = (workload("other", "Job/k"), workload("third", "Job/j", api_version="batch.example.com/v1"))
    assert found(target, *others, workload("w", owner, api_version=api_version)) == "ns/w"


def test_latest_unfinished_workload_of_a_job_is_meant() -> None:
    old, new = workload("old"), workload("new", created=1)
    ended = workload("ended", created=2, finished=True)
    assert found(Target("j", "job"), old, ended, new) == "ns/new"
    assert found(Target("j", "job"), ended, workload("first", finished=True)) == "ns/ended"


def test_namespace_selects_among_equal_names() -> None:
    both = (workload("w"), workload("w", namespace="other"))
    assert found(Target("w"), *both, namespace="other") == "other/w"
    with pytest.raises(CommandError, match="exists in the namespaces ns, other\nSelect one with --namespace"):
        found(Target("w"), *both)


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (Target("missing"), "^workload missing does not exist$"),
        (Target("missing", "job"), "^job/missing has no Workload\n"),
    ],
)
def test_missing_workload_is_reported(target: Target, problem: str) -> None:
    with pytest.raises(CommandError, match=problem):
        found(target, workload("w"))
