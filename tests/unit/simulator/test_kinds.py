"""Jobs of other kinds among the manifests, and what their pods follow from."""

from pathlib import Path

import pytest

from admitq.simulator import InputError
from admitq.simulator.timeline import Happening
from tests.unit.simulator.stage import WORLD, plan, played

SPEC = "runTime: 1m"

TRAIN_JOB = """\
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: one
  namespace: team
  labels:
    admitq.dev/queue-name: main
spec:
  runtimeRef: {name: torch, kind: %s}
  trainer:
    numNodes: 3
    resourcesPerNode: {requests: {cpu: 2}}
"""
RUNTIME = """\
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: %s
metadata: {name: torch%s}
spec:
  mlPolicy: {torch: {}}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata:
              labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}
            spec: {template: {spec: {containers: [{name: node, image: i}]}}}
"""
SELECTING = """\
---
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: guest, namespace: team, labels: {admitq.dev/queue-name: main}}
spec: {clusterSelector: {ray.io/cluster: there}}
"""


@pytest.mark.parametrize(
    ("kind", "namespace"), [("ClusterTrainingRuntime", ""), ("TrainingRuntime", ", namespace: team")]
)
@pytest.mark.parametrize(("nodes", "admitted"), [(2, ["0 Admitted one-1"]), (3, [])])
def test_a_job_has_the_pods_of_the_runtime_beside_it(
    tmp_path: Path, kind: str, namespace: str, nodes: int, admitted: list[str]
) -> None:
    """Of 4 CPU, at 2 for each node."""
    job = (TRAIN_JOB % kind).replace("numNodes: 3", f"numNodes: {nodes}")
    simulation, story = played(tmp_path, SPEC, WORLD + job + RUNTIME % (kind, namespace))
    assert story.of(Happening.ADMITTED) == admitted
    assert simulation.plan.left_out == {}


@pytest.mark.parametrize(
    ("kind", "runtime", "missing"),
    [
        ("ClusterTrainingRuntime", "", "ClusterTrainingRuntime torch"),
        (
            "TrainingRuntime",
            RUNTIME % ("TrainingRuntime", ", namespace: other"),
            "TrainingRuntime torch in namespace team",
        ),
    ],
)
def test_a_runtime_that_is_not_there_is_asked_for(
    tmp_path: Path, kind: str, runtime: str, missing: str
) -> None:
    with pytest.raises(InputError) as refused:
        plan(tmp_path, SPEC, WORLD + TRAIN_JOB % kind + runtime)
    assert f"spec: {missing} is not among the manifests: add it" in str(refused.value)


def test_a_job_that_makes_no_pods_means_nothing(tmp_path: Path) -> None:
    world = (
        WORLD + SELECTING + TRAIN_JOB % "TrainingRuntime" + RUNTIME % ("TrainingRuntime", ", namespace: team")
    )
    found = plan(tmp_path, SPEC, world)
    assert [source.name for source in found.sources] == ["one"]
    assert found.left_out == {"RayJob (ray.io/v1)": 1}
