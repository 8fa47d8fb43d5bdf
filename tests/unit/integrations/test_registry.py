from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from admitq.integrations import registry
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.sparkapplication import SPARK_APPLICATION
from admitq_api.entry_points import ENTRY_POINT_GROUP
from admitq_api.feature_gates import FeatureGates, Gate

EXTERNAL = replace(JOB, framework="example.com/thing", group="example.com", kind="Thing", plural="things")


@pytest.fixture
def install_package(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(name: str, value: str) -> None:
        entry = EntryPoint(name, value, ENTRY_POINT_GROUP)
        monkeypatch.setattr("admitq_api.entry_points.entry_points", lambda **_: [entry])
        registry.load_integrations.cache_clear()

    yield install
    registry.load_integrations.cache_clear()


def test_framework_name_selects_its_kind() -> None:
    assert registry.select_enabled(["batch/job"], FeatureGates()) == (JOB,)


def test_kind_with_feature_gate_is_selected_only_with_the_gate() -> None:
    frameworks = ["batch/job", "sparkoperator.k8s.io/sparkapplication"]
    with_gate = FeatureGates({Gate.SPARK_APPLICATION_INTEGRATION: True})
    assert registry.select_enabled(frameworks, FeatureGates()) == (JOB,)
    assert registry.select_enabled(frameworks, with_gate) == (JOB, SPARK_APPLICATION)


def test_framework_selects_implied_frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    implying = replace(EXTERNAL, ownership=replace(EXTERNAL.ownership, implied_frameworks=("batch/job",)))
    monkeypatch.setattr(registry, "load_integrations", lambda: (JOB, implying))
    assert registry.select_enabled(["example.com/thing"], FeatureGates()) == (
        replace(JOB, ownership=replace(JOB.ownership, is_implied=True)),
        implying,
    )
    assert registry.select_enabled(["example.com/thing", "batch/job"], FeatureGates()) == (JOB, implying)
    assert registry.select_enabled(["batch/job"], FeatureGates()) == (JOB,)


def test_unknown_framework_raises_key_error() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        registry.select_enabled(["batch/job", "nonsense"], FeatureGates())


def test_installed_package_adds_a_kind(install_package: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admitq.integrations.kinds.job.EXTERNAL", EXTERNAL, raising=False)
    install_package("example.com/thing", "admitq.integrations.kinds.job:EXTERNAL")
    assert registry.list_framework_names()[-1] == "example.com/thing"
    assert registry.load_integrations()[-1] == EXTERNAL


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("batch/job", "admitq.integrations.kinds.job:JOB", "exists already"),
        ("mine", "admitq.integrations.kinds.job:JOB", "call the entry point batch/job"),
        ("main", "admitq.integrations.kinds.job:MAIN", "is not an Integration"),
        ("none", "no.such.module:X", "no.such.module"),
    ],
)
def test_unusable_package_is_reported_with_reason(
    install_package: Any, name: str, value: str, message: str
) -> None:
    install_package(name, value)
    with pytest.raises(registry.UnusableIntegration, match=message):
        registry.load_integrations()
