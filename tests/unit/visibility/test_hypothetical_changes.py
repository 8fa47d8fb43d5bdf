"""Questions about hypothetical changes: what is read, what is answered, and what is rejected."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from admitq.asking.hypothesis_inputs import IndexedObjects
from admitq.asking.run_time_estimates import RunTimeRecords
from admitq.core.state import AdmissionState
from admitq.serving.access_reviews import AccessReviews
from admitq.serving.authorization import TokenAuthenticator
from admitq.serving.front_proxy import FrontProxyUsers
from admitq.serving.http import HttpRequest, HttpResponse
from admitq.visibility.background_questions import BackgroundQuestions
from admitq.visibility.documents import create_documents
from admitq.visibility.handler import VisibilityHandler
from admitq.visibility.hypothetical_changes import list_hypothetical_changes
from admitq.visibility.hypothetical_cluster import HypotheticalCluster
from admitq.visibility.submission_checks import list_submission_checks
from admitq_api.labels import COMPAT_GROUP, DEFAULT_GROUP, names_for
from tests.unit.asking.test_answers import FULL, NOW, job, observing_state
from tests.unit.visibility.test_questions import TenantReviews
from tests.unit.visibility.test_visibility import check_references

NAMES = names_for(DEFAULT_GROUP)
GROUP = NAMES.visibility_group
ROOT = f"/apis/{GROUP}/v1beta2"
WHAT_IF = f"{ROOT}/whatif"
LOCAL = f"{ROOT}/namespaces/ours/localwhatif"


def own(kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": NAMES.api_version, "kind": kind, "metadata": metadata, "spec": spec}


def stored_local_queue(namespace: str, name: str) -> dict[str, Any]:
    return own("LocalQueue", name, {"clusterQueue": name}, namespace)


def new_job(name: str, cpu: str = "1m", queue: str = "a", namespace: str = "ours") -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": {NAMES.queue_name: queue}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


def larger_queue(name: str, milli_cpu: int) -> dict[str, Any]:
    quotas = [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": f"{milli_cpu}m"}]}]
    groups = [{"coveredResources": ["cpu"], "flavors": quotas}]
    spec = {"cohortName": "all", "namespaceSelector": {}, "resourceGroups": groups}
    return own("ClusterQueue", name, spec)


STORED = IndexedObjects(
    [
        ("localqueues", stored_local_queue("ours", "a")),
        ("localqueues", stored_local_queue("theirs", "a")),
        ("namespaces", {"metadata": {"name": "ours"}}),
        ("namespaces", {"metadata": {"name": "theirs"}}),
        ("clusterqueues", larger_queue("a", 2)),
        ("clusterqueues", larger_queue("b", 2)),
        ("clusterqueues", larger_queue("other", 2)),
        ("resourceflavors", own("ResourceFlavor", "default", {})),
    ]
)


@dataclass
class Served:
    """A handler whose state has a full cohort, and a workload that waits."""

    everywhere: bool = True
    is_loaded: bool = True
    manages_jobs_without_queue: bool = False
    state: AdmissionState = field(default_factory=lambda: observing_state(*FULL, job("ours/waits")))

    def __post_init__(self) -> None:
        questions = BackgroundQuestions(self.state, deadline=60, clock=lambda: NOW)
        cluster = HypotheticalCluster(
            NAMES,
            STORED,
            RunTimeRecords(),
            manages_jobs_without_queue=self.manages_jobs_without_queue,
        )
        if self.is_loaded:
            cluster.load()
        api = TenantReviews(self.everywhere)
        self.handler = VisibilityHandler(
            names=NAMES,
            routes=(
                *list_hypothetical_changes(questions, cluster),
                *list_submission_checks(questions, cluster),
            ),
            front_proxy=FrontProxyUsers(),
            tokens=TokenAuthenticator(api),
            access=AccessReviews(api),
            checks={},
            is_synced=lambda: True,
        )

    async def post(self, path: str, body: Any, method: str = "POST") -> HttpResponse:
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        headers = {"authorization": "Bearer good"}
        return await self.handler.handle(HttpRequest(method, path, headers=headers, peer="p", body=raw))

    async def suppose(self, path: str, *objects: Any, deletions: Any = ()) -> Any:
        spec = {"objects": objects, **({"deletions": list(deletions)} if deletions else {})}
        response = await self.post(path, {"spec": spec})
        assert response.status == 201, response.body
        return orjson.loads(response.body)


async def test_answer_has_the_request_and_its_effects_and_changes_nothing() -> None:
    served = Served()
    before = served.state.to_dict()
    answer = await served.suppose(WHAT_IF, larger_queue("b", 3))
    assert (answer["kind"], answer["apiVersion"]) == ("WhatIf", f"{GROUP}/v1beta2")
    assert answer["spec"]["objects"] == [larger_queue("b", 3)]
    assert [each["workload"]["name"] for each in answer["status"]["admitted"]] == ["waits"]
    assert answer["status"]["text"][0] == "Admitted:"
    assert served.state.to_dict() == before


async def test_new_job_is_a_workload_with_position_and_start() -> None:
    answer = await Served().suppose(WHAT_IF, new_job("new"))
    (new,) = answer["status"]["newWorkloads"]
    assert new["namespace"] == "ours"
    assert {"workload": new, "before": None, "after": {"clusterQueueName": "a", "position": 1}} in answer[
        "status"
    ]["positions"]
    assert new in [each["workload"] for each in answer["status"]["starts"]]


async def test_local_question_hides_names_of_other_namespaces_without_permission_in_all() -> None:
    lost = new_job("new", queue="other")
    queue = own("LocalQueue", "other", {"clusterQueue": "other"}, "ours")
    answer = await Served(everywhere=False).suppose(LOCAL, queue, lost)
    assert (answer["kind"], answer["metadata"]) == ("LocalWhatIf", {"namespace": "ours"})
    assert b"theirs" not in orjson.dumps(answer["status"])
    assert [each["workload"]["namespace"] for each in answer["status"]["admitted"]] == ["ours"]


async def test_objects_on_which_nothing_depends_are_listed() -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ours"}}
    answer = await Served().suppose(WHAT_IF, config)
    assert answer["status"]["ignored"] == ["ConfigMap ours/c: no decision depends on its kind"]
    assert answer["status"]["text"] == ["Nothing changes."]


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (WHAT_IF, b"{", "the body is not JSON"),
        (WHAT_IF, [], "the body must be an object of kind WhatIf"),
        (WHAT_IF, {"kind": "LocalWhatIf"}, "kind: must be WhatIf"),
        (LOCAL, {"apiVersion": "v1"}, f"apiVersion: must be {GROUP}/v1beta2"),
        (WHAT_IF, {}, "spec: must be an object with objects or deletions"),
        (WHAT_IF, {"spec": {"objects": {}}}, "spec.objects: must be a list of objects"),
        (WHAT_IF, {"spec": {}}, "spec: must have objects or deletions"),
        (WHAT_IF, {"spec": {"object": []}}, "spec.object: unknown field: write objects or deletions"),
        (WHAT_IF, {"spec": {"objects": [7]}}, "spec.objects[0]"),
        (
            WHAT_IF,
            {"spec": {"objects": [own("ClusterQueue", "q", {"queueingStrategy": "Best"})]}},
            "spec.queueingStrategy",
        ),
        (
            LOCAL,
            {"spec": {"objects": [new_job("new", namespace="theirs")]}},
            "only objects of namespace ours can change",
        ),
        (LOCAL, {"spec": {"objects": [larger_queue("b", 3)]}}, "only objects of namespace ours can change"),
        (
            WHAT_IF,
            {"spec": {"deletions": [{"apiVersion": NAMES.api_version, "kind": "Cohort", "name": "no"}]}},
            "spec.deletions[0]",
        ),
        (
            WHAT_IF,
            {"spec": {"objects": [own("ClusterQueue", f"q{at}", {"cohortName": 7}) for at in range(25)]}},
            "5 more problems",
        ),
    ],
)
async def test_invalid_request_is_rejected_with_the_field(path: str, body: Any, message: str) -> None:
    response = await Served().post(path, body)
    status = orjson.loads(response.body)
    assert (response.status, status["reason"]) == (400, "BadRequest")
    assert message in status["message"]


@pytest.mark.parametrize(
    ("path", "method", "code"),
    [
        (WHAT_IF, "GET", 405),
        (f"{WHAT_IF}/name", "POST", 404),
        (f"{ROOT}/localwhatif", "POST", 404),
        (f"{ROOT}/namespaces/ours/whatif", "POST", 404),
    ],
)
async def test_other_paths_and_methods_are_not_served(path: str, method: str, code: int) -> None:
    assert (await Served().post(path, {}, method)).status == code


async def test_unauthorized_caller_is_refused_before_the_body_is_read() -> None:
    assert (await Served(everywhere=False).post(WHAT_IF, b"{")).status == 403


async def test_question_is_rejected_until_manifests_can_be_read() -> None:
    response = await Served(is_loaded=False).post(WHAT_IF, {"spec": {"objects": [new_job("new")]}})
    assert (response.status, response.headers["Retry-After"]) == (503, "1")


@pytest.mark.parametrize("group", [DEFAULT_GROUP, COMPAT_GROUP])
def test_documents_describe_bodies_and_answers(group: str) -> None:
    names = names_for(group)
    cluster = HypotheticalCluster(names, STORED, RunTimeRecords())
    routes = list_hypothetical_changes(BackgroundQuestions(AdmissionState()), cluster)
    documents = create_documents(names, routes)
    for document in documents.values():
        check_references(document, document)
    root = f"/apis/{names.visibility_group}/v1beta2"
    second = documents["/openapi/v2"]["paths"][f"{root}/whatif"]["post"]
    third = documents[f"/openapi/v3{root}"]["paths"][f"{root}/namespaces/{{namespace}}/localwhatif"]["post"]
    assert [each["in"] for each in second["parameters"]] == ["body"]
    assert set(second["responses"]) == {"201", "401"}
    assert third["requestBody"]["required"] is True
    assert documents[root]["resources"] == [
        {
            "name": "localwhatif",
            "singularName": "localwhatif",
            "namespaced": True,
            "kind": "LocalWhatIf",
            "verbs": ["create"],
        },
        {
            "name": "whatif",
            "singularName": "whatif",
            "namespaced": False,
            "kind": "WhatIf",
            "verbs": ["create"],
        },
    ]


async def test_questions_at_the_same_time_are_independent() -> None:
    served = Served()
    answers = await asyncio.gather(
        served.suppose(WHAT_IF, larger_queue("b", 3)), served.suppose(WHAT_IF, new_job("new"))
    )
    assert [len(each["status"]["admitted"]) for each in answers] == [1, 0]
