"""v1beta1 beside v1beta2: the shipped definitions, converted by the shipped webhooks."""

import asyncio
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

NAMES: Final = names_for(COMPAT_GROUP)
NAMESPACE: Final = "default"
CASES: Final[list[dict[str, Any]]] = yaml.safe_load(
    Path(__file__)
    .with_name("cases")
    .joinpath("versions.yaml")
    .read_text(encoding="utf-8")
    .replace("${group}", COMPAT_GROUP)
)


def resource(kind: str, version: str) -> Resource:
    (found,) = [one for one in KINDS if one.__name__ == kind]
    return Resource(COMPAT_GROUP, version, found.plural, kind, namespaced=found.namespaced)


def holds(found: Any, expected: Any) -> bool:
    """Whether an object has everything that is expected of it; it may have more, such as defaults."""
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


class Stored:
    """One object, seen in both versions."""

    def __init__(self, client: Client, kind: str, name: str) -> None:
        self.client = client
        self.name = name
        self.older, self.newer = resource(kind, "v1beta1"), resource(kind, "v1beta2")
        self.namespace = NAMESPACE if self.newer.namespaced else None

    def object(self, version: Resource, content: dict[str, Any]) -> dict[str, Any]:
        metadata = {"name": self.name} | ({"namespace": self.namespace} if self.namespace else {})
        return {"apiVersion": version.api_version, "kind": version.kind, "metadata": metadata, **content}

    async def write(self, version: Resource, content: dict[str, Any]) -> dict[str, Any]:
        """Create it, its status too, all in one version."""
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
    cluster = private_cluster(())
    client = await connect(cluster)
    installation = Installation(cluster)
    installation.install(api_group=COMPAT_GROUP)
    await definitions_precede_the_webhook(client, installation)
    for number, case in enumerate(CASES):
        await is_one_object_in_both_versions(client, f"case-{number}", case)
    await a_manifest_is_applied_again(client)
    await what_is_read_can_be_applied(client, cluster)
    await controllers_of_both_versions_write_one_status(client)
    await refusals_have_their_class(client)
    await rules_of_the_older_version_hold(client)
    await a_watch_shows_the_older_version(client)
    await malformed_items_do_not_spoil_a_list(client)
    await conversion_outlives_an_upgrade(client, installation)
    await objects_that_are_stored_in_the_older_version_are_no_obstacle(client, installation)


async def definitions_precede_the_webhook(client: Client, installation: Installation) -> None:
    first = Stored(client, "WorkloadPriorityClass", "first-of-all")
    written = first.object(first.newer, {"value": 1})
    await eventually(
        lambda: client.apply(first.newer, written, field_manager="early"),
        what="the stored version needs no webhook",
    )
    with pytest.raises(ApiError, match="conversion webhook"):
        await first.read(first.older)
    installation.start(("webhook",))
    assert (await eventually(lambda: first.read(first.older)))["value"] == 1


async def is_one_object_in_both_versions(client: Client, name: str, case: dict[str, Any]) -> None:
    one, says = Stored(client, case["kind"], name), case["it"]
    if "older" in case:
        await one.write(one.older, case["older"])
    else:
        await one.write(one.newer, case["newer"])
    found, read = await one.read(one.newer), await one.read(one.older)
    assert holds(found, case["newer"]), (says, found)
    assert holds(read, case.get("read", case.get("older"))), (says, read)
    # What cannot be said in the older version outlives a write there, and what is written by it is in both.
    await one.patch(one.older, {"metadata": {"labels": {"older": "was-here"}}})
    await one.patch(one.newer, {"metadata": {"labels": {"newer": "was-here"}}})
    after = await one.read(one.newer)
    assert holds(after, case["newer"]), (says, after)
    assert set(after["metadata"]["labels"]) == {"older", "newer"}
    assert (await one.read(one.older))["metadata"]["labels"] == after["metadata"]["labels"]
    assert after["metadata"].get("generation") == found["metadata"].get("generation"), says
    assert NAMES.other_version not in after["metadata"].get("annotations", {}), says


POLICY: Final = {"migration": {"mode": "RetainFirstAdmission"}}


