"""The clusters of benchmarks collect garbage as those of users do."""

from typing import Any

import pytest

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
