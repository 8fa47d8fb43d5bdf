"""``kubectl admitq whatif`` about Nodes: their room decides where flavors have a topology."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from admitq.plugin.application import run
from tests.unit.plugin.test_whatif import WORLD, job

TOPOLOGY = """\
---
apiVersion: admitq.dev/v1beta2
kind: Topology
metadata: {name: hosts}
spec: {levels: [{nodeLabel: kubernetes.io/hostname}]}
"""


def node(name: str = "n", cpu: int | None = 4, **spec: Any) -> str:
    status = {} if cpu is None else {"status": {"allocatable": {"cpu": cpu, "pods": 10}}}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"pool": "a"}},
            "spec": spec,
            **status,
        }
    )


def world(folder: Path, present: str) -> Path:
    """A job runs with 3 CPUs, and another one waits for 2. The quota suffices for both, a node for one."""
    flavor = "metadata: {name: f}\n"
    text = WORLD.replace(
        flavor, f"{flavor}spec: {{topologyName: hosts, nodeLabels: {{pool: a}}}}\n", 1
    ).replace("nominalQuota: 4", "nominalQuota: 8")
    path = folder / "world.yaml"
    path.write_text(f"{text}{TOPOLOGY}---\n{present}{job('running', 3)}{job('waiting', 2)}")
    return path


TAINT = {"key": "broken", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("present", "changed", "admitted"),
    [
        pytest.param(node(), node("new"), 1, id="new node"),
        pytest.param(node(), node(cpu=8), 1, id="node with more room"),
        pytest.param(node(), node(cpu=8, unschedulable=True), 0, id="cordoned node"),
        pytest.param(node(), node("new", taints=[TAINT]), 0, id="tainted node"),
        pytest.param(node(), node("new", cpu=None), 0, id="new node without status"),
        pytest.param(node(cpu=8, taints=[TAINT]), node(cpu=None), 2, id="changed node keeps its status"),
    ],
)
def test_manifest_of_a_node_counts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    present: str,
    changed: str,
    admitted: int,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    path = tmp_path / "node.yaml"
    path.write_text(changed)
    assert run(["whatif", "--from", str(world(tmp_path, present)), "-f", str(path)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    lines = [line.strip() for line in printed.out.splitlines()]
    shown = [line for line in lines if " in ClusterQueue cq, " in line]
    assert len(shown) == admitted
    assert ("Admitted:" in lines) is bool(admitted)
