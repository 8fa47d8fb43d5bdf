"""Programs that users run: kubectl, and Python programs with clients of other projects."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from localcluster.cluster import LocalCluster

CONTAINER_LOG: Final = "no program runs in this simulated container"
"""The log of each simulated container."""


async def kubectl(cluster: LocalCluster, *arguments: str, given: str = "") -> str:
    """Run kubectl as administrator of a cluster, and return its output.

    Raises:
        AssertionError: it failed; the message is what it wrote to standard error.
    """
    return await _run(cluster, str(cluster.program("kubectl")), *arguments, given=given)


async def python_program(cluster: LocalCluster, program: Path, *arguments: str) -> str:
    """Run a Python program that uses the kubeconfig of a cluster's administrator, and return its output.

    Raises:
        AssertionError: it failed; the message is what it wrote to standard error.
    """
    return await _run(cluster, sys.executable, str(program), *arguments)


async def _run(cluster: LocalCluster, *command: str, given: str = "") -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **cluster.environment()},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await process.communicate(given.encode())
    except asyncio.CancelledError:
        process.kill()
        await process.communicate()
        raise
    assert process.returncode == 0, f"{' '.join(command)}: {errors.decode()}{output.decode()}"
    return output.decode()
