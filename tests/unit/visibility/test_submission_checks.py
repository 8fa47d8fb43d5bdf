"""Questions about submissions: verdicts, what a tenant sees of others, and what is rejected."""

from typing import Any

import orjson
import pytest

from admitq.asking.run_time_estimates import RunTimeRecords
from admitq.core.state import AdmissionState
from admitq.visibility.background_questions import BackgroundQuestions
from admitq.visibility.documents import create_documents
from admitq.visibility.hypothetical_cluster import HypotheticalCluster
from admitq.visibility.submission_checks import list_submission_checks
from admitq_api.labels import COMPAT_GROUP, DEFAULT_GROUP, names_for
from tests.unit.asking.test_answers import observing_state, running
from tests.unit.visibility.test_hypothetical_changes import (
    ROOT,
    STORED,
    Served,
    larger_queue,
    new_job,
    own,
)
from tests.unit.visibility.test_visibility import check_references

CHECK = f"{ROOT}/check"
LOCAL = f"{ROOT}/namespaces/ours/localcheck"


def without_queue(name: str) -> dict[str, Any]:
    obj = new_job(name)
    obj["metadata"]["labels"] = {}
    return obj


def verdicts(answer: Any) -> list[str]:
    return [each["verdict"] for each in answer["status"]["objects"]]


async def test_answer_has_a_verdict_for_each_object_and_changes_nothing() -> None:
    served = Served(state=observing_state(running("ours/second")))
    before = served.state.to_dict()
    objects = [
        new_job("fits"),
        new_job("waits", "3m"),
        new_job("huge", "9"),
        new_job("invalid", "-1"),
        without_queue("free"),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ours"}},
    ]
    answer = await served.suppose(CHECK, *objects)
    assert (answer["kind"], answer["spec"]) == ("Check", {"objects": objects})
    assert verdicts(answer) == ["Admitted", "Waits", "Never", "Refused", "NotQueued", "Accepted"]
    fits, waits, huge, invalid, *_ = answer["status"]["objects"]
    assert (fits["name"], fits["clusterQueue"], fits["podSets"][0]["count"]) == ("fits", "a", 1)
    assert waits["forecast"] is not None
    assert waits["text"][0].startswith("Starts: ")
    assert (huge["podSets"], huge["forecast"], huge["explanation"]["phase"]) == ([], None, "Pending")
    assert invalid["problems"][0].startswith("spec.objects[3]: spec.template.spec.containers[0].resources")
    assert "Job ours/waits: would wait" in answer["status"]["text"]
    assert answer["status"]["notChecked"]
    assert served.state.to_dict() == before


async def test_job_without_queue_never_runs_if_it_stays_suspended() -> None:
    answer = await Served(manages_jobs_without_queue=True).suppose(CHECK, without_queue("free"))
    assert verdicts(answer) == ["Never"]


