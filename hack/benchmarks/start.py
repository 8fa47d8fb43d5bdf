"""Measure how soon a process is ready, and how soon it frees its ports after SIGTERM.

One `admitq all-in-one` runs after another, each beside the cluster on which the chart is installed. A process
is ready after imports, first lists, and a certificate that the API server trusts.
"""

import http.client
import signal
import socket
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.clusters import fresh_cluster
from localcluster import processes
from localcluster.cluster import LocalCluster, to_stderr
from localcluster.folders import REPOSITORY
from localcluster.installation import Installation
from localcluster.nodes import NodePool
from localcluster.ports import free_ports
from localcluster.processes import Process

READY_S: Final = 1.5
"""The seconds within which a process must be ready, on an idle machine."""
FREE_S: Final = 1.0
"""The seconds within which the ports of a process must be free after SIGTERM."""

_HOST: Final = "127.0.0.1"
_PATIENCE_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.005
_NAME: Final = "all-in-one"


class NotInTime(Exception):
    """A process was not ready, or had not ended, within a minute."""


@dataclass(frozen=True)
class Start:
    """The times of one process, in seconds.

    Attributes:
        ready: from its start until it is ready.
        cpu: CPU seconds until then.
        free: from the signal until no process listens on its ports.
        ended: from the signal to its end.
    """

    ready: float
    cpu: float
    free: float
    ended: float


def run(count: int) -> tuple[dict[str, Any], bool]:
    """Start and stop a process a number of times on its own cluster.

    Returns:
        The result, and whether every start and stop was in time.

    Raises:
        ClusterError: the cluster cannot be started.
        InstallationError: admitq cannot be installed.
        NotInTime: a process took longer than a minute.
    """
    to_stderr("starting a cluster")
    with fresh_cluster((NodePool(count=1),)) as cluster:
        ports = free_ports(["webhook", "health", "metrics"])
        file = _prepare(cluster, ports)
        # The first start writes certificates and reads files that are not in the page cache.
        starts = [_one(cluster, file, ports) for _ in range(count + 1)][1:]
    worst = Start(*(max(values) for values in zip(*map(_figures, starts), strict=True)))
    median = Start(*(statistics.median(values) for values in zip(*map(_figures, starts), strict=True)))
    result = {
        "benchmark": "start",
        "starts": [_signalled(start) for start in starts],
        "median": _signalled(median),
        "worst": _signalled(worst),
    }
    return result, worst.ready <= READY_S and worst.free <= FREE_S


def _prepare(cluster: LocalCluster, ports: Mapping[str, int]) -> Path:
    """Install the chart, and write its configuration file with addresses of this machine."""
    to_stderr("installing admitq")
    installation = Installation(cluster)
    installation.install()
    chart = str(REPOSITORY / "charts" / "admitq")
    url = f"webhook.url=https://{_HOST}:{ports['webhook']}"
    installation.helm("upgrade", installation.release, chart, "--reuse-values", "--set", url)
    path = f"/api/v1/namespaces/{installation.namespace}/configmaps/{installation.prefix}-config"
    with cluster.api() as api:
        config = yaml.safe_load(api.request("GET", path)["data"]["config.yaml"])
    config["webhook"] |= {"host": _HOST, "port": ports["webhook"]}
    config["health"]["healthProbeBindAddress"] = f"{_HOST}:{ports['health']}"
    config["metrics"]["bindAddress"] = f"{_HOST}:{ports['metrics']}"
    file = cluster.log(_NAME).with_name("start.yaml")
    file.write_text(yaml.safe_dump(config))
    return file


def _one(cluster: LocalCluster, file: Path, ports: Mapping[str, int]) -> Start:
    program = Path(sys.executable).with_name("admitq")
    command = [str(program), _NAME, f"--config={file}", f"--kubeconfig={cluster.kubeconfig}"]
    begin = time.monotonic()
    process = cluster.spawn(_NAME, command)
    _until(lambda: _is_ready(ports["health"]), process, "ready")
    ready = time.monotonic() - begin
    usage = process.usage()
    signalled = time.monotonic()
    process.signal(signal.SIGTERM)
    _until(lambda: all(map(_is_free, ports.values())), None, "done with its ports")
    free = time.monotonic() - signalled
    _until(lambda: not process.alive(), None, "gone")
    ended = time.monotonic() - signalled
    cluster.terminate(_NAME)
    start = Start(ready, usage.cpu_seconds if usage is not None else 0.0, free, ended)
    to_stderr(str(_signalled(start)))
    return start


def _until(condition: Callable[[], bool], process: Process | None, what: str) -> None:
    def over() -> bool:
        return condition() or not (process is None or process.alive())

    in_time = processes.wait(over, timeout_s=_PATIENCE_S, interval_s=_LOOK_EVERY_S)
    if not in_time or not (process is None or process.alive()):
        raise NotInTime(f"the process was not {what} within {_PATIENCE_S:.0f} s, or ended")


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection(_HOST, port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As in other servers, so that old connections in TIME_WAIT do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
            probe.listen()
        except OSError:
            return False
        return True


def _figures(start: Start) -> tuple[float, ...]:
    return start.ready, start.cpu, start.free, start.ended


def _signalled(start: Start) -> dict[str, float]:
    names = ("ready_s", "cpu_s", "ports_free_s", "ended_s")
    return {name: round(value, 3) for name, value in zip(names, _figures(start), strict=True)}
