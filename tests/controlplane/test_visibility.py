"""The visibility API, registered with the API server, with the rights that the chart gives it."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from admitq.app.front_proxy import CONFIG_MAP
from admitq.runtime.client import Client
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import API_SERVICES
from admitq_api.json_objects import value_at
from admitq_api.labels import COMPAT_GROUP
from localcluster import access
from localcluster.pki import Authority, Pair
from localcluster.pytest_plugin import fresh_namespace
from localcluster.waiting import eventually
from tests.controlplane.stage import Stage
from tests.controlplane.tenants import ROLE_BINDINGS
from tests.controlplane.test_installation import audited
from tests.controlplane.test_plugin_lists import table
from tests.controlplane.user_programs import kubectl
from tests.controlplane.visibility_api import (
    TABLE,
    Account,
    Answered,
    VisibilityApi,
    bind_cluster_role,
    until_available,
)


@pytest.fixture
async def tenants(admin: Client, api: VisibilityApi) -> AsyncGenerator[tuple[Stage, Stage]]:
    """Two namespaces. Both have a LocalQueue ``lq`` of one ClusterQueue without quota."""
    async with AsyncExitStack() as stack:
        names = [await stack.enter_async_context(fresh_namespace(admin)) for _ in range(2)]
        first, second = (Stage(admin, api.names, name) for name in names)
        await first.queues(cpu=0)
        spec = {"clusterQueue": first.own("cq")}
        await second.create(second.kinds.local_queues, "lq", {"spec": spec})
        yield first, second


async def until_listed(api: VisibilityApi, path: str, names: list[str], **options: Any) -> Answered:
    """Wait until a list has these workloads, in this order."""

    async def has_names() -> Answered:
        answer = await api.get(path, **options)
        assert answer.status == 200, answer
        assert answer.names == names
        return answer

    return await eventually(has_names, what=f"{path} to list {names}")


async def submit_four_jobs(api: VisibilityApi, first: Stage, second: Stage) -> list[str]:
    """Submit four Jobs with three priorities, and return them in queue order, as namespace/name."""
    for name, value in (("high", 2), ("low", 1)):
        await first.create(first.kinds.workload_priority_classes, first.own(name), {"value": value})
    classes = {name: {first.names.priority_class: first.own(name)} for name in ("high", "low")}
    await first.job("a")
    await second.job("b", labels=classes["low"])
    await first.job("c", labels=classes["high"])
    await second.job("d", labels=classes["high"])
    # Jobs with one priority are ordered by the second of their creation, then by uid.
    workloads = [await until_workload(first, "c"), await until_workload(second, "d")]
    workloads.sort(key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["uid"]))
    high = [
        f"{one['metadata']['namespace']}/{one['metadata']['ownerReferences'][0]['name']}" for one in workloads
    ]
    return [*high, f"{second.namespace}/b", f"{first.namespace}/a"]


async def until_workload(stage: Stage, job: str) -> dict[str, Any]:
    await stage.until_workload_exists(job)
    return await stage.workload(job)


async def bind(stage: Stage, role: str, user: str) -> None:
    """Bind a ClusterRole to a user in the namespace of a stage."""
    group = "rbac.authorization.k8s.io"
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": role}
    subject = {"apiGroup": group, "kind": "User", "name": user}
    await stage.create(ROLE_BINDINGS, f"{role}-{user}", {"roleRef": reference, "subjects": [subject]})


def proxy_pair(api: VisibilityApi) -> Pair:
    """The client certificate by which the API server identifies itself."""
    folder = api.installation.cluster.folder / "pki"
    return Pair(folder / "front-proxy.crt", folder / "front-proxy.key")


# --- lists ------------------------------------------------------------------------------------------------


async def test_workloads_have_positions_in_both_queues(
    api: VisibilityApi, tenants: tuple[Stage, Stage]
) -> None:
    first, second = tenants
    order = await submit_four_jobs(api, first, second)
    whole = await until_listed(api, api.of_cluster_queue(first.own("cq")), order)
    seen: dict[str, int] = {}
    for position, name in enumerate(order):
        queue = name.split("/")[0]
        assert whole.positions[position] == (position, seen.get(queue, 0))
        seen[queue] = seen.get(queue, 0) + 1
    assert whole.body["kind"] == "PendingWorkloadsSummary"
    assert whole.body["apiVersion"] == f"{api.names.visibility_group}/v1beta2"
    item = whole.body["items"][2]
    assert item["priority"] == 1
    assert item["localQueueName"] == "lq"
    assert item["metadata"].keys() == {"name", "namespace", "creationTimestamp", "ownerReferences"}

    # LocalQueues with equal names in two namespaces are two queues.
    for stage in tenants:
        mine = [name for name in order if name.startswith(f"{stage.namespace}/")]
        answer = await until_listed(api, api.of_local_queue(stage.namespace), mine)
        assert answer.positions == [(order.index(name), at) for at, name in enumerate(mine)]

    page = await until_listed(api, api.of_cluster_queue(first.own("cq")), order[1:3], limit=2, offset=1)
    assert [position for position, _ in page.positions] == [1, 2]
    raw = f"{api.of_cluster_queue(first.own('cq'))}?limit=1&offset=3"
    listed = json.loads(await asyncio.to_thread(api.kubectl, "get", "--raw", raw))
    assert Answered(200, listed).names == order[3:]


async def test_list_follows_changes(api: VisibilityApi, tenants: tuple[Stage, Stage]) -> None:
    stage, _ = tenants
    path = api.of_cluster_queue(stage.own("cq"))
    await stage.job("waits")
    await until_listed(api, path, [f"{stage.namespace}/waits"])
    groups = [
        {
            "coveredResources": ["cpu"],
            "flavors": [{"name": stage.own("f"), "resources": [{"name": "cpu", "nominalQuota": 4}]}],
        }
    ]
    await stage.change(stage.kinds.cluster_queues, stage.own("cq"), {"spec": {"resourceGroups": groups}})
    await until_listed(api, path, [])
    await stage.until_running("waits")


@pytest.mark.parametrize(
    ("query", "listed"),
    [
        ({"limit": "100001"}, 2),
        ({"limit": "9" * 30}, 2),
        ({"limit": "0"}, 0),
        ({"limit": "-5"}, 0),
        ({"offset": "1"}, 1),
        ({"offset": "9" * 30}, 0),
        ({"limit": "1", "offset": "1"}, 1),
    ],
    ids=str,
)
async def test_limit_and_offset_of_any_size_are_accepted(
    api: VisibilityApi, two_pending: str, query: dict[str, str], listed: int
) -> None:
    answer = await api.get(two_pending, **query)
    assert answer.status == 200
    assert len(answer.body["items"]) == listed


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"limit": "ten"}, "limit: 'ten': must be an integer"),
        ({"limit": ""}, "limit: '': must be an integer"),
        ({"limit": "1.5"}, "limit: '1.5': must be an integer"),
        ({"offset": "-1"}, "offset: -1: must not be negative"),
        ({"offset": "1e3"}, "offset: '1e3': must be an integer"),
        ({"limit": "9" * 5000}, f"limit: '{'9' * 100}': must be an integer"),
    ],
    ids=["word", "empty", "fraction", "negative offset", "exponent", "endless"],
)
async def test_limit_or_offset_that_is_no_number_is_rejected(
    api: VisibilityApi, two_pending: str, query: dict[str, str], message: str
) -> None:
    answer = await api.get(two_pending, **query)
    assert (answer.status, answer.body["kind"], answer.body["reason"]) == (400, "Status", "BadRequest")
    assert answer.body["message"] == message


@pytest.fixture(scope="module")
def pending_paths() -> dict[str, str]:
    """The path of the queue that tests of parameters share."""
    return {}


@pytest.fixture
async def two_pending(admin: Client, api: VisibilityApi, pending_paths: dict[str, str]) -> str:
    """The path of a LocalQueue with two pending workloads."""
    if "path" not in pending_paths:
        namespace = await fresh_namespace(admin).__aenter__()
        stage = Stage(admin, api.names, namespace)
        await stage.queues(cpu=0)
        for name in ("one", "two"):
            await stage.job(name)
        path = api.of_local_queue(namespace)

        async def has_both() -> bool:
            assert len((await api.get(path)).body["items"]) == 2
            return True

        await eventually(has_both, what="two pending workloads")
        pending_paths["path"] = path
    return pending_paths["path"]


async def test_unknown_objects_resources_and_methods_are_errors(
    api: VisibilityApi, tenants: tuple[Stage, Stage]
) -> None:
    group, (stage, _) = api.names.visibility_group, tenants
    missing = await api.get(api.of_cluster_queue("no-such-queue"))
    assert (missing.status, missing.body["kind"], missing.body["reason"]) == (404, "Status", "NotFound")
    assert missing.body["message"] == f'clusterqueues.{group} "no-such-queue" not found'
    assert (await api.get(api.of_local_queue(stage.namespace, "no-such-queue"))).status == 404
    assert (await api.get(f"{api.root}/clusterqueues/{stage.own('cq')}/nothing")).status == 404
    assert (await api.get(f"{api.root}/clusterqueues/{stage.own('cq')}")).status == 404
    posted = await api.get(api.of_cluster_queue(stage.own("cq")), method="POST")
    assert (posted.status, posted.body["reason"]) == (405, "MethodNotAllowed")
    yaml = await api.get(api.of_cluster_queue(stage.own("cq")), accept="application/yaml")
    assert (yaml.status, yaml.body["reason"]) == (406, "NotAcceptable")


# --- tables and documents ---------------------------------------------------------------------------------


async def test_list_is_a_table_for_clients_that_print(api: VisibilityApi, two_pending: str) -> None:
    table = (await api.get(two_pending, accept=TABLE)).body
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name",
        "Namespace",
        "LocalQueue",
        "Priority",
        "In ClusterQueue",
        "In LocalQueue",
        "Created",
    ]
    assert [row["cells"][2:6] for row in table["rows"]] == [["lq", 0, 0, 0], ["lq", 0, 1, 1]]
    assert {row["object"]["kind"] for row in table["rows"]} == {"PartialObjectMetadata"}
    bare = (await api.get(two_pending, accept=TABLE, includeObject="None")).body
    assert {row["object"] for row in bare["rows"]} == {None}
    assert (await api.get(two_pending, accept=TABLE, includeObject="All")).status == 400


async def test_kubectl_prints_the_table_of_a_cluster_queue(
    api: VisibilityApi, tenants: tuple[Stage, Stage]
) -> None:
    stage, _ = tenants
    await stage.job("waits")
    queue = stage.own("cq")
    await until_listed(api, api.of_cluster_queue(queue), [f"{stage.namespace}/waits"])
    resource = f"clusterqueues.{api.version}.{api.names.visibility_group}"
    printed = await asyncio.to_thread(api.kubectl, "get", resource, queue, "--subresource=pendingworkloads")
    header, line = printed.splitlines()
    assert header.split() == [
        *("NAME", "NAMESPACE", "LOCALQUEUE", "PRIORITY"),
        *("IN", "CLUSTERQUEUE", "IN", "LOCALQUEUE", "CREATED"),
    ]
    assert line.split()[1:6] == [stage.namespace, "lq", "0", "0", "0"]


async def test_plugin_of_kubectl_shows_positions_in_local_queues(
    api: VisibilityApi, tenants: tuple[Stage, Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    first, second = tenants
    order = await submit_four_jobs(api, first, second)
    await until_listed(api, api.of_cluster_queue(first.own("cq")), order)
    for stage in (first, second):
        arguments = ("admitq", "list", "workloads", "-n", stage.namespace)
        found = {
            row["JOB NAME"]: row["POSITION IN QUEUE"]
            for row in table(await kubectl(api.installation.cluster, *arguments))
        }
        own = [name.split("/")[1] for name in order if name.startswith(f"{stage.namespace}/")]
        assert found == {name: str(position) for position, name in enumerate(own)}


async def test_plugin_of_kubectl_checks_the_api(
    api: VisibilityApi, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    name = f"{api.version}.{api.names.visibility_group}"
    await admin.get(API_SERVICES, name)
    found = json.loads(await kubectl(api.installation.cluster, "admitq", "doctor", "-o", "json"))
    assert ("ok", "visibility API", name) in {(one["level"], one["check"], one["subject"]) for one in found}


async def test_discovery_and_openapi_have_the_subresources(admin: Client, api: VisibilityApi) -> None:
    group = api.names.visibility_group
    served = ["v1beta2", "v1beta1"] if api.names.group == COMPAT_GROUP else ["v1beta2"]

    async def are_discovered() -> bool:
        # The API server refreshes its discovery a little after the APIService is available.
        versions = (await asyncio.to_thread(api.kubectl, "api-versions")).splitlines()
        assert sorted(line for line in versions if line.startswith(group)) == sorted(
            f"{group}/{version}" for version in served
        )
        return True

    await eventually(are_discovered, what="the API server to discover the versions")
    resources = json.loads(await asyncio.to_thread(api.kubectl, "get", "--raw", api.root))
    assert {
        one["name"]: (one["namespaced"], one["kind"], one["verbs"]) for one in resources["resources"]
    } == {
        "check": (False, "Check", ["create"]),
        "clusterqueues": (False, "ClusterQueue", []),
        "clusterqueues/pendingworkloads": (False, "PendingWorkloadsSummary", ["get"]),
        "localcheck": (True, "LocalCheck", ["create"]),
        "localqueues": (True, "LocalQueue", []),
        "localqueues/pendingworkloads": (True, "PendingWorkloadsSummary", ["get"]),
        "localwhatif": (True, "LocalWhatIf", ["create"]),
        "whatif": (False, "WhatIf", ["create"]),
        "workloads": (True, "Workload", []),
        "workloads/eta": (True, "WorkloadEta", ["get"]),
        "workloads/explanation": (True, "WorkloadExplanation", ["get"]),
    }
    # kubectl finds the kinds of the CRDs first, although both groups have resources with these names.
    found = await asyncio.to_thread(api.kubectl, "get", "clusterqueues", "-o", "name")
    assert all(line.startswith(f"clusterqueue.{api.names.group}/") for line in found.splitlines())

    async def is_merged() -> bool:
        second = (await api.get("/openapi/v2")).body
        third = (await api.get("/openapi/v3")).body
        assert f"apis/{group}/v1beta2" in third["paths"]
        assert any(
            name.endswith("visibility.v1beta2.PendingWorkloadsSummary") for name in second["definitions"]
        )
        return True

    await eventually(is_merged, what="the API server to merge the OpenAPI documents")
    document = (await api.get(f"/openapi/v3/apis/{group}/v1beta2")).body
    assert f"{api.root}/clusterqueues/{{name}}/pendingworkloads" in document["paths"]


@pytest.mark.parametrize("version", ["v1beta1"])
async def test_older_version_is_served_under_the_group_that_has_one(
    admin: Client, api: VisibilityApi, two_pending: str, version: str
) -> None:
    older = await api.get(two_pending.replace("v1beta2", version))
    if api.names.group != COMPAT_GROUP:
        assert older.status == 404
        return
    assert older.body["apiVersion"] == f"{api.names.visibility_group}/{version}"
    assert len(older.body["items"]) == 2


# --- permissions ------------------------------------------------------------------------------------------


async def test_each_user_reads_only_what_its_role_allows(
    api: VisibilityApi, tenants: tuple[Stage, Stage]
) -> None:
    first, second = tenants
    prefix = api.installation.prefix
    tenant, viewer, chief = (f"{name}-{first.namespace}" for name in ("tenant", "viewer", "chief"))
    await bind(first, f"{prefix}-batch-user-role", tenant)
    await bind(first, "view", viewer)
    await bind_cluster_role(first.client, f"{prefix}-batch-admin-role", chief, chief)
    mine, others = api.of_local_queue(first.namespace), api.of_local_queue(second.namespace)
    whole = api.of_cluster_queue(first.own("cq"))
    missing = api.of_local_queue(second.namespace, "no-such-queue")

    async def statuses(user: str) -> list[int]:
        return [(await api.get(path, user=user)).status for path in (mine, others, whole, missing)]

    # Whether a queue of another tenant exists does not show.
    expected = {
        tenant: [200, 403, 403, 403],
        viewer: [200, 403, 403, 403],
        chief: [200, 200, 200, 404],
        "nobody": [403, 403, 403, 403],
    }
    for user, codes in expected.items():
        await first.until(lambda user=user: statuses(user), codes, what=f"the answers to {user}")


async def test_direct_caller_is_authorized_by_its_token(
    api: VisibilityApi, tenants: tuple[Stage, Stage]
) -> None:
    first, second = tenants
    account = await Account(first.client, first.namespace, "reader").create()
    await bind(first, f"{api.installation.prefix}-pending-workloads-lq-viewer-role", account.user)
    mine, others = api.of_local_queue(first.namespace), api.of_local_queue(second.namespace)
    bearer = {"Authorization": f"Bearer {account.token}"}

    async def status() -> int:
        return (await api.call_directly(mine, bearer)).status

    await first.until(status, 200, what="the token to be accepted")
    refused = await api.call_directly(others, bearer)
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
    assert (
        f'User "{account.user}" cannot get resource "localqueues/pendingworkloads"' in refused.body["message"]
    )
    for wrong in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic YTpi"}):
        answer = await api.call_directly(mine, wrong)
        assert (answer.status, answer.body["kind"], answer.body["reason"]) == (401, "Status", "Unauthorized")
    assert (await api.call_directly(api.root, bearer)).status == 200
    assert (await api.call_directly(api.root)).status == 401


async def test_headers_of_the_front_proxy_count_only_with_its_certificate(
    api: VisibilityApi, tenants: tuple[Stage, Stage]
) -> None:
    stage, _ = tenants
    path = api.of_cluster_queue(stage.own("cq"))
    forged = [("X-Remote-User", "admin"), ("X-Remote-Group", "a"), ("X-Remote-Group", "system:masters")]
    assert (await api.call_directly(path, forged)).status == 401
    account = await Account(stage.client, stage.namespace, "forger").create()
    bearer = ("Authorization", f"Bearer {account.token}")
    answer = await api.call_directly(path, [*forged, bearer])
    assert answer.status == 403
    assert account.user in answer.body["message"]
    # A certificate of the cluster's other authority is no front proxy: even the handshake fails.
    with pytest.raises(aiohttp.ClientError):
        await api.call_directly(path, forged, api.installation.cluster.admin)
    # The last group header counts, too.
    assert (await api.call_directly(path, forged, proxy_pair(api))).status == 200
    named = await api.call_directly(path, [("X-Remote-User", "someone")], proxy_pair(api))
    assert named.status == 403
    assert 'User "someone" cannot get resource' in named.body["message"]
    assert (await api.call_directly(path, (), proxy_pair(api))).status == 401


async def test_certificate_with_another_common_name_is_no_front_proxy(
    api: VisibilityApi, tenants: tuple[Stage, Stage]
) -> None:
    stage, _ = tenants
    authority = Authority.load(api.installation.cluster.folder / "pki", "front-proxy-ca")
    other = authority.client(f"other-{stage.namespace}", "another-program")
    headers = [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")]
    assert (await api.call_directly(api.of_cluster_queue(stage.own("cq")), headers, other)).status == 401


# --- the process ------------------------------------------------------------------------------------------


async def test_restarted_process_gives_the_same_answer(
    admin: Client, api: VisibilityApi, two_pending: str
) -> None:
    before = (await api.get(two_pending)).body
    certificate = value_at(
        await admin.get(API_SERVICES, f"v1beta2.{api.names.visibility_group}"), ("spec", "caBundle")
    )
    await asyncio.to_thread(api.installation.kill, "visibility")
    down = await api.get(two_pending)
    assert down.status == 503
    await asyncio.to_thread(api.installation.start, ("visibility",))
    await until_available(admin, api)

    async def is_equal() -> bool:
        assert (await api.get(two_pending)).body == before
        return True

    await eventually(is_equal, what="the answer of the restarted process")
    service = await admin.get(API_SERVICES, f"v1beta2.{api.names.visibility_group}")
    assert value_at(service, ("spec", "caBundle")) == certificate


async def test_process_needs_all_of_its_permissions_and_no_others(admin: Client, api: VisibilityApi) -> None:
    installation, flavors = api.installation, kinds_of(api.names).resource_flavors
    # Nodes and pods are read only if a flavor has a topology.
    flavor = {
        "apiVersion": flavors.api_version,
        "kind": flavors.kind,
        "metadata": {"name": "with-topology"},
        "spec": {"nodeLabels": {"example.com/kind": "none"}, "topologyName": "none"},
    }
    await admin.create(flavors, flavor)
    account = f"system:serviceaccount:{installation.namespace}:{installation.prefix}-visibility"
    assert (await api.call_directly(api.root, {"Authorization": "Bearer wrong"})).status == 401
    assert (await api.get(api.of_cluster_queue("no-such-queue"))).status == 404
    # Watches are in the audit log once they have ended.
    await asyncio.to_thread(installation.stop, ("visibility",))
    await asyncio.to_thread(installation.start, ("visibility",))
    await until_available(admin, api)
    await admin.delete(flavors, "with-topology")
    await asyncio.to_thread(installation.stop, ("visibility",))
    await asyncio.to_thread(installation.start, ("visibility",))
    with installation.cluster.api() as connection:
        granted = access.granted_permissions(
            connection, f"{installation.prefix}-visibility", installation.namespace
        )

    async def are_all_used() -> bool:
        calls = [
            call
            for call in access.calls(installation.cluster.audit_log.read_text().splitlines())
            if call.user == account
        ]
        assert access.refused(calls) == []
        # A list is needed only after a watch that the API server could not continue.
        assert [line for line in access.unused(granted, calls) if not line.startswith("list ")] == []
        read = {
            (call.permission.verb, call.target) for call in calls if call.permission.resource == "configmaps"
        }
        assert read == {("get", f"kube-system/{CONFIG_MAP}")}
        return True

    await eventually(are_all_used, what="the audit log to have all calls of the visibility API")
    writes = [
        event
        for event in audited(installation)
        if event["user"]["username"] == account and event["verb"] not in {"get", "list", "watch"}
    ]
    assert {event["objectRef"]["resource"] for event in writes} == {
        "apiservices",
        "secrets",
        "subjectaccessreviews",
        "tokenreviews",
    }