async def a_manifest_is_applied_again(client: Client) -> None:
    """On the server's side, while others write what the older version has no field for."""
    queue = Stored(client, "ClusterQueue", "applied")
    words = {"cohort": "team", "flavorFungibility": {"whenCanBorrow": "Borrow"}}
    for names in (["one", "two"], ["one", "two"], ["one"], ["one", "three"]):
        found = await applied(queue, {**words, "admissionChecks": names})
        listed = [{"name": name} for name in names]
        assert found["spec"]["admissionChecksStrategy"] == {"admissionChecks": listed}
        await queue.patch(queue.newer, {"spec": {"concurrentAdmissionPolicy": POLICY}})
    # What is read back as it was written is not even written again.
    first, found = [await applied(queue, {"cohort": "team"}) for _ in range(2)]
    assert found == first
    assert holds(found["spec"], {"cohortName": "team", "concurrentAdmissionPolicy": POLICY})
    assert NAMES.other_version not in found["metadata"].get("annotations", {})
    # Defaults are those of the stored version, and hooks saw the object on its way.
    assert found["spec"]["queueingStrategy"] == "BestEffortFIFO"
    assert (await queue.read(queue.older))["metadata"]["finalizers"] == [NAMES.finalizer]


async def applied(queue: Stored, spec: dict[str, Any]) -> dict[str, Any]:
    """Apply in the older version and read in the newer."""
    manifest = queue.object(queue.older, {"spec": spec})
    await queue.client.apply(queue.older, manifest, field_manager="team", force=False)
    return await queue.read(queue.newer)


async def what_is_read_can_be_applied(client: Client, cluster: LocalCluster) -> None:
    """On the client's side: a file, and what was read of it in the older version, which carries a field."""
    queue = Stored(client, "ClusterQueue", "from-a-file")
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
    # A file without the annotation that the one before it had takes away what that carried.
    await kubectl(cluster, "apply", "--filename=-", given=written.replace("team", "others"))
    found = await queue.read(queue.newer)
    assert found["spec"]["cohortName"] == "others"
    assert NAMES.other_version not in found["metadata"]["annotations"]
    assert "concurrentAdmissionPolicy" not in found["spec"]


async def kubectl(cluster: LocalCluster, *arguments: str, given: str = "") -> str:
    process = await asyncio.create_subprocess_exec(
        str(cluster.program("kubectl")),
        f"--kubeconfig={cluster.kubeconfig}",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complained = await process.communicate(given.encode())
    assert process.returncode == 0, complained.decode()
    return said.decode()


async def controllers_of_both_versions_write_one_status(client: Client) -> None:
    workload = Stored(client, "Workload", workload_cases()[1])
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
    """The names of the Workloads that were written in the older version: of ours, and of the other class."""
    return [
        f"case-{number}"
        for number, case in enumerate(CASES)
        if case["kind"] == "Workload" and "older" in case
    ]


async def refusals_have_their_class(client: Client) -> None:
    queue = Stored(client, "ClusterQueue", "refused")

    def quota(**limits: str) -> dict[str, Any]:
        resources = [{"name": "cpu", "nominalQuota": "1", **limits}]
        return {
            "resourceGroups": [
                {"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": resources}]}
            ]
        }

    refused: list[tuple[dict[str, Any], str, str]] = [
        (quota(borrowingLimit="1"), "is_invalid", "borrowingLimit must be nil when cohort is empty"),
        ({"flavorFungibility": {"whenCanBorrow": "Preempt"}}, "is_invalid", "whenCanBorrow"),
        ({"admissionChecks": "one"}, "is_invalid", "admissionChecks"),
        # Of a webhook of the stored version: the older one is intercepted too.
        ({"cohort": "team", **quota(lendingLimit="2")}, "is_forbidden", "lendingLimit"),
    ]
    for spec, kind, says in refused:
        with pytest.raises(ApiError, match=says) as caught:
            await client.create(queue.older, queue.object(queue.older, {"spec": spec}))
        assert getattr(caught.value, kind), (spec, caught.value)


async def rules_of_the_older_version_hold(client: Client) -> None:
    """Of Workloads with quota: the class may change if it is a WorkloadPriorityClass, what it is may not."""
    ours, theirs = (Stored(client, "Workload", name) for name in workload_cases())
    refused: list[tuple[Stored, dict[str, Any], str]] = [
        (
            ours,
            {"priorityClassSource": "scheduling.k8s.io/priorityclass"},
            "priorityClassSource is immutable",
        ),
        (theirs, {"priorityClassSource": ""}, "priorityClassSource is immutable"),
        (theirs, {"priorityClassName": "third"}, "priorityClassName is immutable"),
        (ours, {"priorityClassName": None}, "priorityClassName is immutable"),
        (theirs, {"priority": None}, "priority must be set when priorityClassName is set"),
        (ours, {"queueName": "other"}, "queueName is immutable"),
        (ours, {"priorityClassSource": "unheard-of"}, "Unsupported value"),
    ]
    for workload, spec, says in refused:
        with pytest.raises(ApiError, match=says) as caught:
            await workload.patch(workload.older, {"spec": spec})
        assert caught.value.is_invalid, (spec, caught.value)
    await ours.patch(ours.older, {"spec": {"priorityClassName": "third"}})
    assert (await ours.read(ours.newer))["spec"]["priorityClassRef"]["name"] == "third"
    for active in (False, True):
        assert (await theirs.patch(theirs.older, {"spec": {"active": active}}))["spec"]["active"] is active


