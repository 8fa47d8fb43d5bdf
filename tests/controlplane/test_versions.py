"""v1beta1 beside v1beta2: the CRDs of the chart, converted by the webhooks of the chart."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import CRDS, Resource
from admitq_api.crds import KINDS
from admitq_api.labels import COMPAT_GROUP, names_for
from localcluster.cluster import LocalCluster
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.controlplane.user_programs import kubectl

NAMES: Final = names_for(COMPAT_GROUP)
NAMESPACE: Final = "default"
CASES: Final[list[dict[str, Any]]] = yaml.load(
    Path(__file__)
    .with_name("cases")
    .joinpath("versions.yaml")
    .read_text(encoding="utf-8")
    .replace("${group}", COMPAT_GROUP),
    Loader=yaml.CSafeLoader,
)


def resource(kind: str, version: str) -> Resource:
    (found,) = [one for one in KINDS if one.__name__ == kind]
    return Resource(COMPAT_GROUP, version, found.plural, kind, namespaced=found.namespaced)


def holds(found: Any, expected: Any) -> bool:
    """Whether an object has all expected fields; it may have more, such as defaults."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(
            key in found and holds(found[key], value) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(found) == len(expected)
            and all(holds(one, other) for one, other in zip(found, expected, strict=True))
        )
    return found == expected


class StoredObject:
    """One object that is read and written in both versions."""

    def __init__(self, client: Client, kind: str, name: str) -> None:
        self.client = client
        self.name = name
        self.older, self.newer = resource(kind, "v1beta1"), resource(kind, "v1beta2")
        self.namespace = NAMESPACE if self.newer.namespaced else None

    def object(self, version: Resource, content: dict[str, Any]) -> dict[str, Any]:
        metadata = {"name": self.name} | ({"namespace": self.namespace} if self.namespace else {})
        return {"apiVersion": version.api_version, "kind": version.kind, "metadata": metadata, **content}

    async def write(self, version: Resource, content: dict[str, Any]) -> dict[str, Any]:
        """Create the object with its status in one version."""
        written = await self.client.create(version, self.object(version, content))
        if "status" in content:
            return await self.patch(version, {"status": content["status"]}, "status")
        return written

    async def read(self, version: Resource) -> dict[str, Any]:
        return await self.client.get(version, self.name, self.namespace)

    async def patch(
        self, version: Resource, patch: dict[str, Any], subresource: str | None = None
    ) -> dict[str, Any]:
        return await self.client.merge_patch(version, self.name, patch, self.namespace, subresource)


@pytest.mark.slow
async def test_v1beta1_and_v1beta2_of_every_kind_are_served_and_converted(
    private_cluster: Callable[..., LocalCluster], connect: Callable[[LocalCluster], Awaitable[Client]]
) -> None:
    cluster = private_cluster((), component_names=("etcd", "kube-apiserver"))
    client = await connect(cluster)
    installation = Installation(cluster)
    installation.install(api_group=COMPAT_GROUP)
    await crds_are_served_before_the_webhook_starts(client, installation)
    for number, case in enumerate(CASES):
        await object_is_equal_in_both_versions(client, f"case-{number}", case)
    await older_manifest_is_applied_server_side(client)
    await older_manifest_that_was_read_is_applied_client_side(client, cluster)
    await status_is_applied_in_both_versions(client)
    await rejections_have_their_status_code(client)
    await validation_rules_of_the_older_version_apply(client)
    await watch_delivers_the_older_version(client)
    await object_that_cannot_be_converted_completely_is_listed(client)
    await conversion_works_after_an_upgrade(client, installation)
    await object_stored_in_the_older_version_is_read(client, installation)


async def crds_are_served_before_the_webhook_starts(client: Client, installation: Installation) -> None:
    first = StoredObject(client, "WorkloadPriorityClass", "first-of-all")
    written = first.object(first.newer, {"value": 1})
    await eventually(
        lambda: client.apply(first.newer, written, field_manager="early"),
        what="the stored version to be served without webhook",
    )
    with pytest.raises(ApiError, match="conversion webhook"):
        await first.read(first.older)
    installation.start(("webhook",))
    assert (await eventually(lambda: first.read(first.older)))["value"] == 1


