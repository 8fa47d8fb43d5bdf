"""Answers of the plugin about files, and what it prints."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from admitq.plugin.answering import ask_server, paint_line
from admitq.plugin.application import run
from admitq.plugin.cluster_access import ClusterAccess
from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from tests.unit.controllers.builders import NAMES, local_queue, reserved, timestamp, workload

ASSIGNED = {"name": "main", "count": 3, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}}
ADMISSION = {"clusterQueue": "cq", "podSetAssignments": [ASSIGNED]}


def stored(
    kind: str, obj: dict[str, Any], name: str = "", api_version: str = NAMES.api_version
) -> dict[str, Any]:
    metadata = {"uid": f"uid-{name}", "creationTimestamp": timestamp(0), **obj.get("metadata", {})}
    if name:
        metadata |= {"name": name, "uid": f"uid-{name}"}
    return {"spec": {}, **obj, "apiVersion": api_version, "kind": kind, "metadata": metadata}


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """The objects of a ClusterQueue with 4 CPUs, and two workloads with three pods of one CPU each."""
    resources = [{"name": "cpu", "nominalQuota": 4}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]}]
    objects = [
        stored("ResourceFlavor", {}, "f"),
        stored("ClusterQueue", {"spec": {"namespaceSelector": {}, "resourceGroups": groups}}, "cq"),
        stored("Namespace", {}, "ns", "v1"),
        stored("LocalQueue", local_queue(), ""),
        stored("Workload", reserved(admission=ADMISSION), "running"),
        stored("Workload", workload(), "waiting"),
    ]
    (tmp_path / "dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return tmp_path


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("explain", "waiting"), "cpu: requests 3, 1 free of at most 4: 2 missing"),
        (("explain", "workload", "waiting", "-n", "ns"), "workload ns/running holds 3 in cq"),
        (("eta", "waiting"), "Starts: not before"),
    ],
)
def test_question_about_files_is_answered_without_a_cluster(
    dump: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: str
) -> None:
    assert run([*words, "--from", str(dump)]) == 0
    printed = capsys.readouterr()
    assert expected in printed.out
    assert printed.err == ""


def node(name: str, cpu: str) -> dict[str, Any]:
    status = {
        "allocatable": {"cpu": cpu, "pods": "9"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    labels = {"rack": "r1", "kubernetes.io/hostname": name}
    return stored("Node", {"metadata": {"labels": labels}, "status": status}, name, "v1")


def test_explanation_names_the_domain_that_is_closest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    flavor = {"nodeLabels": {"rack": "r1"}, "topologyName": "racks"}
    resources = [{"name": "cpu", "nominalQuota": 9}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]}]
    waiting = workload()
    waiting["spec"]["podSets"][0]["topologyRequest"] = {"required": "rack"}
    objects = [
        stored("Topology", {"spec": {"levels": levels}}, "racks"),
        stored("ResourceFlavor", {"spec": flavor}, "f"),
        stored("ClusterQueue", {"spec": {"namespaceSelector": {}, "resourceGroups": groups}}, "cq"),
        stored("Namespace", {}, "ns", "v1"),
        stored("LocalQueue", local_queue(), ""),
        stored("Workload", waiting, "waiting"),
        node("n1", "2"),
        node("n2", "0"),
    ]
    (tmp_path / "dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    assert run(["explain", "waiting", "--from", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert (
        "    topology racks: needs 3 pod(s) in one domain of level rack\n"
        "      level rack: r1 holds 2 of 3 pod(s), limited by cpu; "
        'no pod fits on 1 of its 2 node(s): resource "cpu": 1\n'
        "      level kubernetes.io/hostname: r1/n1 holds 2 of 3 pod(s), limited by cpu\n"
    ) in printed.out
    assert printed.err == ""


def test_job_of_a_manifest_counts_as_submitted(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": 2}}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "new", "labels": {NAMES.queue_name: "lq"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    (dump / "job.json").write_text(json.dumps(job))
    assert run(["explain", "job/new", "--from", str(dump), "-n", "ns"]) == 0
    shown = capsys.readouterr().out
    assert "cpu: requests 2, 1 free of at most 4: 1 missing" in shown
    (dump / "job.json").write_text(json.dumps({**job, "metadata": {"name": "new"}}))
    assert run(["explain", "job/new", "--from", str(dump), "-n", "ns"]) == 1
    assert "Job ns/new" in capsys.readouterr().err


def test_answer_as_json_has_the_text(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "waiting", "--from", str(dump), "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["text"][0] == "Workload ns/waiting: Pending, priority 0"


def test_what_is_assumed_is_a_warning(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = json.loads((dump / "dump.json").read_text())["items"]
    (dump / "dump.json").write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "List",
                "items": [one for one in items if one["kind"] != "Namespace"],
            }
        )
    )
    assert run(["explain", "waiting", "--from", str(dump)]) == 0
    assert capsys.readouterr().err.startswith("warning: labels of namespaces are not known: ns.")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("missing",), "workload missing does not exist"),
        (("waiting", "-n", "other"), "workload waiting does not exist"),
        (("a/b/c",), "'a/b/c' is not a workload"),
        (("waiting", "--config", "missing.yaml"), "--config: missing.yaml cannot be read: No such file"),
        (("waiting", "--from", "missing.yaml"), "missing.yaml: cannot be read: No such file"),
    ],
)
def test_question_without_an_answer_is_an_error(
    dump: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], error: str
) -> None:
    assert run(["explain", *words, "--from", str(dump)]) == 1
    assert f"error: {error}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "painted"),
    [
        ("Waits for: quota", "\033[33mWaits for:\033[0m quota"),
        (
            "  cpu: 1 free of at most 4: 2 missing, limited",
            "  cpu: 1 free of at most 4: \033[31m2 missing\033[0m, limited",
        ),
        ("podset main, flavor f: fits", "podset main, flavor f: \033[32mfits\033[0m"),
        ("Queues: LocalQueue ns/lq", "Queues: LocalQueue ns/lq"),
    ],
)
def test_important_parts_of_lines_have_colors(line: str, painted: str) -> None:
    assert paint_line(line, colored=True) == painted
    assert paint_line(line, colored=False) == line


class AnsweringClient:
    """Answers each call with an object, or fails."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def request_json(self, method: str, path: str, body: Any = None) -> Any:
        assert (method, path, body) == ("GET", "/path", None)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def asked(answer: Any, *groups: str) -> Any:
    client = cast("Client", AnsweringClient(answer))
    return await ask_server(ClusterAccess(client, NAMES, "ns", frozenset(groups)), "GET", "/path", name="w")


async def test_visibility_api_is_asked_if_it_is_served() -> None:
    assert await asked({"text": []}) is None
    assert await asked({"text": []}, NAMES.visibility_group) == {"text": []}


@pytest.mark.parametrize(
    ("status", "warning"),
    [
        (404, ""),
        (405, ""),
        (503, "warning: the visibility API does not answer: failed"),
        (403, "warning: the visibility API does not answer: failed"),
    ],
)
async def test_question_that_is_not_served_has_no_answer(
    capsys: pytest.CaptureFixture[str], status: int, warning: str
) -> None:
    assert await asked(ApiError(status, "Failed", "failed"), NAMES.visibility_group) is None
    assert capsys.readouterr().err[: len(warning) or None] == warning


@pytest.mark.parametrize(
    "error",
    [ApiError(404, "NotFound", "no", body={"details": {"name": "w"}}), ApiError(500, "InternalError", "no")],
)
async def test_missing_workload_and_failure_are_errors(error: ApiError) -> None:
    with pytest.raises(ApiError):
        await asked(error, NAMES.visibility_group)
