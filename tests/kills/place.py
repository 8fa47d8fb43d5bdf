"""Where histories are played: a control plane with the shipped chart, without nodes and without a manager."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from admitq.runtime.client import Client
from admitq.runtime.credentials import load_credentials
from admitq_api.labels import names_for
from localcluster import crds
from localcluster.installation import Installation
from tests.kills.histories import HISTORIES
from tests.kills.plays import Theatre

CONFIG: Final[dict[str, Any]] = {
    "integrations": {"frameworks": sorted({name for one in HISTORIES for name in one.frameworks})}
}
"""What the webhooks know; each history's manager knows what its history needs."""


def take_over(installation: Installation) -> None:
    """End the manager that came with the chart: those of the histories take its place, with its rights."""
    process = installation.process("manager")
    if process is not None and process.alive():
        installation.kill("manager")
        crds.install_missing(installation.cluster, [crds.PROVISIONING_REQUESTS, "jobsets.jobset.x-k8s.io"])


@asynccontextmanager
async def theatre(installation: Installation, api_group: str, folder: Path) -> AsyncGenerator[Theatre]:
    """A theatre in which no other is playing."""
    administrator = load_credentials(installation.cluster.kubeconfig)
    async with Client(administrator, user_agent="admitq-tests", qps=-1, timeout=30.0) as client:
        manager = load_credentials(installation.kubeconfig("manager"))
        yield Theatre(client, names_for(api_group), manager, folder)