@pytest.mark.parametrize(
    ("kind", "replicas", "verdict"),
    [
        ("Deployment", 1, "Admitted"),
        ("Deployment", 9, "Waits"),
        ("StatefulSet", 1, "Admitted"),
        ("StatefulSet", 9, "Never"),
    ],
)
async def test_object_that_serves_has_the_worst_verdict_of_its_workloads(
    kind: str, replicas: int, verdict: str
) -> None:
    job = new_job("web")
    labels = {"app": "web"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": job["spec"]["template"]["spec"]["containers"]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    served = Served(state=observing_state(running("ours/second")))
    answer = await served.suppose(CHECK, {**job, "apiVersion": "apps/v1", "kind": kind, "spec": spec})
    assert verdicts(answer) == [verdict]


async def test_generated_names_are_numbered() -> None:
    generated = new_job("")
    generated["metadata"] = {**generated["metadata"], "generateName": "train-"}
    del generated["metadata"]["name"]
    answer = await Served().suppose(CHECK, generated, generated)
    assert [each["name"] for each in answer["status"]["objects"]] == ["train-1", "train-2"]


async def test_tenant_sees_its_verdicts_and_no_names_of_other_namespaces() -> None:
    """One job preempts a workload of another namespace, and another job waits behind it."""
    state = observing_state(running("theirs/first", cpu=3, priority=-5), running("ours/second"))
    objects = (new_job("preempts", "1m"), new_job("waits", "4m"))
    answer = await Served(everywhere=False, state=state).suppose(LOCAL, *objects)
    assert (answer["kind"], answer["metadata"]) == ("LocalCheck", {"namespace": "ours"})
    assert verdicts(answer) == ["Admitted", "Waits"]
    assert b"theirs" not in orjson.dumps(answer)
    assert answer["status"]["objects"][0]["preempted"] == [None]
    assert "  Preempts: a workload of another namespace" in answer["status"]["text"]
    shown = await Served(state=state).suppose(LOCAL, *objects)
    assert shown["status"]["objects"][0]["preempted"] == [{"namespace": "theirs", "name": "first"}]


async def test_tenant_learns_nothing_about_queues_through_hypothetical_local_queues() -> None:
    foreign, known = (own("LocalQueue", "new", {"clusterQueue": queue}, "ours") for queue in ("b", "other"))
    tenant = Served(everywhere=False)
    response = await tenant.post(LOCAL, {"spec": {"objects": [foreign, new_job("j", queue="new")]}})
    message = orjson.loads(response.body)["message"]
    assert response.status == 400
    assert message.startswith("spec.objects[0]: spec.clusterQueue: you may not ask about ClusterQueue b")
    answer = await tenant.suppose(LOCAL, known, new_job("j", queue="new"))
    assert verdicts(answer) == ["Accepted", "Admitted"]
    assert verdicts(await Served().suppose(LOCAL, foreign, new_job("j", "9", queue="new"))) == [
        "Accepted",
        "Never",
    ]


async def test_cluster_scoped_runtime_of_a_job_is_no_change_of_the_cluster() -> None:
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch"},
        "spec": {},
    }
    assert verdicts(await Served().suppose(LOCAL, new_job("j"), runtime)) == ["Waits", "Accepted"]


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (CHECK, [], "the body must be an object of kind Check"),
        (LOCAL, {"kind": "Check"}, "kind: must be LocalCheck"),
        (CHECK, {}, "spec: must be an object with objects"),
        (CHECK, {"spec": {}}, "spec: must have objects"),
        (CHECK, {"spec": {"deletions": []}}, "spec.deletions: unknown field: write objects"),
        (CHECK, {"spec": {"objects": [7]}}, "spec.objects[0]"),
        (CHECK, {"spec": {"objects": [{"apiVersion": "v1"}]}}, "spec.objects[0]: kind: is required"),
        (
            LOCAL,
            {"spec": {"objects": [new_job("new", namespace="theirs")]}},
            "only objects of namespace ours can change",
        ),
        (LOCAL, {"spec": {"objects": [larger_queue("b", 3)]}}, "only objects of namespace ours can change"),
    ],
)
async def test_invalid_request_is_rejected_with_the_field(path: str, body: Any, message: str) -> None:
    response = await Served().post(path, body)
    status = orjson.loads(response.body)
    assert (response.status, status["reason"]) == (400, "BadRequest"), status
    assert message in status["message"]


async def test_user_of_a_namespace_may_not_ask_about_the_cluster() -> None:
    assert (await Served(everywhere=False).post(CHECK, b"{")).status == 403


async def test_question_is_rejected_until_manifests_can_be_read() -> None:
    response = await Served(is_loaded=False).post(CHECK, {"spec": {"objects": [new_job("new")]}})
    assert (response.status, response.headers["Retry-After"]) == (503, "1")


@pytest.mark.parametrize("group", [DEFAULT_GROUP, COMPAT_GROUP])
def test_documents_describe_bodies_and_answers(group: str) -> None:
    names = names_for(group)
    cluster = HypotheticalCluster(names, STORED, RunTimeRecords())
    documents = create_documents(
        names, list_submission_checks(BackgroundQuestions(AdmissionState()), cluster)
    )
    for document in documents.values():
        check_references(document, document)
    root = f"/apis/{names.visibility_group}/v1beta2"
    assert documents["/openapi/v2"]["paths"][f"{root}/check"]["post"]
    assert documents[f"/openapi/v3{root}"]["paths"][f"{root}/namespaces/{{namespace}}/localcheck"]["post"]
    assert [(each["name"], each["namespaced"], each["kind"]) for each in documents[root]["resources"]] == [
        ("check", False, "Check"),
        ("localcheck", True, "LocalCheck"),
    ]
