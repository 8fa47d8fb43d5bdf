"""The webhooks, called by the real API server.

The webhook server runs in the test. It is registered by URL, only for the namespace and the labelled objects
of the test.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from admitq.core.model import LabelSelector
from admitq.integrations.kinds.deployment import DEPLOYMENT
from admitq.integrations.registry import load_integrations
from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import Kinds, kinds_of
from admitq.runtime.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DEPLOYMENTS,
    JOBS,
    MUTATING_WEBHOOKS,
    SECRETS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    VALIDATING_WEBHOOKS,
    Resource,
)
from admitq.serving.authorization import AuthorizationDecision, Authorizer
from admitq.serving.certificates import create_authority, from_secret_data, to_secret_data
from admitq.serving.http import route_by_path
from admitq.serving.rotation import BundleTarget, ManagedCertificates
from admitq.serving.server import Server
from admitq.serving.tls import LiveCertificate
from admitq_api.labels import Names, names_for
from admitq_webhooks.live_lookups import LiveLookups, ServingCalls, watched_lookups
from admitq_webhooks.policy import Policy
from admitq_webhooks.readiness import webhook_check
from admitq_webhooks.routes import review_handlers, webhook_rules
from localcluster.waiting import eventually

MARK = "test.admitq.dev/namespace"
"""The label of cluster-scoped objects with the namespace of their test."""


@dataclass
class RegisteredWebhooks:
    """A webhook server that is registered at the API server, and the data that a test needs about it."""

    client: Client
    namespace: str
    names: Names
    rotation: ManagedCertificates
    port: int
    secret: str
    world: LiveLookups

    @property
    def kinds(self) -> Kinds:
        return kinds_of(self.names)

    async def create(self, resource: Resource, name: str, spec: Any, **metadata: Any) -> dict[str, Any]:
        labels = {MARK: self.namespace, **metadata.pop("labels", {})}
        obj = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "labels": labels, **metadata},
            "spec": spec,
        }
        return await self.client.create(resource, obj, self.namespace if resource.namespaced else None)

    async def job(self, name: str = "work", **metadata: Any) -> dict[str, Any]:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        return await self.create(JOBS, name, {"template": template}, **metadata)

    def queued(self, queue: str = "team") -> dict[str, str]:
        return {self.names.queue_name: queue}


def configuration(
    kind: str, name: str, url: str, entries: list[dict[str, Any]], namespace: str
) -> dict[str, Any]:
    """A webhook configuration as the chart would render it, for one namespace."""
    webhooks: list[dict[str, Any]] = []
    for entry in entries:
        scope: dict[str, Any] = {"objectSelector": {"matchLabels": {MARK: namespace}}}
        if entry["namespaceSelector"] == "jobs":
            scope = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
        copied = (
            "name",
            "failurePolicy",
            "timeoutSeconds",
            "sideEffects",
            "matchPolicy",
            "matchConditions",
        )
        webhooks.append(
            {
                **{key: entry[key] for key in copied},
                **scope,
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": url + entry["path"]},
                "rules": [entry["rule"]],
            }
        )
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": webhooks,
    }


@pytest.fixture
async def webhooks(client: Client, namespace: str, installed: str) -> AsyncGenerator[RegisteredWebhooks]:
    """Webhooks that review all objects of this test; the kind Deployment is disabled."""
    names = names_for(installed)
    world, watchers = watched_lookups(client, names, load_integrations())
    policy = Policy(
        names=names,
        integrations=tuple(one for one in load_integrations() if one is not DEPLOYMENT),
        own_namespace="admitq-system",
        namespace_selector=LabelSelector(),
    )
    live = LiveCertificate()
    server = Server(route_by_path(review_handlers(policy, world, load_integrations())), tls=live.context)
    _, port = await server.start("127.0.0.1", 0)
    name = f"webhooks-{namespace}"
    rules = webhook_rules(names, load_integrations())
    url = f"https://127.0.0.1:{port}"
    mutating = configuration("MutatingWebhookConfiguration", name, url, rules["mutating"], namespace)
    validating = configuration("ValidatingWebhookConfiguration", name, url, rules["validating"], namespace)
    rotation = ManagedCertificates(
        ServingCalls(client),
        live,
        secret=(namespace, name),
        targets=(
            BundleTarget(MUTATING_WEBHOOKS.plural, name),
            BundleTarget(VALIDATING_WEBHOOKS.plural, name),
        ),
        hosts=("127.0.0.1",),
        name="test",
        overlap=1_000_000_000,
    )
    tasks = [asyncio.create_task(watcher.run()) for watcher in watchers]
    await asyncio.gather(*(watcher.synced.wait() for watcher in watchers))
    await client.create(MUTATING_WEBHOOKS, mutating)
    await client.create(VALIDATING_WEBHOOKS, validating)
    await rotation.step()
    registered = RegisteredWebhooks(client, namespace, names, rotation, port, name, world)
    await eventually(lambda: _is_registered(registered), what="the API server calls the webhooks")
    yield registered
    await client.delete(MUTATING_WEBHOOKS, name)
    await client.delete(VALIDATING_WEBHOOKS, name)
    kinds = registered.kinds
    for resource in (kinds.cluster_queues, kinds.cohorts, kinds.resource_flavors, kinds.admission_checks):
        items, _ = await client.list(resource, label_selector=f"{MARK}={namespace}")
        for item in items:
            await client.merge_patch(resource, item["metadata"]["name"], {"metadata": {"finalizers": None}})
            await client.delete(resource, item["metadata"]["name"])
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await server.stop(linger=0)


async def _is_registered(webhooks: RegisteredWebhooks) -> bool:
    """Whether dry runs show that both configurations are in effect: the API server loads each separately."""

    async def probe(queue: str) -> dict[str, Any]:
        container = {"name": "c", "image": "i"}
        metadata = {"name": "probe", "labels": webhooks.queued(queue)}
        spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
        return await webhooks.client.create(JOBS, job, webhooks.namespace, dry_run=True)

    try:
        await probe("Not-A-Queue")
    except ApiError as error:
        if "denied the request" in error.message:
            return (await probe("a-queue"))["spec"].get("suspend") is True
    return False


@pytest.mark.core
async def test_job_with_a_queue_name_is_created_suspended(webhooks: RegisteredWebhooks) -> None:
    job = await webhooks.job(labels=webhooks.queued())
    assert job["spec"]["suspend"] is True


async def test_job_without_a_queue_name_gets_the_existing_default_queue(webhooks: RegisteredWebhooks) -> None:
    await webhooks.create(webhooks.kinds.local_queues, "default", {"clusterQueue": "any"})
    await eventually(lambda: webhooks.world.has_local_queue(webhooks.namespace, "default"))
    job = await webhooks.job()
    assert job["spec"]["suspend"] is True
    assert job["metadata"]["labels"][webhooks.names.queue_name] == "default"


async def test_job_of_a_multikueue_queue_gets_the_dispatcher_as_managed_by(
    webhooks: RegisteredWebhooks,
) -> None:
    kinds, own = webhooks.kinds, f"dispatched-{webhooks.namespace}"
    await webhooks.create(
        kinds.admission_checks, own, {"controllerName": webhooks.names.multikueue_controller}
    )
    strategy = {"admissionChecks": [{"name": own}]}
    await webhooks.create(kinds.cluster_queues, own, {"admissionChecksStrategy": strategy})
    for queue, leads_to in (("elsewhere", own), ("here", "any")):
        await webhooks.create(kinds.local_queues, queue, {"clusterQueue": leads_to})
    await eventually(lambda: webhooks.world.admission_check_controllers(webhooks.namespace, "elsewhere"))
    dispatched = await webhooks.job("dispatched", labels=webhooks.queued("elsewhere"))
    assert dispatched["spec"]["managedBy"] == webhooks.names.multikueue_controller
    kept = await webhooks.job("kept", labels=webhooks.queued("here"))
    assert "managedBy" not in kept["spec"]


async def test_job_without_a_queue_name_is_stored_unchanged(webhooks: RegisteredWebhooks) -> None:
    def comparable(job: dict[str, Any]) -> dict[str, Any]:
        uid = job["metadata"]["uid"]
        kept = {
            key: job["metadata"].get(key) for key in ("labels", "annotations", "finalizers", "generation")
        }
        text = str({"spec": job["spec"], "metadata": kept}).replace(uid, "UID")
        return {"all": text}

    with_webhook = await webhooks.job()
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        await webhooks.client.merge_patch(resource, webhooks.secret, {"webhooks": []})
    await webhooks.client.delete(JOBS, "work", webhooks.namespace, propagation="Background")

    async def create_again() -> dict[str, Any] | None:
        try:
            return await webhooks.job()
        except ApiError as error:
            if error.is_already_exists:
                return None
            raise

    without_webhook = await eventually(create_again, what="the first Job is gone")
    assert with_webhook["spec"].get("suspend") is False
    assert comparable(with_webhook) == comparable(without_webhook or {})


async def test_object_of_a_disabled_kind_is_neither_checked_nor_changed(webhooks: RegisteredWebhooks) -> None:
    """The API server calls the webhooks for the disabled kind, too. An enabled kind shows the difference."""
    pods = {"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    selector = {"matchLabels": {"app": "s"}}
    spec: dict[str, Any] = {"replicas": 0, "selector": selector, "template": pods}
    off = await webhooks.create(DEPLOYMENTS, "off", spec, labels=webhooks.queued("Not_A_Queue"))
    assert off["spec"]["template"]["metadata"] == {"labels": {"app": "s"}}
    spec["serviceName"] = "s"
    with pytest.raises(ApiError, match="lowercase RFC 1123 subdomain"):
        await webhooks.create(STATEFUL_SETS, "on", spec, labels=webhooks.queued("Not_A_Queue"))


async def test_dry_run_of_a_job_is_mutated_and_stores_nothing(webhooks: RegisteredWebhooks) -> None:
    job = await webhooks.client.create(
        JOBS,
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "dry", "labels": webhooks.queued()},
            "spec": {
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
            },
        },
        webhooks.namespace,
        dry_run=True,
    )
    assert job["spec"]["suspend"] is True
    with pytest.raises(ApiError, match="not found"):
        await webhooks.client.get(JOBS, "dry", webhooks.namespace)


@pytest.mark.parametrize(
    ("labels", "annotations", "field", "message"),
    [
        ({"queue_name": "Not-A-Queue"}, {}, "metadata.labels[{queue_name}]", "lower case"),
        ({"queue_name": "q", "max_exec_time": "0"}, {}, "metadata.labels[{max_exec_time}]", "greater than 0"),
        (
            {"queue_name": "q"},
            {"admission_gated_by": "x"},
            "metadata.annotations[{admission_gated_by}]",
            "path",
        ),
        (
            {"queue_name": "q"},
            {"job_min_parallelism": "7"},
            "metadata.annotations[{job_min_parallelism}]",
            "between",
        ),
    ],
)
async def test_invalid_job_is_rejected_with_its_field(
    webhooks: RegisteredWebhooks,
    labels: dict[str, str],
    annotations: dict[str, str],
    field: str,
    message: str,
) -> None:
    keys = {name: str(getattr(webhooks.names, name)) for name in (*labels, *annotations)}
    with pytest.raises(ApiError) as refused:
        await webhooks.job(
            labels={keys[name]: value for name, value in labels.items()},
            annotations={keys[name]: value for name, value in annotations.items()},
        )
    assert refused.value.is_forbidden
    assert f'admission webhook "vjob.{webhooks.names.group}" denied the request' in refused.value.message
    assert field.format(**keys) in refused.value.message
    assert message in refused.value.message
    assert refused.value.body["details"]["causes"][0]["field"] == field.format(**keys)


async def test_queue_name_of_a_running_job_is_immutable(webhooks: RegisteredWebhooks) -> None:
    await webhooks.job(labels=webhooks.queued())
    await webhooks.client.merge_patch(JOBS, "work", {"spec": {"suspend": False}}, webhooks.namespace)
    for value in (None, "", "other"):
        with pytest.raises(ApiError, match="field is immutable"):
            await webhooks.client.merge_patch(
                JOBS,
                "work",
                {"metadata": {"labels": webhooks.queued() | {webhooks.names.queue_name: value}}},
                webhooks.namespace,
            )


async def test_job_with_a_copied_or_forged_owner_reference_is_created_suspended(
    webhooks: RegisteredWebhooks,
) -> None:
    parent = await webhooks.job("parent", labels=webhooks.queued())
    for uid in (parent["metadata"]["uid"], "00000000-0000-0000-0000-000000000000"):
        reference = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "parent",
            "uid": uid,
            "controller": True,
        }
        child = await webhooks.job(f"child-{uid[:4]}", labels=webhooks.queued(), ownerReferences=[reference])
        assert child["spec"]["suspend"] is True


@pytest.mark.core
async def test_cluster_queue_and_flavor_get_the_finalizer(webhooks: RegisteredWebhooks) -> None:
    queue = await webhooks.create(webhooks.kinds.cluster_queues, f"cq-{webhooks.namespace}", {})
    flavor = await webhooks.create(webhooks.kinds.resource_flavors, f"rf-{webhooks.namespace}", {})
    assert webhooks.names.finalizer in queue["metadata"]["finalizers"]
    assert webhooks.names.finalizer in flavor["metadata"]["finalizers"]


def a_group(**limits: Any) -> dict[str, Any]:
    quota = {"name": "cpu", "nominalQuota": "1", **limits}
    return {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}


@pytest.mark.parametrize(
    ("plural", "spec", "field"),
    [
        ("cohorts", {"resourceGroups": [a_group(lendingLimit="1")]}, "lendingLimit"),
        ("cohorts", {"resourceGroups": [a_group(), a_group()]}, "spec.resourceGroups[1].coveredResources[0]"),
        (
            "cluster_queues",
            {"cohortName": "c", "resourceGroups": [a_group(lendingLimit="2")]},
            "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit",
        ),
        (
            "cluster_queues",
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
            "spec.namespaceSelector",
        ),
        ("resource_flavors", {"nodeLabels": {"no key": "v"}}, "spec.nodeLabels"),
        (
            "resource_flavors",
            {"nodeTaints": [{"key": "k", "effect": "NoSchedule"}, {"key": "k", "effect": "NoSchedule"}]},
            "spec.nodeTaints[1]",
        ),
        (
            "workloads",
            {
                "podSets": [
                    {
                        "name": "main",
                        "count": 1,
                        "template": {
                            "spec": {"containers": [{"name": "c", "resources": {"requests": {"pods": "1"}}}]}
                        },
                    }
                ]
            },
            "spec.podSets[0].template.spec.containers[0].resources.requests[pods]",
        ),
    ],
)
async def test_invalid_object_of_a_kind_of_admitq_is_rejected_with_its_field(
    webhooks: RegisteredWebhooks, plural: str, spec: dict[str, Any], field: str
) -> None:
    with pytest.raises(ApiError) as refused:
        await webhooks.create(getattr(webhooks.kinds, plural), f"wrong-{webhooks.namespace}", spec)
    assert field in refused.value.message


async def test_invalid_workload_status_is_rejected(webhooks: RegisteredWebhooks) -> None:
    spec = {
        "podSets": [
            {"name": "main", "count": 3, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
        ]
    }
    await webhooks.create(webhooks.kinds.workloads, "w", spec)

    def reserved(cpu: str) -> dict[str, Any]:
        return {
            "status": {
                "conditions": [
                    {
                        "type": "QuotaReserved",
                        "status": "True",
                        "reason": "QuotaReserved",
                        "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    }
                ],
                "admission": {
                    "clusterQueue": "q",
                    "podSetAssignments": [
                        {"name": "main", "count": 3, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": cpu}}
                    ],
                },
            }
        }

    async def patch(body: dict[str, Any], subresource: str | None = "status") -> None:
        await webhooks.client.merge_patch(
            webhooks.kinds.workloads, "w", body, webhooks.namespace, subresource
        )

    with pytest.raises(ApiError, match="is not a multiple of 3"):
        await patch(reserved("1"))
    await patch(reserved("3"))
    with pytest.raises(ApiError, match="field is immutable"):
        await patch(reserved("6"))
    with pytest.raises(ApiError, match=r"spec\.podSets.*field is immutable"):
        await patch({"spec": {"podSets": [{**spec["podSets"][0], "count": 4}]}}, None)
    await patch({"status": {"admission": None, "conditions": []}})


async def test_readiness_check_calls_the_webhook_over_tls(webhooks: RegisteredWebhooks) -> None:
    def check(**changes: Any) -> Any:
        options: dict[str, Any] = {
            "port": webhooks.port,
            "server_name": "127.0.0.1",
            "trust": lambda: webhooks.rotation.trust,
            **changes,
        }
        return webhook_check(webhooks.names, **options)

    async def is_ready() -> bool:
        return await check()() is None

    await eventually(is_ready)
    assert "no certificate" in (await check(trust=lambda: b"")() or "")
    assert "does not answer" in (await check(server_name="other.example.com")() or "")
    assert await check(server_name=None)() is None
    assert "does not answer" in (await check(port=1)() or "")
    other = create_authority(time.time_ns(), name="other")
    assert "does not answer" in (await check(trust=lambda: other.certificate)() or "")


async def test_no_call_of_the_api_server_fails_while_certificate_authorities_rotate(
    webhooks: RegisteredWebhooks,
) -> None:
    stop = asyncio.Event()
    calls = 0

    async def call(worker: int) -> None:
        nonlocal calls
        while not stop.is_set():
            calls += 1
            await webhooks.client.create(
                JOBS,
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "metadata": {"name": f"dry-{worker}", "labels": webhooks.queued()},
                    "spec": {
                        "template": {
                            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
                        }
                    },
                },
                webhooks.namespace,
                dry_run=True,
            )

    async def change_authority() -> None:
        """Write an upcoming authority to the Secret, and wait until the rotation serves a leaf of it."""
        secret = await webhooks.client.get(SECRETS, webhooks.secret, webhooks.namespace)
        current = from_secret_data(secret["data"])
        announced = replace(current, upcoming=create_authority(time.time_ns(), name="test"))
        await webhooks.client.replace(SECRETS, {**secret, "data": to_secret_data(announced)})
        shown = webhooks.rotation.live.certificate

        async def changed() -> bool:
            await webhooks.rotation.step()
            return webhooks.rotation.live.certificate != shown

        await eventually(changed, what="a leaf of the new authority")

    workers = [asyncio.create_task(call(worker)) for worker in range(4)]
    seen: set[bytes | None] = set()
    try:
        for _ in range(8):
            await change_authority()
            seen.add(webhooks.rotation.live.certificate)
            before = calls
            await eventually(lambda before=before: calls > before + 8, what="calls under this certificate")
    finally:
        stop.set()
        await asyncio.gather(*workers)
    assert len(seen) == 8


@pytest.fixture
async def reader(client: Client, namespace: str) -> AsyncGenerator[str]:
    """A service account that may read metrics."""
    name = f"reader-{namespace}"
    await client.create(
        SERVICE_ACCOUNTS,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
        namespace,
    )
    meta = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    await client.create(CLUSTER_ROLES, {**meta, "kind": "ClusterRole", "rules": rules})
    await client.create(
        CLUSTER_ROLE_BINDINGS,
        {
            **meta,
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    )
    yield name
    await client.delete(CLUSTER_ROLE_BINDINGS, name)
    await client.delete(CLUSTER_ROLES, name)


async def test_only_permitted_users_read_metrics(client: Client, namespace: str, reader: str) -> None:
    async def token(account: str) -> str:
        answer = await client.create(
            SERVICE_ACCOUNTS,
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": 600},
            },
            namespace,
            "token",
            name=account,
        )
        return answer["status"]["token"]

    async def decide(text: str) -> AuthorizationDecision:
        return await Authorizer(ServingCalls(client)).decide(f"Bearer {text}", path="/metrics")

    permitted = await token(reader)
    # The API server applies new rules a moment later.
    await eventually(lambda: _equals(decide(permitted), AuthorizationDecision.ALLOWED))
    assert await decide(await token("default")) is AuthorizationDecision.FORBIDDEN
    assert await decide("nonsense") is AuthorizationDecision.UNAUTHENTICATED


async def _equals(decision: Awaitable[AuthorizationDecision], expected: AuthorizationDecision) -> bool:
    return await decision is expected
