"""The CRDs on the real API server: validation, defaults, pruning and printed columns.

cases/crds.yaml has a valid and an invalid object for each rule.
"""

import asyncio
import copy
import json
import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import CRDS, Resource
from admitq_api.crds import KINDS, create_crds
from admitq_api.labels import GROUPS, names_for
from localcluster import LocalCluster
from localcluster.waiting import eventually

NAMESPACE = "default"
TABLE: dict[str, dict[str, Any]] = yaml.load(
    Path(__file__).with_name("cases").joinpath("crds.yaml").read_text(encoding="utf-8"),
    Loader=yaml.CSafeLoader,
)


def cases(section: str) -> list[Any]:
    return [
        pytest.param(kind, row, id=_id(f"{kind}-{row.get('at', row['field'])}-{row['says']}"))
        for kind, rows in TABLE.items()
        for row in rows.get(section, ())
    ]


def _id(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name)[:90]


def expanded(value: Any, group: str) -> Any:
    """A value of the table with its shorthands expanded."""
    match value:
        case {"$text": length}:
            return "x" * length
        case {"$map": length}:
            return {f"k{number}": "v" for number in range(length)}
        case {"$times": [times, item]}:
            return [expanded(_numbered(item, number), group) for number in range(times)]
        case dict():
            return {key: expanded(inner, group) for key, inner in cast("dict[str, Any]", value).items()}
        case list():
            return [expanded(inner, group) for inner in cast("list[Any]", value)]
        case str():
            return value.replace("${group}", group)
        case _:
            return value


def _numbered(item: Any, number: int) -> Any:
    return json.loads(json.dumps(item).replace("{i}", str(number)))


