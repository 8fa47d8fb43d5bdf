"""Requests of the visibility API: paths, permissions, representations, and errors."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from admitq.core.model import ObjectKey
from admitq.core.waiting.queue_positions import QueuedWorkload, Window
from admitq.serving.access_reviews import AccessReviews
from admitq.serving.authorization import ReviewFailed, TokenAuthenticator
from admitq.serving.front_proxy import FrontProxyUsers
from admitq.serving.http import HttpRequest, HttpResponse
from admitq.visibility import handler as handler_module
from admitq.visibility.answers import REASONS, RequestRejected
from admitq.visibility.documents import create_documents
from admitq.visibility.handler import VisibilityHandler
from admitq.visibility.negotiation import wants_table
from admitq.visibility.pending_workloads import MAX_LIMIT, list_pending_workloads, read_window
from admitq.visibility.queue_lists import KEPT_LISTS, QueueLists
from admitq.visibility.routes import ResourcePath, parse_path
from admitq_api.json_objects import JsonObject
from admitq_api.labels import COMPAT_GROUP, DEFAULT_GROUP, names_for

NAMES = names_for(DEFAULT_GROUP)
GROUP = NAMES.visibility_group
GOOD = "good"
ROOT = f"/apis/{GROUP}/v1beta2"
OF_CLUSTER_QUEUE = f"{ROOT}/clusterqueues/main/pendingworkloads"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@dataclass
class FakeReviewApi:
    """Accepts the token ``good``, and grants what ``allowed`` says."""

    allowed: bool = True
    is_down: bool = False
    reviewed: list[Mapping[str, Any]] = field(default_factory=list)

    async def create_token_review(self, review: Mapping[str, Any]) -> Mapping[str, Any]:
        is_good = review["spec"]["token"] == "good"
        return {"status": {"authenticated": is_good, "user": {"username": "anna", "groups": ["team"]}}}

    async def create_subject_access_review(self, review: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.is_down:
            raise ReviewFailed("down")
        self.reviewed.append(review["spec"])
        return {"status": {"allowed": self.allowed}}


class FakeQueues:
    """A ClusterQueue ``main`` and a LocalQueue ``team/lq`` with some workloads."""

    def __init__(self, count: int = 3) -> None:
        self.gone: set[str] = set()
        queue = ObjectKey("team", "lq")
        self._all = [QueuedWorkload(ObjectKey("team", f"w{at}"), queue, at, at) for at in range(count)]

    def list_cluster_queue(self, name: str) -> Sequence[QueuedWorkload] | None:
        return self._all if name == "main" else None

    def list_local_queue(self, key: ObjectKey) -> Sequence[QueuedWorkload] | None:
        return self._all if key == ObjectKey("team", "lq") else None

    def get_workload(self, key: ObjectKey) -> JsonObject | None:
        if key.name in self.gone:
            return None
        metadata = {"name": key.name, "namespace": key.namespace, "uid": "u", "labels": {"secret": "x"}}
        return {"metadata": metadata, "spec": {"priority": 5} if key.name == "w0" else {}}


@dataclass
class Served:
    """A handler with its fakes."""

    api: FakeReviewApi = field(default_factory=FakeReviewApi)
    queues: FakeQueues = field(default_factory=FakeQueues)
    is_synced: bool = True
    problem: str | None = None

    def __post_init__(self) -> None:
        async def check() -> str | None:
            return self.problem

        self.handler = VisibilityHandler(
            names=NAMES,
            routes=list_pending_workloads(self.queues, GROUP),
            front_proxy=FrontProxyUsers(),
            tokens=TokenAuthenticator(self.api),
            access=AccessReviews(self.api),
            checks={"caches": check},
            is_synced=lambda: self.is_synced,
        )

    async def get(
        self, path: str, *, token: str = GOOD, accept: str = "", method: str = "GET", **query: str
    ) -> HttpResponse:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        lines = [("Accept", accept)] if accept else []
        request = HttpRequest(
            method, path, query=query, headers=headers, header_lines=lines, peer="192.0.2.1"
        )
        return await self.handler.handle(request)


def read(response: HttpResponse) -> Any:
    return orjson.loads(response.body)


# --- answers ----------------------------------------------------------------------------------------------


async def test_list_has_positions_priority_and_only_some_metadata() -> None:
    summary = read(await Served().get(OF_CLUSTER_QUEUE))
    assert (summary["kind"], summary["apiVersion"]) == ("PendingWorkloadsSummary", f"{GROUP}/v1beta2")
    assert summary["items"][0] == {
        "metadata": {"name": "w0", "namespace": "team"},
        "priority": 5,
        "localQueueName": "lq",
        "positionInClusterQueue": 0,
        "positionInLocalQueue": 0,
    }
    assert [item["priority"] for item in summary["items"]] == [5, 0, 0]


async def test_workload_that_was_deleted_meanwhile_is_left_out() -> None:
    served = Served()
    served.queues.gone = {"w1"}
    listed = read(await served.get(OF_CLUSTER_QUEUE))["items"]
    assert [item["positionInClusterQueue"] for item in listed] == [0, 2]


async def test_long_list_lets_other_tasks_run() -> None:
    served, turns = Served(queues=FakeQueues(1000)), 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    assert len(read(await served.get(OF_CLUSTER_QUEUE))["items"]) == 1000
    counting.cancel()
    assert turns >= 4


async def test_answers_that_are_not_sent_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_module, "UNSENT_BYTES", 100)
    served = Served()
    first = await served.get(OF_CLUSTER_QUEUE)
    refused = await served.get(OF_CLUSTER_QUEUE)
    assert (first.status, refused.status, refused.headers) == (200, 429, {"Retry-After": "1"})
    assert first.on_sent is not None
    first.on_sent()
    assert (await served.get(OF_CLUSTER_QUEUE)).status == 200


@pytest.mark.parametrize(
    ("query", "window"),
    [
        ({}, Window(1000, 0)),
        ({"limit": "-1"}, Window(0, 0)),
        ({"limit": "+7", "offset": "3"}, Window(7, 3)),
        ({"limit": "1" + "0" * 99}, Window(MAX_LIMIT, 0)),
    ],
)
def test_limit_is_clamped(query: dict[str, str], window: Window) -> None:
    assert read_window(query) == window


@pytest.mark.parametrize("text", ["", " 1", "1 ", "0x1", "1_0", "\u0661", "nan", "1" * 101])
def test_limit_that_is_no_integer_is_rejected(text: str) -> None:
    with pytest.raises(RequestRejected, match=r"limit: .*: must be an integer"):
        read_window({"limit": text})


# --- permissions and errors -------------------------------------------------------------------------------


async def test_permission_names_verb_subresource_namespace_and_name() -> None:
    served = Served()
    await served.get(f"{ROOT}/namespaces/team/localqueues/lq/pendingworkloads")
    await served.get(ROOT)
    assert [
        review.get("resourceAttributes") or review["nonResourceAttributes"] for review in served.api.reviewed
    ] == [
        {
            "verb": "get",
            "group": GROUP,
            "resource": "localqueues",
            "subresource": "pendingworkloads",
            "namespace": "team",
            "name": "lq",
        },
        {"verb": "get", "path": ROOT},
    ]


@pytest.mark.parametrize(
    "path",
    [
        OF_CLUSTER_QUEUE,
        f"{ROOT}/clusterqueues/missing/pendingworkloads",
        f"{ROOT}/namespaces/team/localqueues/lq/pendingworkloads",
        f"{ROOT}/clusterqueues/main/nothing",
        f"{ROOT}/nothing",
        ROOT,
        "/apis",
        "/openapi/v2",
        "/nothing",
    ],
)
async def test_caller_without_permission_learns_nothing(path: str) -> None:
    served = Served(FakeReviewApi(allowed=False))
    refused = await served.get(path)
    assert (refused.status, read(refused)["reason"]) == (403, "Forbidden")
    assert (await served.get(path, token="")).status == 401
    assert (await served.get(path, token="wrong")).status == 401


@pytest.mark.parametrize(
    ("path", "options", "code"),
    [
        (f"{ROOT}/clusterqueues/missing/pendingworkloads", {}, 404),
        (f"{ROOT}/clusterqueues/main/nothing", {}, 404),
        (f"{ROOT}/clusterqueues/main", {}, 404),
        (f"{ROOT}/clusterqueues", {}, 404),
        (f"{ROOT}/namespaces/team/clusterqueues/main/pendingworkloads", {}, 404),
        (f"{ROOT}/localqueues/lq/pendingworkloads", {}, 404),
        (OF_CLUSTER_QUEUE.replace("v1beta2", "v1"), {}, 404),
        (OF_CLUSTER_QUEUE.replace("v1beta2", "v1beta1"), {}, 404),
        ("/nothing", {}, 404),
        (OF_CLUSTER_QUEUE, {"method": "POST"}, 405),
        (OF_CLUSTER_QUEUE, {"method": "DELETE"}, 405),
        (ROOT, {"method": "POST"}, 405),
        (OF_CLUSTER_QUEUE, {"accept": "application/yaml"}, 406),
        (OF_CLUSTER_QUEUE, {"limit": "many"}, 400),
        (OF_CLUSTER_QUEUE, {"accept": TABLE, "includeObject": "All"}, 400),
    ],
)
async def test_rejected_request_gets_status_object(path: str, options: dict[str, Any], code: int) -> None:
    refused = await Served().get(path, **options)
    status = read(refused)
    assert (refused.status, status["code"], status["kind"], status["reason"]) == (
        code,
        code,
        "Status",
        REASONS[code],
    )


async def test_question_is_rejected_until_queues_are_complete() -> None:
    refused = await Served(is_synced=False).get(OF_CLUSTER_QUEUE)
    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    assert (await Served(is_synced=False).get(ROOT)).status == 200


async def test_request_is_rejected_while_api_server_answers_no_reviews() -> None:
    assert (await Served(FakeReviewApi(is_down=True)).get(OF_CLUSTER_QUEUE)).status == 503


async def test_unknown_tokens_are_limited_in_rate() -> None:
    served = Served()
    codes = [(await served.get(ROOT, token=f"bad-{at}")).status for at in range(40)]
    assert set(codes) == {401, 429}


async def test_probes_need_no_permission() -> None:
    served = Served(FakeReviewApi(allowed=False))
    assert [(await served.get(path, token="")).status for path in ("/livez", "/healthz", "/readyz")] == [
        200
    ] * 3
    served.problem = "not read yet"
    unready = await served.get("/readyz", token="")
    assert (unready.status, unready.body) == (503, b"caches: not read yet\n")


# --- representations --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accept", "as_table"),
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("application/json, */*", False),
        (TABLE, True),
        (f"{TABLE},application/json", True),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", False),
        ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json", False),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", None),
        ("application/yaml", None),
        ("text/html, application/*;q=0.8", False),
    ],
)
def test_first_representation_that_exists_is_served(accept: str, as_table: bool | None) -> None:
    assert wants_table(accept) is as_table


@pytest.mark.parametrize(
    ("include", "included"),
    [
        ("", {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}),
        ("Object", {"localQueueName": "lq"}),
    ],
)
async def test_rows_of_table_have_cells_and_the_object(include: str, included: dict[str, str]) -> None:
    table = read(await Served().get(OF_CLUSTER_QUEUE, accept=TABLE, includeObject=include))
    assert table["kind"] == "Table"
    assert table["rows"][0]["cells"] == ["w0", "team", "lq", 5, 0, 0, None]
    assert table["rows"][0]["object"].items() >= included.items()


# --- paths and documents ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/v1/clusterqueues/a/pendingworkloads", ("v1", "", "clusterqueues", "a", "pendingworkloads")),
        ("/v1/namespaces/n/localqueues/a/eta", ("v1", "n", "localqueues", "a", "eta")),
        ("/v1/clusterqueues/a", ("v1", "", "clusterqueues", "a", "")),
        ("/v1/clusterqueues", ("v1", "", "clusterqueues", "", "")),
        ("/v1/namespaces/n/localqueues", ("v1", "n", "localqueues", "", "")),
        ("/v1", None),
        ("/v1/", None),
        ("", None),
        ("/v1/namespaces", None),
        ("/v1/namespaces/n", None),
        ("/v1/namespaces//localqueues/a/eta", None),
        ("/v1/clusterqueues//eta", None),
        ("/v1/clusterqueues/a/eta/more", None),
        ("//clusterqueues/a/eta", None),
    ],
)
def test_path_of_resource_is_parsed(path: str, parts: tuple[str, ...] | None) -> None:
    assert parse_path(f"/apis/{GROUP}{path}", GROUP) == (None if parts is None else ResourcePath(*parts))


@pytest.mark.parametrize("path", ["", "/", "/apis", "/apis/other/v1/clusterqueues/a/eta", "/readyz"])
def test_other_path_is_no_resource(path: str) -> None:
    assert parse_path(path, GROUP) is None


@pytest.mark.parametrize(
    ("group", "versions"), [(DEFAULT_GROUP, ["v1beta2"]), (COMPAT_GROUP, ["v1beta2", "v1beta1"])]
)
def test_documents_describe_each_version(group: str, versions: list[str]) -> None:
    names = names_for(group)
    own = names.visibility_group
    documents = create_documents(names, list_pending_workloads(FakeQueues(), own))
    assert [one["version"] for one in documents[f"/apis/{own}"]["versions"]] == versions
    assert list(documents["/openapi/v3"]["paths"]) == [f"apis/{own}/{version}" for version in versions]
    for version in versions:
        third = documents[f"/openapi/v3/apis/{own}/{version}"]
        assert set(third["paths"]) == {
            f"/apis/{own}/{version}/clusterqueues/{{name}}/pendingworkloads",
            f"/apis/{own}/{version}/namespaces/{{namespace}}/localqueues/{{name}}/pendingworkloads",
        }
    for document in documents.values():
        check_references(document, document)
    operations = [operation["get"]["operationId"] for operation in documents["/openapi/v2"]["paths"].values()]
    assert len(set(operations)) == len(operations) == 2 * len(versions)


def check_references(value: Any, document: Any) -> None:
    """Check that each reference names a type of the document."""
    if isinstance(value, list):
        for inner in value:
            check_references(inner, document)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if key != "$ref":
                check_references(inner, document)
                continue
            found = document
            for step in inner.removeprefix("#/").split("/"):
                found = found[step]


# --- kept lists -------------------------------------------------------------------------------------------


@dataclass
class FakeQueries:
    """Counts calls, and lets the clock advance during each."""

    seconds: float = 0.0
    now: float = 0.0
    calls: int = 0
    version: int = 0

    def list_cluster_queue(self, name: str, window: Window) -> Sequence[QueuedWorkload] | None:
        return self._answer(name)

    def list_local_queue(self, key: ObjectKey, window: Window) -> Sequence[QueuedWorkload] | None:
        return self._answer(key.name)

    def _answer(self, name: str) -> Sequence[QueuedWorkload] | None:
        self.calls += 1
        self.now += self.seconds
        return None if name == "missing" else []

    def lists(self) -> QueueLists:
        return QueueLists(self, lambda: self.version, lambda _: None, lambda: self.now)  # type: ignore[arg-type]


def test_list_is_sorted_once_while_nothing_changes() -> None:
    queries = FakeQueries()
    lists = queries.lists()
    for _ in range(3):
        lists.list_cluster_queue("main")
        lists.list_local_queue(ObjectKey("team", "main"))
    assert queries.calls == 2
    queries.version += 1
    lists.list_cluster_queue("main")
    assert queries.calls == 3


def test_sorting_takes_at_most_a_fifth_of_the_time() -> None:
    queries = FakeQueries(seconds=0.1)
    lists = queries.lists()
    lists.list_cluster_queue("main")
    queries.version += 1
    queries.now += 0.39
    lists.list_cluster_queue("main")
    assert queries.calls == 1
    queries.now += 0.02
    lists.list_cluster_queue("main")
    assert queries.calls == 2


def test_kept_lists_are_bounded_and_missing_queues_are_not_kept() -> None:
    queries = FakeQueries()
    lists = queries.lists()
    for at in range(KEPT_LISTS + 1):
        lists.list_cluster_queue(str(at))
    lists.list_cluster_queue("0")
    assert queries.calls == KEPT_LISTS + 2
    assert lists.list_cluster_queue("missing") is None
    assert lists.list_cluster_queue("missing") is None
    assert queries.calls == KEPT_LISTS + 4