async def object_is_equal_in_both_versions(client: Client, name: str, case: dict[str, Any]) -> None:
    one, description = StoredObject(client, case["kind"], name), case["it"]
    if "older" in case:
        await one.write(one.older, case["older"])
    else:
        await one.write(one.newer, case["newer"])
    found, read = await one.read(one.newer), await one.read(one.older)
    assert holds(found, case["newer"]), (description, found)
    assert holds(read, case.get("read", case.get("older"))), (description, read)
    # A write in the older version keeps fields that only the newer version has, and is visible in both.
    await one.patch(one.older, {"metadata": {"labels": {"older": "written"}}})
    await one.patch(one.newer, {"metadata": {"labels": {"newer": "written"}}})
    after = await one.read(one.newer)
    assert holds(after, case["newer"]), (description, after)
    assert set(after["metadata"]["labels"]) == {"older", "newer"}
    assert (await one.read(one.older))["metadata"]["labels"] == after["metadata"]["labels"]
    assert after["metadata"].get("generation") == found["metadata"].get("generation"), description
    assert NAMES.other_version not in after["metadata"].get("annotations", {}), description


POLICY: Final = {"migration": {"mode": "RetainFirstAdmission"}}


async def older_manifest_is_applied_server_side(client: Client) -> None:
    """Another program writes a field that only the newer version has; server-side apply keeps it."""
    queue = StoredObject(client, "ClusterQueue", "applied")
    manifest = {"cohort": "team", "flavorFungibility": {"whenCanBorrow": "Borrow"}}
    for names in (["one", "two"], ["one", "two"], ["one"], ["one", "three"]):
        found = await applied(queue, {**manifest, "admissionChecks": names})
        listed = [{"name": name} for name in names]
        assert found["spec"]["admissionChecksStrategy"] == {"admissionChecks": listed}
        await queue.patch(queue.newer, {"spec": {"concurrentAdmissionPolicy": POLICY}})
    # An apply without changes is not stored.
    first, found = [await applied(queue, {"cohort": "team"}) for _ in range(2)]
    assert found == first
    assert holds(found["spec"], {"cohortName": "team", "concurrentAdmissionPolicy": POLICY})
    assert NAMES.other_version not in found["metadata"].get("annotations", {})
    # Defaults are those of the stored version, and the mutating webhooks were called.
    assert found["spec"]["queueingStrategy"] == "BestEffortFIFO"
    assert (await queue.read(queue.older))["metadata"]["finalizers"] == [NAMES.finalizer]


async def applied(queue: StoredObject, spec: dict[str, Any]) -> dict[str, Any]:
    """Apply in the older version and read in the newer."""
    manifest = queue.object(queue.older, {"spec": spec})
    await queue.client.apply(queue.older, manifest, field_manager="team", force=False)
    return await queue.read(queue.newer)


async def older_manifest_that_was_read_is_applied_client_side(client: Client, cluster: LocalCluster) -> None:
    """`kubectl apply` accepts a file, and an object that was read with the annotation of the conversion."""
    queue = StoredObject(client, "ClusterQueue", "from-a-file")
    written = json.dumps(queue.object(queue.older, {"spec": {"cohort": "team"}}))
    await kubectl(cluster, "apply", "--filename=-", given=written)
    await queue.patch(queue.newer, {"spec": {"concurrentAdmissionPolicy": POLICY}})
    read = json.loads(
        await kubectl(cluster, "get", f"clusterqueues.v1beta1.{COMPAT_GROUP}", queue.name, "--output=json")
    )
    carried = {NAMES.other_version: read["metadata"]["annotations"][NAMES.other_version]}
    read["metadata"] = {"name": queue.name, "annotations": carried}
    await kubectl(cluster, "apply", "--filename=-", given=json.dumps(read))
    assert (await queue.read(queue.newer))["spec"]["concurrentAdmissionPolicy"] == POLICY
    # A file without the annotation removes the field that the annotation carried.
    await kubectl(cluster, "apply", "--filename=-", given=written.replace("team", "others"))
    found = await queue.read(queue.newer)
    assert found["spec"]["cohortName"] == "others"
    assert NAMES.other_version not in found["metadata"]["annotations"]
    assert "concurrentAdmissionPolicy" not in found["spec"]


