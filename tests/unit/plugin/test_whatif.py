"""``kubectl admitq whatif`` about files, and what it sends to the visibility API."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from admitq.manifests.documents import read_text
from admitq.plugin.application import run
from admitq.plugin.cluster_access import ClusterAccess
from admitq.plugin.hypothetical_changes import Changes, ask_visibility_api
from admitq.plugin.object_edits import read_edits
from admitq.plugin.remedies import CommandError
from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from tests.unit.controllers.builders import NAMES

WORLD = """\
apiVersion: admitq.dev/v1beta2
kind: ResourceFlavor
metadata: {name: f}
---
apiVersion: admitq.dev/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
    - coveredResources: [cpu]
      flavors: [{name: f, resources: [{name: cpu, nominalQuota: 4}]}]
---
apiVersion: admitq.dev/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: default}
spec: {clusterQueue: cq}
---
apiVersion: admitq.dev/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 100
"""
JOB = """\
---
apiVersion: batch/v1
kind: Job
metadata: {name: NAME, labels: {admitq.dev/queue-name: lq}}
spec:
  parallelism: PODS
  completions: PODS
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}
"""


def job(name: str, pods: int, priority: str = "") -> str:
    text = JOB.replace("NAME", name).replace("PODS", str(pods))
    return text.replace("lq}", f"lq, admitq.dev/priority-class: {priority}}}") if priority else text


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A ClusterQueue of 4 CPUs, of which a job uses 3, and a job that waits for 2."""
    path = tmp_path / "world.yaml"
    path.write_text(WORLD + job("running", 3) + job("waiting", 2))
    return path


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))


