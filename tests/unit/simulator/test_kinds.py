"""Jobs of other kinds among the manifests, and what their pods follow from."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from admitq.simulator import InputError
from admitq.simulator.timeline import TimelineEvent
from localcluster.custom_kinds import configured
from tests.unit.integrations.examples import guide_manifests
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
    assert story.of(TimelineEvent.ADMITTED) == admitted
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


WITHOUT_PODS = """\
---
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: bare, namespace: team, labels: {admitq.dev/queue-name: main}}
spec: {mpiReplicaSpecs: {}}
"""


def test_d24_job_without_podsets_is_refused_with_the_field(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"spec\.mpiReplicaSpecs: Required value: describes no pods"):
        plan(tmp_path, SPEC, WORLD + WITHOUT_PODS)


# --- kinds by configuration -------------------------------------------------------------------------


WITH_MEMORY = WORLD.replace("[cpu]", "[cpu, memory]").replace(
    "nominalQuota: 4", "nominalQuota: 4\n            - {name: memory, nominalQuota: 8Gi}"
)


def configuration(custom: list[dict[str, Any]]) -> str:
    """A configuration that tells of these kinds; in one line, so that all its problems stand there."""
    head = {"apiVersion": "config.admitq.dev/v1beta2", "kind": "Configuration"}
    return f"---\n{json.dumps({**head, 'integrations': {'custom': custom}})}\n"


def shown(api_version: str) -> str:
    """The job of this API version that the guide shows, in the world's queue."""
    (job,) = (one for one in guide_manifests() if one.get("apiVersion") == api_version)
    text = yaml.safe_dump({**job, "metadata": {**job["metadata"], "namespace": "team"}})
    return f"---\n{text}".replace("queue-name: default", "queue-name: main")


@pytest.mark.parametrize(
    ("api_version", "story"),
    [
        # A leader of 200m and three workers of 1, of 4 CPU.
        ("example.com/v1", ["0 Submitted training-1", "0 Admitted training-1", "60 Finished training-1"]),
        # A server of 200m and four workers of 1, of which two suffice.
        ("tasks.example.com/v1alpha1", ["0 Submitted tasks-1", "0 Admitted tasks-1", "60 Finished tasks-1"]),
    ],
)
def test_jobs_of_configured_kinds_are_simulated(tmp_path: Path, api_version: str, story: list[str]) -> None:
    world = WITH_MEMORY + shown(api_version) + configuration(configured())
    simulation, told = played(tmp_path, SPEC, world)
    assert told.lines == story
    assert simulation.plan.left_out == {}


def test_a_class_can_name_a_job_of_such_a_kind(tmp_path: Path) -> None:
    spec = """\
        workloads:
          - name: training
            template: {kind: Training, namespace: team, name: training}
            runTime: {constant: 10s}
            arrivals: {at: [0s, 5s]}
    """
    _, story = played(tmp_path, spec, WITH_MEMORY + shown("example.com/v1") + configuration(configured()))
    assert story.of(TimelineEvent.ADMITTED) == ["0 Admitted training-1", "10 Admitted training-2"]


def test_custom_kinds_are_unknown_without_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no workload is ever submitted"):
        plan(tmp_path, SPEC, WORLD + shown("example.com/v1"))


def test_a_kind_that_is_there_already_is_refused_with_its_place(tmp_path: Path) -> None:
    taken = {**configured()[0], "group": "batch", "kind": "Job", "plural": "jobs"}
    with pytest.raises(InputError, match=r"scenario.yaml:\d+: integrations.custom\[0\]: is Job of batch"):
        plan(tmp_path, SPEC, WORLD + shown("example.com/v1") + configuration([taken]))
