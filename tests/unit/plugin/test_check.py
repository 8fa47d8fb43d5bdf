"""``check`` about files: verdicts, exit statuses, and what is refused."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from admitq.plugin.application import run
from admitq_api.labels import DEFAULT_GROUP, names_for

NAMES = names_for(DEFAULT_GROUP)


def manifest(
    kind: str, name: str, api_version: str = NAMES.api_version, namespace: str = "", **parts: Any
) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            **({"namespace": namespace} if namespace else {}),
            **parts.pop("metadata", {}),
        },
        **parts,
    }


def job(name: str, cpu: Any = 1, queue: str | None = "lq", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    labels = {} if queue is None else {NAMES.queue_name: queue}
    return manifest("Job", name, "batch/v1", metadata={"labels": labels}, spec={"template": template, **spec})


DEFAULT = manifest("LocalQueue", "default", namespace="team", spec={"clusterQueue": "cq"})


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Manifests of a ClusterQueue with 4 CPUs and a LocalQueue in the namespace ``team``."""
    resources = [{"name": "cpu", "nominalQuota": 4}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]}]
    objects = [
        manifest("ResourceFlavor", "f"),
        manifest("ClusterQueue", "cq", spec={"namespaceSelector": {}, "resourceGroups": groups}),
        manifest("LocalQueue", "lq", namespace="team", spec={"clusterQueue": "cq"}),
    ]
    file = tmp_path / "queues.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return file


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))


def checked(cluster: Path, *objects: dict[str, Any]) -> int:
    file = cluster.parent / "jobs.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects]}))
    return run(["check", "-f", str(file), "--from", str(cluster), "-n", "team", "-o", "json"])


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return json.loads(capsys.readouterr().out)["objects"]


@pytest.mark.parametrize(
    ("objects", "status", "verdicts"),
    [
        ([job("a")], 0, ["Admitted"]),
        ([job("a", 3), job("b", 2)], 3, ["Admitted", "Waits"]),
        ([job("a", 5)], 4, ["Never"]),
        ([job("a", queue="missing")], 4, ["Never"]),
        ([job("a", queue=None)], 0, ["NotQueued"]),
        ([job("a", "much")], 4, ["Refused"]),
        ([job("a", -1), job("b")], 4, ["Refused", "Admitted"]),
        ([manifest("Cohort", "c", spec={"unknown": 1})], 4, ["Refused"]),
        ([DEFAULT, job("a", queue=None)], 0, ["Accepted", "Admitted"]),
        ([manifest("ConfigMap", "m", "v1", data={})], 0, ["Accepted"]),
    ],
    ids=[
        "fits", "one waits", "exceeds the quota", "queue does not exist", "names no queue", "no quantity",
        "negative", "unknown field", "default queue of the same file", "other kind",
    ],
)  # fmt: skip
def test_verdict_and_exit_status_of_objects(
    cluster: Path,
    capsys: pytest.CaptureFixture[str],
    objects: list[dict[str, Any]],
    status: int,
    verdicts: list[str],
) -> None:
    assert checked(cluster, *objects) == status
    assert [each["verdict"] for each in printed(capsys)] == verdicts


def test_admitted_job_has_queue_and_flavors(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked(cluster, job("a"))
    (found,) = printed(capsys)
    assert (found["localQueue"], found["clusterQueue"]) == ("lq", "cq")
    assert found["podSets"] == [{"name": "main", "count": 1, "flavors": {"cpu": "f"}}]


def test_answer_is_written_as_yaml(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked(cluster, job("a"))
    from_json = json.loads(capsys.readouterr().out)
    arguments = ["-f", str(cluster.parent / "jobs.json"), "--from", str(cluster), "-n", "team", "-o", "yaml"]
    run(["check", *arguments])
    assert yaml.safe_load(capsys.readouterr().out) == from_json


def test_generated_names_are_numbered(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generated = job("")
    generated["metadata"] = {**generated["metadata"], "generateName": "train-"}
    del generated["metadata"]["name"]
    assert checked(cluster, generated, generated) == 0
    assert [(each["name"], each["verdict"]) for each in printed(capsys)] == [
        ("train-1", "Admitted"),
        ("train-2", "Admitted"),
    ]


def test_text_has_verdict_reason_and_what_is_not_checked(
    cluster: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sys.stdin", io.StringIO("\n---\n".join(map(json.dumps, (job("a", 3), job("b", 2), job("c", "x")))))
    )
    assert run(["check", "-f", "-", "--from", str(cluster), "-n", "team"]) == 4
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Job a: would be admitted now"
    assert lines[1:3] == [
        "  Queues: LocalQueue team/lq, ClusterQueue cq",
        "  Podset main: 1 pod, cpu of flavor f",
    ]
    assert lines[3] == "Job b: would wait"
    assert (
        "      cpu: requests 2, 1 free of at most 4: 1 missing, limited by the quota of ClusterQueue cq"
        in lines
    )
    refused = lines.index("Job c: refused")
    assert lines[refused + 1].startswith(
        "  standard input:5: spec.template.spec.containers[0].resources.requests"
    )
    assert lines[-1].startswith("Not checked: admission webhooks and policies of the cluster, ")


@pytest.mark.parametrize(
    ("text", "error"),
    [("a: [", "not YAML"), ("", "no objects in")],
    ids=["not YAML", "empty"],
)
def test_file_that_cannot_be_read_is_an_error(
    cluster: Path, capsys: pytest.CaptureFixture[str], text: str, error: str
) -> None:
    (cluster.parent / "job.yaml").write_text(text)
    assert run(["check", "-f", str(cluster.parent / "job.yaml"), "--from", str(cluster)]) == 1
    assert error in capsys.readouterr().err


def test_invalid_object_of_the_cluster_is_an_error(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.write_text(json.dumps(manifest("Cohort", "c", spec={"unknown": 1})))
    assert checked(cluster, job("a")) == 1
    assert "Cohort c: spec.unknown" in capsys.readouterr().err