def answer(world: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert run(["whatif", "--from", str(world), *words]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return [line.strip() for line in printed.out.splitlines()]


@pytest.mark.parametrize(
    ("words", "title", "begin"),
    [
        (("--quota", "cq:f:cpu=5"), "Admitted:", "workload default/job-waiting-"),
        (("--delete", "job/running"), "Admitted:", "workload default/job-waiting-"),
        (("--stop", "lq/lq"), "Evicted from stopped queues:", "workload default/job-running-"),
    ],
)
def test_option_is_answered_from_manifests_alone(
    world: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], title: str, begin: str
) -> None:
    lines = answer(world, capsys, *words)
    assert lines[lines.index(title) + 1].startswith(begin)


def test_new_job_is_admitted_and_preempts(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = world.parent / "job.yaml"
    path.write_text(job("urgent", 4, "high"))
    lines = answer(world, capsys, "-f", str(path))
    assert lines[lines.index("Admitted:") + 1].startswith("workload default/job-urgent-")
    assert lines[lines.index("Preempted:") + 1].startswith("workload default/job-running-")


def test_answer_as_json_has_fields_and_the_text(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads("\n".join(answer(world, capsys, "--quota", "cq:f:cpu=5", "-o", "json")))
    (admitted,) = document["admitted"]
    assert admitted["workload"]["namespace"] == "default"
    assert document["text"][0] == "Admitted:"
    assert admitted["workload"]["name"] in document["text"][1]


def test_ignored_manifest_is_a_warning(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = world.parent / "web.yaml"
    path.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n")
    assert run(["whatif", "--from", str(world), "-f", str(path)]) == 0
    assert capsys.readouterr().err == "warning: ignored: ConfigMap c: no decision depends on its kind\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "error: no change to ask about\nName manifests with -f FILE, or use --quota"),
        (("-f", "missing.yaml"), "error: missing.yaml: cannot be read: No such file"),
        (("--quota", "cq:f:cpu"), "error: --quota: 'cq:f:cpu' is not CQ:FLAVOR:RESOURCE=AMOUNT"),
        (("--delete", "job/none"), "error: --delete: Job default/none: name: there is no Job default/none"),
        (("--stop", "cq/none"), "error: ClusterQueue none does not exist"),
    ],
)
def test_question_without_an_answer_is_an_error(
    world: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], error: str
) -> None:
    assert run(["whatif", "--from", str(world), *words]) == 1
    assert capsys.readouterr().err.startswith(error)


def test_invalid_manifest_is_an_error_with_its_line(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = world.parent / "job.yaml"
    path.write_text(job("a", 1).replace("cpu: 1", "cpu: much"))
    assert run(["whatif", "--from", str(world), "-f", str(path)]) == 1
    place = f"{path}:8: Job default/a: spec.template.spec.containers[0]"
    assert capsys.readouterr().err.startswith(f"error: {place}.resources.requests.cpu: 'much' is not a")


# --- the visibility API -------------------------------------------------------------------------------


class AnsweringClient:
    """Returns a stored ClusterQueue, records the bodies of questions, and answers them or fails."""

    def __init__(self, *failures: ApiError) -> None:
        self.failures = [*failures]
        self.questions: list[tuple[str, dict[str, Any]]] = []

    async def get(self, _resource: Any, name: str, _namespace: str | None) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": {}, "status": {}}

    async def request_json(self, method: str, path: str, body: Any = None) -> Any:
        assert method == "POST"
        self.questions.append((path, body))
        if self.failures:
            raise self.failures.pop(0)
        return {"status": {"text": ["Admitted:"], "ignored": ["ConfigMap c: no decision"]}}


async def ask(
    client: AnsweringClient,
    group: str = NAMES.visibility_group,
    referenced: tuple[dict[str, Any], ...] = (),
) -> Any:
    documents = read_text(job("a", 1), "job.yaml")
    deletion = {"apiVersion": "batch/v1", "kind": "Job", "namespace": "ns", "name": "b"}
    edits = tuple(read_edits("ns", stops=["cq/cq"]))
    changes = Changes(tuple(documents), edits, (deletion,), referenced)
    access = ClusterAccess(cast("Client", client), NAMES, "ns", frozenset({group}))
    return await ask_visibility_api(access, changes)


async def test_visibility_api_gets_whole_manifests_and_deletions(capsys: pytest.CaptureFixture[str]) -> None:
    client = AnsweringClient()
    assert (await ask(client))["text"] == ["Admitted:"]
    assert capsys.readouterr().err == "warning: ignored: ConfigMap c: no decision\n"
    ((path, body),) = client.questions
    assert path == f"/apis/{NAMES.visibility_group}/{NAMES.version}/whatif"
    assert (body["apiVersion"], body["kind"]) == (f"{NAMES.visibility_group}/{NAMES.version}", "WhatIf")
    job, queue = body["spec"]["objects"]
    assert job["metadata"]["namespace"] == "ns"
    assert (queue["kind"], queue["spec"]) == ("ClusterQueue", {"stopPolicy": "HoldAndDrain"})
    assert [each["name"] for each in body["spec"]["deletions"]] == ["b"]


async def test_user_of_one_namespace_asks_about_this_namespace() -> None:
    client = AnsweringClient(ApiError(403, "Forbidden", "whatif is forbidden"))
    assert (await ask(client))["text"] == ["Admitted:"]
    path, body = client.questions[-1]
    assert path.endswith("/namespaces/ns/localwhatif")
    assert (body["kind"], body["metadata"]) == ("LocalWhatIf", {"namespace": "ns"})


async def test_objects_that_jobs_name_are_part_of_the_question() -> None:
    client = AnsweringClient()
    runtime = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime"}
    await ask(client, referenced=(runtime,))
    ((_, body),) = client.questions
    assert body["spec"]["objects"][-1] == runtime


async def test_cluster_without_visibility_api_gives_no_answer() -> None:
    assert await ask(AnsweringClient(), "other.example.com") is None
    assert await ask(AnsweringClient(ApiError(404, "NotFound", "not found"))) is None


async def test_error_of_the_visibility_api_has_the_line_of_the_file() -> None:
    client = AnsweringClient(ApiError(422, "Invalid", "spec.objects[0]: Job ns/a: spec: is required"))
    with pytest.raises(CommandError, match=r"^job\.yaml:2: Job ns/a: spec: is required"):
        await ask(client)
