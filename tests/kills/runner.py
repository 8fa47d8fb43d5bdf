"""The control plane of the histories: with the chart, without nodes and without manager."""

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
from tests.kills.plays import HistoryRunner

CONFIG: Final[dict[str, Any]] = {
    "integrations": {"frameworks": sorted({name for one in HISTORIES for name in one.frameworks})}
}
"""The configuration of the webhooks; the manager of each history has its own."""


def stop_chart_manager(installation: Installation) -> None:
    """Kill the manager of the chart; the managers of the histories use its rights."""
    process = installation.process("manager")
    if process is not None and process.alive():
        installation.kill("manager")
        crds.install_missing(installation.cluster, [crds.PROVISIONING_REQUESTS, "jobsets.jobset.x-k8s.io"])


@asynccontextmanager
async def history_runner(
    installation: Installation, api_group: str, folder: Path
) -> AsyncGenerator[HistoryRunner]:
    """Open a history runner. Only one may run in a cluster at a time."""
    administrator = load_credentials(installation.cluster.kubeconfig)
    async with Client(administrator, user_agent="admitq-tests", qps=-1, timeout=30.0) as client:
        manager = load_credentials(installation.kubeconfig("manager"))
        yield HistoryRunner(client, names_for(api_group), manager, folder)