async def status_is_applied_in_both_versions(client: Client) -> None:
    workload = StoredObject(client, "Workload", workload_cases()[1])
    at = "2026-01-01T00:00:00Z"
    check = {"name": "check", "state": "Pending", "lastTransitionTime": at, "message": ""}
    ready = {
        **check,
        "state": "Ready",
        "podSetUpdates": [{"name": "main", "nodeSelector": {"zone": "a"}}],
    }
    other = {"name": "other", "state": "Ready", "lastTransitionTime": at, "message": ""}
    writes = [
        ("of-the-older", workload.older, {"admissionChecks": [check]}),
        ("of-the-newer", workload.newer, {"admissionChecks": [other], "requeueState": {"count": 1}}),
        ("of-the-older", workload.older, {"admissionChecks": [ready]}),
        ("of-the-older", workload.older, {"admissionChecks": [ready]}),
        ("of-the-newer", workload.newer, {"admissionChecks": [other]}),
    ]
    versions: list[str] = []
    for manager, version, status in writes:
        written = await client.apply(
            version,
            workload.object(version, {"status": status}),
            field_manager=manager,
            force=False,
            subresource="status",
        )
        versions.append(written["metadata"]["resourceVersion"])
    assert versions[2] == versions[3]
    found = (await workload.read(workload.newer))["status"]
    assert found["admissionChecks"] == [ready, other]
    assert "requeueState" not in found
    assert holds(found, {"admission": {"clusterQueue": "team"}})


def workload_cases() -> list[str]:
    """The names of the two Workloads that were written in the older version."""
    return [
        f"case-{number}"
        for number, case in enumerate(CASES)
        if case["kind"] == "Workload" and "older" in case
    ]


async def rejections_have_their_status_code(client: Client) -> None:
    queue = StoredObject(client, "ClusterQueue", "refused")

    def quota(**limits: str) -> dict[str, Any]:
        resources = [{"name": "cpu", "nominalQuota": "1", **limits}]
        return {
            "resourceGroups": [
                {"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": resources}]}
            ]
        }

    rejected: list[tuple[dict[str, Any], str, str]] = [
        (quota(borrowingLimit="1"), "is_invalid", "borrowingLimit must be nil when cohort is empty"),
        ({"flavorFungibility": {"whenCanBorrow": "Preempt"}}, "is_invalid", "whenCanBorrow"),
        ({"admissionChecks": "one"}, "is_invalid", "admissionChecks"),
        # Webhooks of the stored version are called for the older version, too.
        ({"cohort": "team", **quota(lendingLimit="2")}, "is_forbidden", "lendingLimit"),
    ]
    for spec, kind, message in rejected:
        with pytest.raises(ApiError, match=message) as caught:
            await client.create(queue.older, queue.object(queue.older, {"spec": spec}))
        assert getattr(caught.value, kind), (spec, caught.value)


async def validation_rules_of_the_older_version_apply(client: Client) -> None:
    """A Workload with quota may change its WorkloadPriorityClass; a PriorityClass is immutable."""
    with_workload_class, with_pod_class = (
        StoredObject(client, "Workload", name) for name in workload_cases()
    )
    rejected: list[tuple[StoredObject, dict[str, Any], str]] = [
        (
            with_workload_class,
            {"priorityClassSource": "scheduling.k8s.io/priorityclass"},
            "priorityClassSource is immutable",
        ),
        (with_pod_class, {"priorityClassSource": ""}, "priorityClassSource is immutable"),
        (with_pod_class, {"priorityClassName": "third"}, "priorityClassName is immutable"),
        (with_workload_class, {"priorityClassName": None}, "priorityClassName is immutable"),
        (with_pod_class, {"priority": None}, "priority must be set when priorityClassName is set"),
        (with_workload_class, {"queueName": "other"}, "queueName is immutable"),
        (with_workload_class, {"priorityClassSource": "unheard-of"}, "Unsupported value"),
    ]
    for workload, spec, message in rejected:
        with pytest.raises(ApiError, match=message) as caught:
            await workload.patch(workload.older, {"spec": spec})
        assert caught.value.is_invalid, (spec, caught.value)
    await with_workload_class.patch(with_workload_class.older, {"spec": {"priorityClassName": "third"}})
    assert (await with_workload_class.read(with_workload_class.newer))["spec"]["priorityClassRef"][
        "name"
    ] == "third"
    for active in (False, True):
        assert (await with_pod_class.patch(with_pod_class.older, {"spec": {"active": active}}))["spec"][
            "active"
        ] is active


