"""The local control plane that the other tests use."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from admitq.runtime.client import Client
from admitq.runtime.resources import JOBS, NODES, PODS, SERVICE_ACCOUNTS
from localcluster import cli, processes
from localcluster.cluster import ClusterError, LocalCluster, reclaim_orphans
from localcluster.nodes import NodeOptionError, NodePool, NodeTaint, parse_taint
from localcluster.waiting import eventually

StartCluster = Callable[..., LocalCluster]


def pod(name: str, **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "annotations": {
                f"kwok.admitq.dev/{key.replace('_', '-')}": value for key, value in annotations.items()
            },
        },
        "spec": {
            "restartPolicy": "Never",
            "initContainers": [{"name": "prepare", "image": "example.com/prepare"}],
            "containers": [{"name": "work", "image": "example.com/work"}],
        },
    }


def is_ready(obj: dict[str, Any]) -> bool:
    conditions = obj["status"]["conditions"]
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


async def until_phase(client: Client, namespace: str, name: str, phase: str) -> dict[str, Any]:
    async def pod_in_phase() -> dict[str, Any] | None:
        found = await client.get(PODS, name, namespace)
        return found if found["status"]["phase"] == phase else None

    found = await eventually(pod_in_phase, what=f"pod {name} is {phase}")
    assert found is not None
    return found


async def test_simulated_pod_becomes_ready_and_keeps_running(client: Client, namespace: str):
    await client.create(PODS, pod("steady"), namespace)
    found = await until_phase(client, namespace, "steady", "Running")
    assert is_ready(found)
    assert found["status"]["podIP"]


async def test_simulated_pod_succeeds_after_its_run_time(client: Client, namespace: str):
    await client.create(PODS, pod("short", run_seconds="0.2"), namespace)
    found = await until_phase(client, namespace, "short", "Succeeded")
    assert not is_ready(found)
    assert found["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


async def test_simulated_pod_fails_with_its_configured_exit_code(client: Client, namespace: str):
    await client.create(PODS, pod("broken", run_seconds="0.2", exit_code="3"), namespace)
    found = await until_phase(client, namespace, "broken", "Failed")
    assert found["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


async def test_simulated_pod_with_ready_false_runs_without_becoming_ready(client: Client, namespace: str):
    await client.create(PODS, pod("cold", ready="false"), namespace)
    found = await until_phase(client, namespace, "cold", "Running")
    assert not is_ready(found)


async def test_simulated_pod_is_removed_when_it_is_deleted(client: Client, namespace: str):
    await client.create(PODS, pod("leaving"), namespace)
    await until_phase(client, namespace, "leaving", "Running")
    await client.delete(PODS, "leaving", namespace)

    async def is_gone() -> bool:
        items, _ = await client.list(PODS, namespace)
        return not items

    await eventually(is_gone)


async def test_job_controller_completes_a_job_of_simulated_pods(client: Client, namespace: str):
    template = pod("unused", run_seconds="0.2")
    await client.create(
        JOBS,
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "three"},
            "spec": {
                "completions": 3,
                "parallelism": 3,
                "template": {
                    "metadata": {"annotations": template["metadata"]["annotations"]},
                    "spec": template["spec"],
                },
            },
        },
        namespace,
    )

    async def complete() -> bool:
        status = (await client.get(JOBS, "three", namespace))["status"]
        return any(entry["type"] == "Complete" for entry in status["conditions"]) and status["succeeded"] == 3

    await eventually(complete)


async def test_audit_log_has_calls_of_service_accounts_but_not_of_components(
    cluster: LocalCluster, client: Client, namespace: str, tmp_path: Path
):
    token = await client.create(
        SERVICE_ACCOUNTS,
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
        namespace,
        "token",
        name="default",
    )
    user = f"system:serviceaccount:{namespace}:default"
    kubectl = [str(cluster.program("kubectl")), "--server", cluster.server, "--certificate-authority"]
    answer = await asyncio.to_thread(
        subprocess.run,
        [
            *kubectl,
            str(cluster.authority),
            "--token",
            token["status"]["token"],
            "get",
            "pods",
            "-n",
            namespace,
        ],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "KUBECONFIG": os.devnull, "HOME": str(tmp_path)},
    )
    assert "forbidden" in answer.stderr.lower()

    def events() -> list[dict[str, Any]]:
        return [json.loads(line) for line in cluster.audit_log.read_text().splitlines()]

    await eventually(lambda: any(event["user"]["username"] == user for event in events()))
    assert all(event["user"]["username"].startswith("system:serviceaccount:") for event in events())
    assert not any(":kube-system:" in event["user"]["username"] for event in events())


async def test_two_clusters_have_different_ports_and_objects(
    private_cluster: StartCluster, connect: Callable[[LocalCluster], Any]
):
    taint = NodeTaint("spot", "true", "NoSchedule")
    pool = NodePool(
        count=1, prefix="spot", labels={"pool": "spot"}, taints=(taint,), resources={"example.com/gpu": "8"}
    )
    one, two = private_cluster((pool,)), private_cluster(())
    assert one.server != two.server
    first, second = await connect(one), await connect(two)
    nodes, _ = await first.list(NODES)
    assert [node["metadata"]["name"] for node in nodes] == ["spot-0"]
    assert nodes[0]["metadata"]["labels"]["pool"] == "spot"
    assert nodes[0]["spec"]["taints"] == [{"key": "spot", "value": "true", "effect": "NoSchedule"}]
    assert nodes[0]["status"]["allocatable"]["example.com/gpu"] == "8"
    assert (await second.list(NODES))[0] == []


async def test_killed_api_server_is_reported_dead_and_is_revived_with_its_data(
    private_cluster: StartCluster, connect: Callable[[LocalCluster], Any], capsys: pytest.CaptureFixture[str]
):
    cluster = private_cluster()
    cluster.kill("kube-apiserver")
    assert cli.main(["status", "--name", cluster.name]) == 1
    printed = capsys.readouterr().out
    assert "kube-apiserver             DEAD" in printed
    assert "last lines of the log of kube-apiserver" in printed
    cluster.revive("kube-apiserver")
    assert cluster.healthy()
    assert len((await (await connect(cluster)).list(NODES))[0]) == 2


def test_cluster_with_a_dead_component_is_removed_and_started_anew(private_cluster: StartCluster):
    cluster = private_cluster()
    before = {name: process.pid for name, process in cluster.processes.all().items()}
    cluster.kill("etcd")
    messages: list[str] = []
    assert cluster.start((NodePool(count=1),), say=messages.append)
    assert any("removing the remains" in line for line in messages)
    assert not set(before.values()) & {process.pid for process in cluster.processes.all().values()}
    assert all(status.alive for status in cluster.status())


def test_second_start_of_a_cluster_does_nothing_or_fails_with_other_options(
    private_cluster: StartCluster,
):
    cluster = private_cluster((NodePool(count=1),))
    assert not cluster.start((NodePool(count=1),))
    with pytest.raises(ClusterError, match="already runs with other options"):
        cluster.start((NodePool(count=3),))


def test_start_error_names_the_dead_component_and_its_last_log_lines(private_cluster: StartCluster):
    with pytest.raises(ClusterError, match=r"(?s)kube-apiserver died.*unknown flag: --nonsense"):
        private_cluster((), api_server_arguments=("--nonsense",))


def test_cluster_without_owner_process_is_stopped(private_cluster: StartCluster, tmp_path: Path):
    cluster = private_cluster(())
    owner = processes.spawn(["/bin/sh", "-c", "exit 0"], log=tmp_path / "log")
    processes.wait(lambda: not owner.alive(), timeout_s=10.0)
    processes.reap(owner)
    owner.write(cluster.folder / "owner.json")
    components = cluster.processes.all()
    reclaim_orphans(lambda _: None)
    assert not cluster.exists()
    assert not any(process.alive() for process in components.values())


def test_process_of_a_reused_pid_is_not_signalled(tmp_path: Path):
    sleeper = processes.spawn(["/bin/sh", "-c", "exec sleep 60"], log=tmp_path / "log")
    try:
        reused_pid = processes.Process(sleeper.pid, sleeper.start_ticks + 1, sleeper.boot)
        reused_pid.signal(signal.SIGKILL)
        assert not reused_pid.alive()
        assert sleeper.alive()
    finally:
        processes.stop([sleeper])
    assert not sleeper.alive()


def test_env_command_points_kubectl_to_the_cluster(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["env", "--name", cluster.name]) == 0
    exports = capsys.readouterr().out
    script = f"{exports}\nkubectl get namespace default -o name; kubectl plugin list"
    # A shell in which nothing has activated the environment of the repository.
    path = {"PATH": os.pathsep.join(["/usr/bin", "/bin"])}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env=path)
    first, *plugins = done.stdout.splitlines()
    assert first == "namespace/default"
    assert any(line.endswith("/kubectl-admitq") for line in plugins)


@pytest.mark.parametrize("name", ["", "Upper", "a/b", "-a", "a-", "ä", "a" * 41])
def test_invalid_cluster_name_is_refused(name: str):
    with pytest.raises(ClusterError, match="cannot name a cluster"):
        LocalCluster(name)


@pytest.mark.parametrize(
    ("text", "taint"),
    [
        ("spot=true:NoSchedule", NodeTaint("spot", "true", "NoSchedule")),
        ("spot:NoExecute", NodeTaint("spot", "", "NoExecute")),
    ],
)
def test_taint_in_the_format_of_kubectl_is_parsed(text: str, taint: NodeTaint):
    assert parse_taint(text) == taint


@pytest.mark.parametrize("text", ["spot", "spot=true", "spot=true:Never", "=x:NoSchedule"])
def test_taint_in_another_format_is_refused(text: str):
    with pytest.raises(NodeOptionError, match="does not have the form"):
        parse_taint(text)
