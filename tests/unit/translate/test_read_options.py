"""Options of the configuration for the reading of Workloads."""

from dataclasses import replace

import pytest

from admitq.translate.read_options import configured_read_options
from admitq_api.configuration import Configuration, load_configuration
from admitq_api.feature_gates import FeatureGates, parse_gate
from tests.unit.translate.builders import NAMES


@pytest.mark.parametrize(
    ("file", "gate", "changed"),
    [
        ("", "PriorityBoost", {"allows_priority_boost": True}),
        ("", "PrioritySortingWithinCohort", {"reclaim_moves_to_back": True}),
        ("", "AdmissionGatedBy", {"allows_admission_gates": False}),
        ("", "ElasticJobsViaWorkloadSlices", {"allows_replacement": False}),
        (
            "waitForPodsReady: {requeuingStrategy: {timestamp: Creation}}",
            None,
            {"timeout_moves_to_back": False},
        ),
    ],
)
def test_configuration_and_gates_say_how_workloads_are_read(
    file: str, gate: str | None, changed: dict[str, bool]
) -> None:
    by_default = FeatureGates()
    switched = FeatureGates({parse_gate(gate): not by_default[parse_gate(gate)]}) if gate else by_default
    usual = configured_read_options(Configuration(), by_default)
    head = f"apiVersion: {NAMES.config_api_version}\nkind: Configuration\n"
    assert (
        configured_read_options(load_configuration(head + file), switched)
        == replace(usual, **changed)
        != usual
    )
