"""The examples: the commands of each README are run, and the workloads are admitted."""

import os
import re
import shlex
import subprocess
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from admitq.runtime.resources import JOBS, PODS
from admitq_api.json_objects import value_at
from admitq_api.labels import DEFAULT_GROUP
from localcluster.folders import REPOSITORY
from localcluster.installation import Installation
from tests.controlplane.stage import Stage, condition_of, owner_of

FOLDER = REPOSITORY / "examples"
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CREATED_FILE = re.compile(r"kubectl create -f (\S+)")


class Shell:
    """Run commands in the root of the repository, with kubectl for one namespace of the cluster."""

    def __init__(self, installation: Installation, namespace: str, folder: Path) -> None:
        environment = {**os.environ, **installation.cluster.environment()}
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(Path(environment["KUBECONFIG"]).read_text())
        self._environment = {**environment, "KUBECONFIG": str(kubeconfig)}
        self.run(f"kubectl config set-context --current --namespace {namespace}")

    def run(self, command: str, text: str | None = None) -> str:
        """Run a command with a text as standard input, and return its output."""
        done = subprocess.run(
            shlex.split(command),
            cwd=REPOSITORY,
            env=self._environment,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


async def nothing_more(_stage: Stage, _shell: Shell) -> None:
    """Check only that the workloads are admitted."""


@dataclass(frozen=True)
class Expectation:
    """The workloads of an example, by the beginning of the name of their owner or of the Workload itself."""

    admitted: tuple[str, ...]
    then: Callable[[Stage, Shell], Awaitable[None]] = field(default=nothing_more)


async def one_job_has_all_pods_and_the_other_has_none(stage: Stage, _shell: Shell) -> None:
    async def numbers_of_pods() -> list[int]:
        return sorted([len(await stage.pods(job)) for job in ("job-a", "job-b")])

    await stage.until(numbers_of_pods, [0, 3])

    async def reasons() -> list[str]:
        found = [await stage.condition("QuotaReserved", job) for job in ("job-a", "job-b")]
        return sorted((condition or ("", "", ""))[1] for condition in found)

    await stage.until(reasons, ["QuotaReserved", "WaitingForQuota"])


async def job_runs_on_after_another_sync(stage: Stage, shell: Shell) -> None:
    """Apply the manifest as Flux does: by server-side apply, with force."""
    for _ in range(2):
        shell.run(
            "kubectl apply --server-side --force-conflicts --field-manager kustomize-controller "
            "-f examples/gitops/job.yaml"
        )
        job = await stage.get(JOBS, "nightly-import")
        assert not value_at(job, ("spec", "suspend"))
        selector = value_at(job, ("spec", "template", "spec", "nodeSelector"))
        assert selector == {"kubernetes.io/os": "linux"}
    assert condition_of((await stage.workload("nightly-import")), "Evicted") is None


async def requests_count_in_both_quotas(stage: Stage, shell: Shell) -> None:
    async def used() -> str:
        return shell.run("kubectl get resourcequota limits --output jsonpath={.status.used.requests\\\\.cpu}")

    await stage.until(used, "1")
    workload = await stage.workload("without-requests")
    (assignment,) = workload["status"]["admission"]["podSetAssignments"]
    assert assignment.get("resourceUsage", {}).get("cpu") == "1", workload


async def pods_have_no_gate(stage: Stage, _shell: Shell) -> None:
    async def gates() -> list[Any]:
        pods, _ = await stage.client.list(PODS, stage.namespace)
        return [one["spec"]["schedulingGates"] for one in pods if "schedulingGates" in one["spec"]]

    await stage.until(gates, [])


EXPECTED = {
    "argo-workflows": Expectation(
        ("prepare-and-check-prepare", "prepare-and-check-check", "train-"), then=pods_have_no_gate
    ),
    "cronjobs": Expectation(("report-now",)),
    "gang-scheduling": Expectation(("pair",), then=one_job_has_all_pods_and_the_other_has_none),
    "gitops": Expectation(("nightly-import",), then=job_runs_on_after_another_sync),
    "python-client": Expectation(("python-",)),
    "resource-quota": Expectation(("without-requests",), then=requests_count_in_both_quotas),
    "tekton": Expectation(("build-compile", "build-test"), then=pods_have_no_gate),
}


def created_by(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the objects that the controller of a kind of another project creates for an object."""
    if manifest["kind"] == "Workflow":
        for template in manifest["spec"]["templates"]:
            if "container" in template:
                containers = [
                    {"name": "main", **template["container"]},
                    {"name": "wait", "image": "argoexec"},
                ]
                yield pod_of(manifest, template["name"], template["metadata"]["labels"], containers)
            if "resource" in template:
                yield {**yaml.safe_load(template["resource"]["manifest"])}
    if manifest["kind"] == "PipelineRun":
        for task in manifest["spec"]["pipelineSpec"]["tasks"]:
            containers = [
                {"name": f"step-{one['name']}", "image": one["image"], "resources": one["computeResources"]}
                for one in task["taskSpec"]["steps"]
            ]
            yield pod_of(manifest, task["name"], manifest["metadata"]["labels"], containers)


def pod_of(owner: dict[str, Any], name: str, labels: dict[str, str], containers: list[Any]) -> dict[str, Any]:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": "owner",
        "uid": str(uuid.uuid4()),
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{owner['metadata']['generateName']}{name}",
            "labels": labels,
            "ownerReferences": [reference],
        },
        "spec": {"restartPolicy": "Never", "containers": containers},
    }


def run_readme(shell: Shell, folder: Path, namespace: str) -> None:
    """Run the commands of a README. Create what controllers create for kinds that are not installed."""
    (commands,) = COMMANDS.findall((folder / "README.md").read_text())
    for command in commands.splitlines():
        if command.startswith("pip install "):
            continue
        if created := CREATED_FILE.fullmatch(command):
            manifest = yaml.safe_load((REPOSITORY / created[1]).read_text())
            for one in created_by(manifest):
                shell.run("kubectl create -f -", yaml.safe_dump(one))
        else:
            shell.run(command.replace("submit.py default ", f"submit.py {namespace} "))


@pytest.fixture
def shell(admitq_running: Installation, stage: Stage, api_group: str, tmp_path: Path) -> Shell:
    if api_group != DEFAULT_GROUP:
        pytest.skip("the examples are written for admitq's own group")
    return Shell(admitq_running, stage.namespace, tmp_path)


def test_every_example_has_an_expectation() -> None:
    assert {one.name for one in FOLDER.iterdir() if one.is_dir()} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_example_manifests_are_shown_in_the_guide(name: str) -> None:
    guide = (REPOSITORY / "docs" / "guides" / f"{name}.md").read_text()
    for file in (FOLDER / name).iterdir():
        if file.name not in {"README.md", "queues.yaml"}:
            assert f"\n{file.read_text()}```\n" in guide, file.name


@pytest.mark.parametrize("name", sorted(EXPECTED))
async def test_workloads_of_an_example_are_admitted(name: str, stage: Stage, shell: Shell) -> None:
    expected = EXPECTED[name]
    run_readme(shell, FOLDER / name, stage.namespace)

    async def states() -> dict[str, bool]:
        found, _ = await stage.client.list(stage.kinds.workloads, stage.namespace)
        return {
            wanted: (condition_of(one, "Admitted") or ("",))[0] == "True"
            for wanted in expected.admitted
            for one in found
            if one["metadata"]["name"].startswith(wanted) or owner_of(one).startswith(wanted)
        }

    try:
        await stage.until(states, dict.fromkeys(expected.admitted, True))
        await expected.then(stage, shell)
    finally:
        for resource in (stage.kinds.cluster_queues, stage.kinds.resource_flavors):
            await stage.client.delete(resource, name)
