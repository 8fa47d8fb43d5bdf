from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from admitq.integrations import registry
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.sparkapplication import SPARK_APPLICATION
from admitq_api.entry_points import ENTRY_POINT_GROUP
from admitq_api.feature_gates import FeatureGates, Gate

OUTSIDE = replace(JOB, framework="example.com/thing", group="example.com", kind="Thing", plural="things")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(name: str, value: str) -> None:
        entry = EntryPoint(name, value, ENTRY_POINT_GROUP)
        monkeypatch.setattr("admitq_api.entry_points.entry_points", lambda **_: [entry])
        registry.load_integrations.cache_clear()

    yield install
    registry.load_integrations.cache_clear()


def test_jobs_are_known_by_framework() -> None:
    assert registry.select_enabled(["batch/job"], FeatureGates()) == (JOB,)


def test_a_kind_behind_a_gate_needs_the_gate_too() -> None:
    frameworks = ["batch/job", "sparkoperator.k8s.io/sparkapplication"]
    opened = FeatureGates({Gate.SPARK_APPLICATION_INTEGRATION: True})
    assert registry.select_enabled(frameworks, FeatureGates()) == (JOB,)
    assert registry.select_enabled(frameworks, opened) == (JOB, SPARK_APPLICATION)


def test_a_framework_brings_those_that_it_implies(monkeypatch: pytest.MonkeyPatch) -> None:
    above = replace(OUTSIDE, ownership=replace(OUTSIDE.ownership, implied_frameworks=("batch/job",)))
    monkeypatch.setattr(registry, "load_integrations", lambda: (JOB, above))
    assert registry.select_enabled(["example.com/thing"], FeatureGates()) == (
        replace(JOB, ownership=replace(JOB.ownership, is_implied=True)),
        above,
    )
    assert registry.select_enabled(["example.com/thing", "batch/job"], FeatureGates()) == (JOB, above)
    assert registry.select_enabled(["batch/job"], FeatureGates()) == (JOB,)


def test_an_unknown_framework_is_refused() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        registry.select_enabled(["batch/job", "nonsense"], FeatureGates())


def test_an_installed_package_adds_a_kind(installed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admitq.integrations.kinds.job.OUTSIDE", OUTSIDE, raising=False)
    installed("example.com/thing", "admitq.integrations.kinds.job:OUTSIDE")
    assert registry.list_framework_names()[-1] == "example.com/thing"
    assert registry.load_integrations()[-1] == OUTSIDE


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("batch/job", "admitq.integrations.kinds.job:JOB", "exists already"),
        ("mine", "admitq.integrations.kinds.job:JOB", "call the entry point batch/job"),
        ("main", "admitq.integrations.kinds.job:MAIN", "is not an Integration"),
        ("none", "no.such.module:X", "no.such.module"),
    ],
)
def test_a_package_that_cannot_be_used_is_named(
    installed: Any, name: str, value: str, complaint: str
) -> None:
    installed(name, value)
    with pytest.raises(registry.UnusableIntegration, match=complaint):
        registry.load_integrations()
