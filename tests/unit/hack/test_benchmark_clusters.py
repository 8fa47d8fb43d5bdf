"""The clusters of benchmarks are like those of users, and their harnesses do not wait."""

from pathlib import Path
from typing import Any

import pytest

from admitq.runtime.credentials import Credentials
from benchmarks import clusters


class RecordedCluster:
    """A cluster that records how it is started, in place of a real one."""

    started_with: dict[str, Any]

    def __init__(self, name: str) -> None:
        self.name = name

    def stop(self) -> None:
        """Do nothing: no process runs."""

    def start(self, pools: object, **settings: Any) -> None:
        RecordedCluster.started_with = settings


@pytest.mark.parametrize(
    ("shell", "expected"),
    [
        pytest.param({}, {"GOGC": "100", "GOMEMLIMIT": "off"}, id="go-defaults"),
        pytest.param(
            {"GOGC": "400", "GOMEMLIMIT": "6GiB"},
            {"GOGC": "400", "GOMEMLIMIT": "6GiB"},
            id="shell-takes-precedence",
        ),
    ],
)
def test_components_of_a_benchmark_collect_garbage_as_by_default(
    monkeypatch: pytest.MonkeyPatch, shell: dict[str, str], expected: dict[str, str]
) -> None:
    monkeypatch.setattr(clusters, "LocalCluster", RecordedCluster)
    for name in ("GOGC", "GOMEMLIMIT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in shell.items():
        monkeypatch.setenv(name, value)
    with clusters.fresh_cluster():
        pass
    assert RecordedCluster.started_with["environment"] == expected


def test_harness_sends_each_write_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "load_credentials", lambda _: Credentials("https://127.0.0.1:1"))
    assert clusters.harness_client(Path("kubeconfig")).scheduler.write_classes == []