async def watch_delivers_the_older_version(client: Client) -> None:
    queue = StoredObject(client, "ClusterQueue", "applied")
    before = await queue.read(queue.older)
    version = before["metadata"]["resourceVersion"]
    await queue.patch(queue.newer, {"spec": {"cohortName": "others"}})
    watch = client.watch(queue.older, version, field_selector="metadata.name=applied")
    async for event in watch:
        assert event.type == "MODIFIED"
        assert event.object["apiVersion"] == queue.older.api_version
        assert event.object["spec"]["cohort"] == "others"
        break
    await watch.aclose()


async def object_that_cannot_be_converted_completely_is_listed(client: Client) -> None:
    """An object with the maximum size of annotations has no room for the annotation of the conversion."""
    workload = StoredObject(client, "Workload", "large")
    (case,) = [case for case in CASES if "nested topology slices" in case["it"]]
    written = workload.object(workload.newer, case["newer"])
    written["metadata"]["annotations"] = {"example.com/large": "x" * (256 * 1024 - len("example.com/large"))}
    await client.create(workload.newer, written)
    read, _ = await client.list(workload.older, NAMESPACE)
    assert "large" in [one["metadata"]["name"] for one in read]
    await client.delete(workload.newer, "large", NAMESPACE)


async def conversion_works_after_an_upgrade(client: Client, installation: Installation) -> None:
    name = NAMES.crd_name("clusterqueues")

    async def ca_bundle() -> str:
        definition = await client.get(CRDS, name)
        return definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]

    before = await ca_bundle()
    installation.install(api_group=COMPAT_GROUP, values={"commonLabels": {"upgraded": "yes"}})
    assert (await client.get(CRDS, name))["metadata"]["labels"]["upgraded"] == "yes"
    assert await ca_bundle() == before
    # The process would also write a removed CA bundle again.
    queue = StoredObject(client, "ClusterQueue", "applied")
    assert (await queue.read(queue.older))["spec"]["cohort"] == "others"


async def object_stored_in_the_older_version_is_read(client: Client, installation: Installation) -> None:
    """The webhooks read queues before they are ready: they must convert these objects themselves."""
    queue = StoredObject(client, "LocalQueue", "stored-long-ago")
    name = NAMES.crd_name("localqueues")
    definition = await client.get(CRDS, name)

    async def set_storage_version(version: str) -> None:
        steps = [
            {"op": "replace", "path": f"/spec/versions/{place}/storage", "value": one["name"] == version}
            for place, one in enumerate(definition["spec"]["versions"])
        ]
        await client.json_patch(CRDS, name, steps)

    await set_storage_version("v1beta1")
    installation.stop(("webhook",))
    # Without webhook, the write succeeds once the API server stores the older version.
    written = {"spec": {"clusterQueue": "applied"}}
    await eventually(lambda: queue.write(queue.older, written), what="v1beta1 is stored")
    await set_storage_version("v1beta2")
    with pytest.raises(ApiError, match="conversion webhook"):
        await queue.read(queue.newer)
    await newer_version_is_served_without_the_webhook(client)
    installation.start()
    found = await eventually(lambda: _with_status(queue), what="the manager to write the status")
    assert found["spec"]["clusterQueue"] == "applied"


async def newer_version_is_served_without_the_webhook(client: Client) -> None:
    queue = StoredObject(client, "LocalQueue", "stored")
    written = {"spec": {"clusterQueue": "applied"}}
    await eventually(lambda: queue.write(queue.newer, written), what="v1beta2 is stored")
    await queue.patch(queue.newer, {"spec": {"stopPolicy": "Hold"}})
    assert (await queue.read(queue.newer))["spec"]["stopPolicy"] == "Hold"
    with pytest.raises(ApiError, match="conversion webhook"):
        await queue.read(queue.older)
    # For this object, the API server compares the fields of an apply in the older version.
    (number,) = [number for number, case in enumerate(CASES) if case["kind"] == "WorkloadPriorityClass"]
    priority = StoredObject(client, "WorkloadPriorityClass", f"case-{number}")
    applied = priority.object(priority.newer, {"value": 8})
    with pytest.raises(ApiError, match="conversion webhook"):
        await client.apply(priority.newer, applied, field_manager="later")


async def _with_status(queue: StoredObject) -> dict[str, Any]:
    found = await queue.read(queue.newer)
    return found if found.get("status", {}).get("conditions") else {}
