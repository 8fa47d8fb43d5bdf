"""Options of the configuration that change how Workloads are read."""

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
def test_read_options_follow_configuration_and_gates(
    file: str, gate: str | None, changed: dict[str, bool]
) -> None:
    default_gates = FeatureGates()
    gates = FeatureGates({parse_gate(gate): not default_gates[parse_gate(gate)]}) if gate else default_gates
    default_options = configured_read_options(Configuration(), default_gates)
    head = f"apiVersion: {NAMES.config_api_version}\nkind: Configuration\n"
    assert (
        configured_read_options(load_configuration(head + file), gates)
        == replace(default_options, **changed)
        != default_options
    )