def with_field(obj: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of an object with the field at a path set, or removed where the value is None."""
    result = copy.deepcopy(obj)
    steps = [int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", path)]
    at: Any = result
    for step, following in pairwise(steps):
        if isinstance(at, dict) and step not in at:
            at[step] = [] if isinstance(following, int) else {}
        at = at[step]
    last = steps[-1]
    if value is None:
        at.pop(last, None)
    elif isinstance(at, list) and last == len(at):
        at.append(value)
    else:
        at[last] = value
    return result


class ObjectsOfKind:
    """Objects of one kind on one API server."""

    def __init__(self, client: Client, group: str, kind: str) -> None:
        self.client = client
        self.group = group
        declared = next(one for one in KINDS if one.__name__ == kind)
        names = names_for(group)
        self.resource = Resource(group, names.version, declared.plural, kind, declared.namespaced)
        self.namespace = NAMESPACE if declared.namespaced else None

    def object(self, changes: dict[str, Any]) -> dict[str, Any]:
        """The kind's base object with some fields set."""
        metadata = {"name": f"t-{secrets.token_hex(4)}"} | (
            {"namespace": self.namespace} if self.namespace else {}
        )
        obj: dict[str, Any] = {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": metadata,
            **expanded(TABLE[self.resource.kind]["base"], self.group),
        }
        for path, value in changes.items():
            obj = with_field(obj, path, expanded(value, self.group))
        return obj

    async def created(self, obj: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        return await self.client.create(self.resource, obj, self.namespace, dry_run=dry_run)

    @asynccontextmanager
    async def existing(self, given: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Store an object with its status within a block."""
        wanted = self.object(given)
        stored = await self.created(wanted)
        name = stored["metadata"]["name"]
        try:
            if "status" in wanted:
                stored = await self.client.replace(
                    self.resource, stored | {"status": wanted["status"]}, "status"
                )
            yield stored
        finally:
            await self.client.delete(self.resource, name, self.namespace)


def names_the_field(error: ApiError, row: dict[str, Any], group: str) -> bool:
    at = row.get("at", row["field"])
    says = expanded(row["says"], group)
    causes = error.body.get("details", {}).get("causes", [])
    # A number that is too large is reported for the whole object; the message names the field.
    return any(
        at in f"{cause.get('field')} {cause['message']}" and says in cause["message"] for cause in causes
    )


async def assert_rejected(call: Any, row: dict[str, Any], group: str) -> None:
    with pytest.raises(ApiError) as caught:
        await call
    assert caught.value.is_invalid
    assert names_the_field(caught.value, row, group), str(caught.value)


@pytest.mark.parametrize(("kind", "row"), cases("values"))
async def test_field_rule_accepts_valid_and_rejects_invalid_value(
    kind: str, row: dict[str, Any], client: Client, installed: str
) -> None:
    objects = ObjectsOfKind(client, installed, kind)
    await objects.created(objects.object({row["field"]: row["take"]}), dry_run=True)
    refused = objects.created(objects.object({row["field"]: row["refuse"]}), dry_run=True)
    await assert_rejected(refused, row, installed)


@pytest.mark.parametrize(("kind", "row"), cases("updates"))
async def test_update_rule_accepts_valid_and_rejects_invalid_change(
    kind: str, row: dict[str, Any], client: Client, installed: str
) -> None:
    objects = ObjectsOfKind(client, installed, kind)
    async with objects.existing(row.get("given", {})) as stored:
        taken = with_field(stored, row["field"], expanded(row["take"], installed))
        await client.replace(objects.resource, taken, dry_run=True)
        refused = with_field(stored, row["field"], expanded(row["refuse"], installed))
        await assert_rejected(client.replace(objects.resource, refused, dry_run=True), row, installed)


@pytest.mark.parametrize(("kind", "row"), cases("statuses"))
async def test_status_rule_accepts_valid_and_rejects_invalid_change(
    kind: str, row: dict[str, Any], client: Client, installed: str
) -> None:
    objects = ObjectsOfKind(client, installed, kind)
    async with objects.existing(row.get("given", {})) as stored:
        taken = with_field(stored, row["field"], expanded(row["take"], installed))
        await client.replace(objects.resource, taken, "status", dry_run=True)
        refused = with_field(stored, row["field"], expanded(row["refuse"], installed))
        await assert_rejected(
            client.replace(objects.resource, refused, "status", dry_run=True), row, installed
        )


def test_every_cel_rule_has_a_case() -> None:
    sections = ("values", "updates", "statuses")
    rows = [row for kind in TABLE.values() for section in sections for row in kind.get(section, ())]
    # A short text could be part of another message.
    texts = [row["says"] for row in rows if len(row["says"]) > 15]
    messages = {rule["message"] for definition in create_crds() for rule in _cel_rules(definition)}
    assert [message for message in messages if not any(text in message for text in texts)] == []


def _cel_rules(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield from cast("dict[str, Any]", schema).get("x-kubernetes-validations", ())
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _cel_rules(inner)


PORT: dict[str, Any] = {"containerPort": 80}

DEFAULTS = [
    (
        "ClusterQueue",
        "spec",
        {},
        {
            "queueingStrategy": "BestEffortFIFO",
            "stopPolicy": "None",
            "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
            "preemption": {
                "reclaimWithinCohort": "Never",
                "withinClusterQueue": "Never",
                "borrowWithinCohort": {"policy": "Never"},
            },
        },
    ),
    ("ClusterQueue", "spec.fairSharing", {}, {"weight": 1}),
    ("LocalQueue", "spec", {"clusterQueue": "a"}, {"clusterQueue": "a", "stopPolicy": "None"}),
    ("MultiKueueConfig", "spec", {"clusters": ["a"]}, {"clusters": ["a"], "quotaManagement": "Manual"}),
    (
        "MultiKueueCluster",
        "spec.clusterSource.kubeConfig",
        {"location": "a"},
        {"location": "a", "locationType": "Secret"},
    ),
    (
        "ProvisioningRequestConfig",
        "spec",
        {"provisioningClassName": "a"},
        {
            "provisioningClassName": "a",
            "retryStrategy": {"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800},
        },
    ),
    (
        "Workload",
        "spec",
        {
            "podSets": [
                {"template": {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80}]}]}}}
            ]
        },
        {
            "active": True,
            "podSets": [
                {
                    "name": "main",
                    "count": 1,
                    "template": {
                        "spec": {"containers": [{"name": "a", "ports": [PORT | {"protocol": "TCP"}]}]}
                    },
                }
            ],
        },
    ),
]


@pytest.mark.parametrize(("kind", "field", "given", "stored"), DEFAULTS)
async def test_missing_fields_get_their_defaults(
    kind: str, field: str, given: dict[str, Any], stored: dict[str, Any], client: Client, installed: str
) -> None:
    objects = ObjectsOfKind(client, installed, kind)
    found: Any = await objects.created(objects.object({field: given}), dry_run=True)
    for step in field.split("."):
        found = found[step]
    assert found == stored


ODD_TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec": {
        "newOfPod": {"deep": [{"er": 1}]},
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "work",
                "newOfContainer": [1, 2],
                "resources": {"requests": {"cpu": "0.50", "memory": 1073741824}, "newOfResources": "x"},
                "env": [{"name": "A", "value": "b", "newOfEnv": True}],
                "securityContext": {"newOfContext": None, "runAsUser": 1},
            }
        ],
        "volumes": [{"name": "v", "newKindOfVolume": {"a": "b"}}],
    },
}


async def test_unknown_fields_of_pod_templates_are_preserved(client: Client, installed: str) -> None:
    objects = ObjectsOfKind(client, installed, "Workload")
    async with objects.existing({"spec.podSets[0].template": ODD_TEMPLATE}) as stored:
        assert stored["spec"]["podSets"][0]["template"] == ODD_TEMPLATE
        name = stored["metadata"]["name"]
        await client.replace(objects.resource, with_field(stored, "spec.priority", 5))
        await client.merge_patch(objects.resource, name, {"spec": {"active": False}}, NAMESPACE)
        applied = {
            "apiVersion": objects.resource.api_version,
            "kind": "Workload",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "status": {"requeueState": {"count": 1}},
        }
        await client.apply(objects.resource, applied, field_manager="test", subresource="status")
        found = await client.get(objects.resource, name, NAMESPACE)
        assert found["spec"]["podSets"][0]["template"] == ODD_TEMPLATE
        assert found["status"] == {"requeueState": {"count": 1}}


async def test_pod_template_metadata_keeps_only_labels_and_annotations(
    client: Client, installed: str
) -> None:
    objects = ObjectsOfKind(client, installed, "Workload")
    metadata = {
        "name": "x",
        "namespace": "y",
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "finalizers": ["e/f"],
    }
    stored = await objects.created(
        objects.object({"spec.podSets[0].template.metadata": metadata}), dry_run=True
    )
    assert stored["spec"]["podSets"][0]["template"]["metadata"] == {
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
    }


def owned_template(obj: dict[str, Any], manager: str) -> Any:
    """What a field manager owns of the template of the pod set `main`; None if nothing."""
    for entry in obj["metadata"]["managedFields"]:
        if entry["manager"] == manager and "subresource" not in entry:
            pod_sets = entry["fieldsV1"]["f:spec"]["f:podSets"]
            return pod_sets['k:{"name":"main"}'].get("f:template")
    return None


async def test_field_manager_owns_pod_template_as_a_whole(client: Client, installed: str) -> None:
    objects = ObjectsOfKind(client, installed, "Workload")
    async with objects.existing({"spec.podSets[0].template": ODD_TEMPLATE}) as stored:
        name, creator = stored["metadata"]["name"], stored["metadata"]["managedFields"][0]["manager"]
        assert owned_template(stored, creator) == {}
        applied = {
            "apiVersion": objects.resource.api_version,
            "kind": "Workload",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"podSets": [{"name": "main", "template": ODD_TEMPLATE}]},
        }
        await client.apply(objects.resource, applied, field_manager="another", force=False)
        other = with_field(applied, "spec.podSets[0].template.spec.restartPolicy", "OnFailure")
        with pytest.raises(ApiError) as caught:
            await client.apply(objects.resource, other, field_manager="third", force=False)
        assert caught.value.is_conflict
        found = await client.get(objects.resource, name, NAMESPACE)
        assert found["spec"]["podSets"][0]["template"] == ODD_TEMPLATE


async def test_managed_fields_within_pod_template_of_earlier_schema_are_combined(
    client: Client, installed: str
) -> None:
    objects = ObjectsOfKind(client, installed, "Workload")
    async with objects.existing({"spec.podSets[0].template": ODD_TEMPLATE}) as stored:
        name = stored["metadata"]["name"]
        single_fields = {"f:spec": {"f:restartPolicy": {}}}
        pod_sets = {'k:{"name":"main"}': {".": {}, "f:name": {}, "f:template": single_fields}}
        entry = {
            "manager": "earlier",
            "operation": "Update",
            "apiVersion": objects.resource.api_version,
            "time": stored["metadata"]["creationTimestamp"],
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:podSets": pod_sets}},
        }
        written = await client.replace(
            objects.resource, with_field(stored, "metadata.managedFields", [entry])
        )
        status = {
            "apiVersion": objects.resource.api_version,
            "kind": "Workload",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "status": {"requeueState": {"count": 1}},
        }
        written = await client.apply(objects.resource, status, field_manager="test", subresource="status")
        assert owned_template(written, "earlier") == {}
        assert written["spec"]["podSets"][0]["template"] == ODD_TEMPLATE
        assert written["status"] == {"requeueState": {"count": 1}}


WITH_STATUS = [kind.__name__ for kind in KINDS if kind.has_status()]


@pytest.mark.parametrize("kind", WITH_STATUS)
async def test_unknown_fields_of_a_status_are_pruned(kind: str, client: Client, installed: str) -> None:
    objects = ObjectsOfKind(client, installed, kind)
    condition = expanded(TABLE["AdmissionCheck"]["statuses"][1]["take"], installed)[0]
    known = {"conditions": [condition]} if kind != "Cohort" else {"fairSharing": {"weightedShare": 1}}
    async with objects.existing({}) as stored:
        odd = {**known, "notInTheSchema": {"a": 1}}
        if kind != "Cohort":
            odd["conditions"] = [{**condition, "notInTheSchema": "x"}]
        await client.merge_patch(
            objects.resource, stored["metadata"]["name"], {"status": odd}, objects.namespace, "status"
        )
        found = await client.get(objects.resource, stored["metadata"]["name"], objects.namespace)
        assert found["status"] == known


@pytest.mark.parametrize("kind", WITH_STATUS)
async def test_spec_and_status_are_written_separately(kind: str, client: Client, installed: str) -> None:
    objects = ObjectsOfKind(client, installed, kind)
    share = {"fairSharing": {"weightedShare": 1}} if kind == "Cohort" else {"conditions": []}
    async with objects.existing({}) as stored:
        assert "status" not in await client.replace(
            objects.resource, stored | {"status": share}, dry_run=True
        )
        spec_changed = stored | {"spec": {}, "status": share}
        after = await client.replace(objects.resource, spec_changed, "status", dry_run=True)
        assert after["spec"] == stored["spec"]


async def test_workloads_are_selectable_by_the_cluster_queue_of_their_admission(
    client: Client, installed: str, namespace: str
) -> None:
    objects = ObjectsOfKind(client, installed, "Workload")
    objects.namespace = namespace
    admission = {"clusterQueue": "all", "podSetAssignments": [{"name": "main"}]}
    async with objects.existing({"status.admission": admission}) as admitted, objects.existing({}):
        found, _ = await client.list(
            objects.resource, namespace, field_selector="status.admission.clusterQueue=all"
        )
        assert [one["metadata"]["name"] for one in found] == [admitted["metadata"]["name"]]


async def printed(cluster: LocalCluster, *arguments: str) -> list[list[str]]:
    """The cells of each line that `kubectl get` prints, headings first."""
    process = await asyncio.create_subprocess_exec(
        str(cluster.program("kubectl")),
        f"--kubeconfig={cluster.kubeconfig}",
        "get",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    return [re.split(r"\s{2,}", line.strip()) for line in out.decode().splitlines()]


def condition(type: str, status: str, reason: str) -> dict[str, Any]:  # noqa: A002 the API's name
    return {
        "type": type,
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


# Fields of an object, the printed headings, and its cells. Columns of `--output=wide` are after the bar.
COLUMNS = [
    (
        "Workload",
        {
            "spec.queueName": "team",
            "spec.priority": 7,
            "status.admission": {"clusterQueue": "all", "podSetAssignments": [{"name": "main"}]},
            "status.conditions": [
                condition("QuotaReserved", "True", "QuotaReserved"),
                condition("Admitted", "True", "Admitted"),
                condition("Finished", "True", "Succeeded"),
            ],
        },
        "QUEUE, RESERVED IN, ADMITTED, FINISHED, AGE | PRIORITY, REASON",
        "team, all, True, True, * | 7, QuotaReserved",
    ),
    (
        "ClusterQueue",
        {"spec.cohortName": "all", "status": {"pendingWorkloads": 3, "admittedWorkloads": 2}},
        "COHORT, PENDING WORKLOADS | STRATEGY, ADMITTED WORKLOADS",
        "all, 3 | BestEffortFIFO, 2",
    ),
    (
        "LocalQueue",
        {"spec.clusterQueue": "all", "status": {"pendingWorkloads": 3, "admittedWorkloads": 2}},
        "CLUSTERQUEUE, PENDING WORKLOADS, ADMITTED WORKLOADS",
        "all, 3, 2",
    ),
    (
        "MultiKueueCluster",
        {"status.conditions": [condition("Active", "False", "BadKubeConfig")]},
        "CONNECTED, AGE",
        "False, *",
    ),
    ("WorkloadPriorityClass", {}, "VALUE", "100"),
    ("ResourceFlavor", {}, "AGE", "*"),
    ("Cohort", {}, "AGE", "*"),
    ("AdmissionCheck", {}, "AGE", "*"),
    ("Topology", {}, "AGE", "*"),
]


@pytest.mark.parametrize(("kind", "given", "headings", "cells"), COLUMNS, ids=[row[0] for row in COLUMNS])
async def test_kubectl_get_prints_the_expected_columns(
    kind: str,
    given: dict[str, Any],
    headings: str,
    cells: str,
    client: Client,
    installed: str,
    cluster: LocalCluster,
) -> None:
    objects = ObjectsOfKind(client, installed, kind)
    names = [part.split(", ") for part in headings.split(" | ")]
    values = [part.split(", ") for part in cells.split(" | ")]
    async with objects.existing(given) as stored:
        name = stored["metadata"]["name"]
        where = (str(objects.resource), name, *(("-n", NAMESPACE) if objects.namespace else ()))
        narrow = await printed(cluster, *where)
        assert narrow[0] == ["NAME", *names[0]]
        assert _blanked(narrow[1], values[0]) == [name, *values[0]]
        wide = dict(zip(*await printed(cluster, *where, "-o", "wide"), strict=True))
        for heading, value in zip(chain(*names), chain(*values), strict=True):
            assert value in ("*", wide[heading])


def _blanked(line: list[str], expected: list[str]) -> list[str]:
    """Return a line without the cells that depend on time."""
    return [line[0], *("*" if want == "*" else cell for cell, want in zip(line[1:], expected, strict=True))]


@pytest.mark.core
async def test_all_kinds_have_their_category_and_short_names(client: Client, installed: str) -> None:
    found = await client.request_json("GET", f"/apis/{installed}/{names_for(installed).version}")
    listed = {one["name"]: one for one in found["resources"] if "/" not in one["name"]}
    assert set(listed) == {kind.plural for kind in KINDS}
    assert {name: tuple(one.get("shortNames", ())) for name, one in listed.items()} == {
        "admissionchecks": ("ac",),
        "clusterqueues": ("cq",),
        "cohorts": ("co",),
        "localqueues": ("queue", "queues", "lq"),
        "multikueueclusters": ("mkc",),
        "multikueueconfigs": ("mkconf",),
        "provisioningrequestconfigs": ("prc",),
        "resourceflavors": ("flavor", "flavors", "rf"),
        "topologies": ("topo",),
        "workloadpriorityclasses": ("wpc",),
        "workloads": ("kwl", "kueueworkload", "kueueworkloads"),
    }
    category = names_for(installed).category
    assert all(one.get("categories", []) == ([category] if category else []) for one in listed.values())
    statuses = {one["name"].split("/")[0] for one in found["resources"] if one["name"].endswith("/status")}
    assert set(listed) - statuses == {
        "multikueueconfigs",
        "provisioningrequestconfigs",
        "resourceflavors",
        "topologies",
        "workloadpriorityclasses",
    }


async def test_crds_are_installed_by_create_and_upgraded_by_server_side_apply(
    private_cluster: Callable[..., LocalCluster], connect: Callable[[LocalCluster], Awaitable[Client]]
) -> None:
    client = await connect(private_cluster((), component_names=("etcd", "kube-apiserver")))
    definitions = [definition for group in GROUPS for definition in create_crds(group)]
    for definition in definitions:
        await client.create(CRDS, definition)
    for definition in definitions:
        await client.apply(CRDS, definition, field_manager="test")
    for definition in definitions:
        name = definition["metadata"]["name"]
        conditions = await eventually(partial(_established, client, name), what=f"{name} established")
        # Further conditions would report names that are taken, or a schema that is not structural.
        assert conditions == {"Established": "True", "NamesAccepted": "True"}


async def _established(client: Client, name: str) -> dict[str, str]:
    """The conditions of a CRD; empty while it is not established."""
    found = (await client.get(CRDS, name))["status"].get("conditions", [])
    conditions = {one["type"]: one["status"] for one in found}
    return conditions if conditions.get("Established") == "True" else {}