async def a_watch_shows_the_older_version(client: Client) -> None:
    queue = Stored(client, "ClusterQueue", "applied")
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


async def malformed_items_do_not_spoil_a_list(client: Client) -> None:
    """Not even by as many annotations as there may be, with which there is no room for one more."""
    workload = Stored(client, "Workload", "large")
    (case,) = [case for case in CASES if "topology of slices" in case["it"]]
    written = workload.object(workload.newer, case["newer"])
    written["metadata"]["annotations"] = {"example.com/large": "x" * (256 * 1024 - len("example.com/large"))}
    await client.create(workload.newer, written)
    read, _ = await client.list(workload.older, NAMESPACE)
    assert "large" in [one["metadata"]["name"] for one in read]
    await client.delete(workload.newer, "large", NAMESPACE)


async def conversion_outlives_an_upgrade(client: Client, installation: Installation) -> None:
    name = NAMES.crd_name("clusterqueues")

    async def trusted() -> str:
        definition = await client.get(CRDS, name)
        return definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]

    before = await trusted()
    installation.install(api_group=COMPAT_GROUP, values={"commonLabels": {"upgraded": "yes"}})
    assert (await client.get(CRDS, name))["metadata"]["labels"]["upgraded"] == "yes"
    assert await trusted() == before
    # If it had been removed, the process would write it again.
    queue = Stored(client, "ClusterQueue", "applied")
    assert (await queue.read(queue.older))["spec"]["cohort"] == "others"


async def objects_that_are_stored_in_the_older_version_are_no_obstacle(
    client: Client, installation: Installation
) -> None:
    """The webhooks read queues before they are ready, and must convert those themselves."""
    queue = Stored(client, "LocalQueue", "stored-long-ago")
    name = NAMES.crd_name("localqueues")
    definition = await client.get(CRDS, name)

    async def stored_as(version: str) -> None:
        steps = [
            {"op": "replace", "path": f"/spec/versions/{place}/storage", "value": one["name"] == version}
            for place, one in enumerate(definition["spec"]["versions"])
        ]
        await client.json_patch(CRDS, name, steps)

    await stored_as("v1beta1")
    installation.stop(("webhook",))
    # Without a converter it is accepted once the API server stores it unchanged.
    written = {"spec": {"clusterQueue": "applied"}}
    await eventually(lambda: queue.write(queue.older, written), what="v1beta1 is stored")
    await stored_as("v1beta2")
    with pytest.raises(ApiError, match="conversion webhook"):
        await queue.read(queue.newer)
    await what_is_stored_needs_no_webhook(client)
    installation.start()
    found = await eventually(lambda: _with_status(queue), what="the manager works with it")
    assert found["spec"]["clusterQueue"] == "applied"


async def what_is_stored_needs_no_webhook(client: Client) -> None:
    queue = Stored(client, "LocalQueue", "stored")
    written = {"spec": {"clusterQueue": "applied"}}
    await eventually(lambda: queue.write(queue.newer, written), what="v1beta2 is stored")
    await queue.patch(queue.newer, {"spec": {"stopPolicy": "Hold"}})
    assert (await queue.read(queue.newer))["spec"]["stopPolicy"] == "Hold"
    with pytest.raises(ApiError, match="conversion webhook"):
        await queue.read(queue.older)
    # The API server compares the fields of an apply in the older version there.
    (number,) = [number for number, case in enumerate(CASES) if case["kind"] == "WorkloadPriorityClass"]
    priority = Stored(client, "WorkloadPriorityClass", f"case-{number}")
    applied = priority.object(priority.newer, {"value": 8})
    with pytest.raises(ApiError, match="conversion webhook"):
        await client.apply(priority.newer, applied, field_manager="later")


async def _with_status(queue: Stored) -> dict[str, Any]:
    found = await queue.read(queue.newer)
    return found if found.get("status", {}).get("conditions") else {}
