"""admitq beside a cluster, as hack/up, the benchmarks and the fixture `admitq_running` start it."""

import json
from collections.abc import Callable
from typing import Any

from admitq.runtime.client import Client
from admitq.runtime.resources import JOBS, Resource
from admitq_api.labels import Names, names_for
from localcluster.cluster import LocalCluster
from localcluster.installation import Installation
from localcluster.waiting import eventually


async def make_queue(client: Client, names: Names, namespace: str) -> str:
    """Makes a queue of 4 CPUs for one namespace alone; the answer is the LocalQueue's name."""
    resources = [{"name": "cpu", "nominalQuota": 4}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": namespace, "resources": resources}]}
    for plural, kind, place, spec in (
        ("resourceflavors", "ResourceFlavor", None, {}),
        ("clusterqueues", "ClusterQueue", None, {"namespaceSelector": {}, "resourceGroups": [group]}),
        ("localqueues", "LocalQueue", namespace, {"clusterQueue": namespace}),
    ):
        metadata = {"name": namespace} | ({"namespace": place} if place else {})
        obj = {"apiVersion": names.api_version, "kind": kind, "metadata": metadata, "spec": spec}
        await client.create(
            Resource(names.group, names.version, plural, kind, namespaced=place is not None), obj
        )
    return namespace


async def submit(client: Client, names: Names, namespace: str, name: str, queue: str) -> None:
    template = {
        "metadata": {"annotations": {"kwok.admitq.dev/run-seconds": "0.5"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {"name": "work", "image": "example.com/work", "resources": {"requests": {"cpu": "4"}}}
            ],
        },
    }
    await client.create(
        JOBS,
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": {names.queue_name: queue}},
            "spec": {"template": template},
        },
        namespace,
    )


async def complete(client: Client, namespace: str, name: str) -> bool:
    status = (await client.get(JOBS, name, namespace))["status"]
    return any(entry["type"] == "Complete" for entry in status["conditions"])


async def test_jobs_finish_one_after_the_other_and_no_call_of_ours_is_refused(
    admitq_running: Installation, admitq_client: Client, admitq_namespace: str, api_group: str
):
    names = names_for(api_group)
    queue = await make_queue(admitq_client, names, admitq_namespace)
    for name in ("one", "two"):
        await submit(admitq_client, names, admitq_namespace, name, queue)
    for name in ("one", "two"):
        await eventually(
            lambda name=name: complete(admitq_client, admitq_namespace, name), what=f"Job {name}"
        )
    ours = audited(admitq_running)
    assert any(event["verb"] == "patch" and event["objectRef"]["resource"] == "jobs" for event in ours)
    # Not every 403 is one: a namespace that goes away refuses new content to everybody.
    assert [event for event in ours if event["annotations"]["authorization.k8s.io/decision"] != "allow"] == []


def audited(installation: Installation) -> list[dict[str, Any]]:
    """What the API server noted of the calls of the release's processes."""
    events = [json.loads(line) for line in installation.cluster.audit_log.read_text().splitlines()]
    accounts = f"system:serviceaccount:{installation.namespace}:"
    return [event for event in events if event["user"]["username"].startswith(accounts)]


async def test_a_killed_manager_can_be_started_again_and_goes_on(
    private_cluster: Callable[..., LocalCluster], connect: Callable[[LocalCluster], Any], api_group: str
):
    # Not the shared installation: the others' tests would wait for the lease to run out, too.
    installation = Installation(private_cluster())
    installation.install(api_group=api_group)
    installation.start()
    client = await connect(installation.cluster)
    names = names_for(api_group)
    queue = await make_queue(client, names, "default")
    before = installation.process("manager")
    installation.kill("manager")
    assert before is not None
    assert not before.alive()
    await submit(client, names, "default", "patient", queue)
    assert (await client.get(JOBS, "patient", "default"))["spec"]["suspend"]
    installation.start(("manager",))
    await eventually(lambda: complete(client, "default", "patient"), timeout=60.0)


def test_tokens_are_renewed_in_their_files(admitq_running: Installation):
    file = admitq_running.token_file("manager")
    before = file.read_text()
    admitq_running.renew_tokens()
    assert file.read_text() != before
    assert file.stat().st_mode & 0o077 == 0
