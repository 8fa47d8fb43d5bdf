"""Commands of the guides, each with its output: run them, and compare what they print."""

import asyncio
import os
import re
from collections.abc import Mapping
from pathlib import Path

from localcluster.folders import REPOSITORY
from localcluster.installation import Installation
from tests.controlplane.stage import Stage

CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""A block with commands, each after ``$``, and their output."""
WORKLOAD_NAME = re.compile(r"\b(job-([\w-]+)-[0-9a-f]{5})\b")
"""The name of the Workload of a Job, and the name of the Job."""
TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
DURATION = re.compile(r"\b(?:\d+[smhd])+\b")
POD_NAME = re.compile(r"\btrain-[a-z0-9]{5}\b")
SPACES = re.compile(r" +")


def documented_commands(guide: str, stage: Stage) -> list[str]:
    """Return the commands of a guide, each with its output, with the names of objects of a story."""
    text = (REPOSITORY / "docs" / "guides" / guide).read_text()
    text = text.replace("team-a-cq", stage.own("cq")).replace("team-a-flavor", stage.own("f"))
    text = re.sub(r"\bteam-a\b", stage.namespace, text)
    return [part for block in CONSOLE.findall(text) for part in block.split("$ ")[1:]]


def documented_file(guide: str, name: str) -> str:
    """Return a file of a guide: the block that begins with a comment with its name."""
    text = (REPOSITORY / "docs" / "guides" / guide).read_text()
    (found,) = re.findall(rf"^```yaml\n# {re.escape(name)}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return found


def with_names(text: str, workloads: Mapping[str, str]) -> str:
    """Return a text with the names of Workloads that exist, by the names of their Jobs."""
    for name, job in WORKLOAD_NAME.findall(text):
        text = text.replace(name, workloads[job])
    return text


async def one_runs_and_one_waits(stage: Stage) -> dict[str, str]:
    """Run jobs, so that run times are known; then let one run and one wait. Return the names of Workloads."""
    await stage.active_queues()
    for number in (1, 2, 3):
        await stage.job(f"train-{number}", seconds=1.0)
    for number in (1, 2, 3):
        await stage.until_finished(f"train-{number}")
    await stage.job("train-4", cpu=3)
    await stage.until_running("train-4")
    await stage.job("next", cpu=2)
    await stage.until_condition("QuotaReserved", "WaitingForQuota", "next")
    return {job: (await stage.workload(job))["metadata"]["name"] for job in ("train-4", "next")}


async def run_in_shell(installation: Installation, command: str, folder: Path | None = None) -> str:
    """Return what a command prints; it may fail."""
    process = await asyncio.create_subprocess_shell(
        command,
        cwd=folder,
        env={**os.environ, **installation.cluster.environment()},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return output.decode()


def comparable(output: str) -> list[str]:
    """The lines that a command printed, without what differs from run to run.

    These are times and durations, names of pods, widths of columns, and the order of what happened in one
    second.
    """
    text = POD_NAME.sub("a pod", DURATION.sub("?s", TIME.sub("a time", output)))
    return sorted(SPACES.sub(" ", line) for line in text.splitlines())
