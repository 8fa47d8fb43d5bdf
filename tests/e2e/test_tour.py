"""What the README and the quick start tell to type, typed."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from admitq_api.labels import DEFAULT_GROUP
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.e2e.conftest import REPOSITORY

BLOCK = re.compile(r"^```(sh|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WAITING = "insufficient unused quota for cpu in flavor tour, 1 more needed"
WAITING_JOB = "Waits for unused quota in ClusterQueue tour: cpu in flavor tour: needs 1, 0 of 2 free"
OTHER_CLUSTER = re.compile(r"^eval .*\n", re.MULTILINE)


class Shell:
    """A shell in a folder of its own, with kubectl for the running cluster."""

    def __init__(self, installation: Installation, folder: Path) -> None:
        self._environment = {**os.environ, **installation.cluster.environment()}
        self._folder = folder

    def run(self, commands: str) -> str:
        """Run commands as one paste; the first that fails fails the test."""
        answer = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        assert answer.returncode == 0, f"{commands}\n{answer.stdout}\n{answer.stderr}"
        return answer.stdout

    def write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)


@pytest.fixture
def shell(admitq_running: Installation, api_group: str, tmp_path: Path) -> Shell:
    if api_group != DEFAULT_GROUP:
        pytest.skip("the documentation is written for admitq's own group")
    return Shell(admitq_running, tmp_path)


def section(page: str, heading: str) -> Iterator[tuple[str, str]]:
    """The blocks of one section, or of the whole page where no heading is given: language and text."""
    text = (REPOSITORY / page).read_text()
    if heading:
        text = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    for language, block in BLOCK.findall(text):
        yield language, OTHER_CLUSTER.sub("", block)


async def test_tour_of_the_readme(shell: Shell) -> None:
    blocks = [block for _, block in section("README.md", "A tour of two minutes")]
    assert len(blocks) == 6
    *before, look, make_room, clean_up = blocks

    async def is_described() -> bool:
        of_workloads, of_job = re.split(r"^Name: +tour-3$", shell.run(look), flags=re.MULTILINE)
        assert WAITING in of_workloads
        return bool(re.search(f"Warning +WaitingForQuota .*{WAITING_JOB}", of_job))

    for block in before:
        shell.run(block)
    await eventually(is_described, what="the reason on the Workload and on the job")
    for block in (make_room, clean_up):
        shell.run(block)


async def test_quick_start(shell: Shell) -> None:
    blocks = list(section("docs/getting-started/quick-start.md", ""))
    manifests = [text for language, text in blocks if language == "yaml"]
    commands = [text for language, text in blocks if language == "sh"]
    shell.write("queues.yaml", "---\n".join(manifests[:3]))
    shell.write("job.yaml", manifests[3])
    apply, create, look, watch = commands
    assert "--watch" in watch

    shell.run(apply.partition("kubectl get")[0])
    message = "kubectl get localqueue main --output jsonpath='{.status.conditions[0].message}'"
    assert message in apply
    await eventually(lambda: shell.run(message) == "Can submit new workloads to localQueue")
    shell.run(create)
    expected = "insufficient unused quota for cpu in flavor any-node, 2 more needed"
    await eventually(lambda: expected in shell.run(look))
    shell.run(
        "kubectl wait jobs --for=condition=Complete --timeout=80s --selector admitq.dev/queue-name=main"
    )
    shell.run(
        "kubectl delete jobs --selector admitq.dev/queue-name=main\n"
        "kubectl delete localqueues/main clusterqueues/shared resourceflavors/any-node"
    )
