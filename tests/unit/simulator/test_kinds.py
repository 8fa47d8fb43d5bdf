"""Jobs of other kinds in the manifests, and the objects that define their pods."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from admitq.simulator import InputError
from admitq.simulator.timeline import TimelineEvent
from localcluster.custom_kinds import configured
from tests.unit.integrations.examples import guide_manifests
from tests.unit.simulator.stage import WORLD, plan, run_scenario

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
JOB_WITH_CLUSTER_SELECTOR = """\
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
def test_train_job_has_pods_of_runtime_in_manifests(
    tmp_path: Path, kind: str, namespace: str, nodes: int, admitted: list[str]
) -> None:
    """The quota is 4 CPU, and each node needs 2."""
    job = (TRAIN_JOB % kind).replace("numNodes: 3", f"numNodes: {nodes}")
    simulation, timeline = run_scenario(tmp_path, SPEC, WORLD + job + RUNTIME % (kind, namespace))
    assert timeline.lines_of(TimelineEvent.ADMITTED) == admitted
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
def test_train_job_without_runtime_in_manifests_is_refused(
    tmp_path: Path, kind: str, runtime: str, missing: str
) -> None:
    with pytest.raises(InputError) as error:
        plan(tmp_path, SPEC, WORLD + TRAIN_JOB % kind + runtime)
    assert f"spec: {missing} does not exist, or is not known: add its manifest" in str(error.value)


def test_job_that_creates_no_pods_is_left_out(tmp_path: Path) -> None:
    world = (
        WORLD
        + JOB_WITH_CLUSTER_SELECTOR
        + TRAIN_JOB % "TrainingRuntime"
        + RUNTIME % ("TrainingRuntime", ", namespace: team")
    )
    simulation_plan = plan(tmp_path, SPEC, world)
    assert [source.name for source in simulation_plan.sources] == ["one"]
    assert simulation_plan.left_out == {"RayJob (ray.io/v1)": 1}


WITHOUT_PODS = """\
---
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: bare, namespace: team, labels: {admitq.dev/queue-name: main}}
spec: {mpiReplicaSpecs: {}}
"""


def test_d24_job_without_podsets_is_refused_with_its_field(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"spec\.mpiReplicaSpecs: Required value: describes no pods"):
        plan(tmp_path, SPEC, WORLD + WITHOUT_PODS)


# --- custom kinds of the configuration --------------------------------------------------------------


WITH_MEMORY = WORLD.replace("[cpu]", "[cpu, memory]").replace(
    "nominalQuota: 4", "nominalQuota: 4\n            - {name: memory, nominalQuota: 8Gi}"
)


def configuration(custom: list[dict[str, Any]]) -> str:
    """Return a configuration with custom kinds. It is one line, so that all its errors name that line."""
    head = {"apiVersion": "config.admitq.dev/v1beta2", "kind": "Configuration"}
    return f"---\n{json.dumps({**head, 'integrations': {'custom': custom}})}\n"


def guide_job(api_version: str) -> str:
    """Return the job of this API version from the guide, in the queue of the world."""
    (job,) = (manifest for manifest in guide_manifests() if manifest.get("apiVersion") == api_version)
    text = yaml.safe_dump({**job, "metadata": {**job["metadata"], "namespace": "team"}})
    return f"---\n{text}".replace("queue-name: default", "queue-name: main")


@pytest.mark.parametrize(
    ("api_version", "lines"),
    [
        # A leader with 200m and three workers with 1 fit into 4 CPU.
        ("example.com/v1", ["0 Submitted training-1", "0 Admitted training-1", "60 Finished training-1"]),
        # A server with 200m and at least two of four workers with 1 fit into 4 CPU.
        ("tasks.example.com/v1alpha1", ["0 Submitted tasks-1", "0 Admitted tasks-1", "60 Finished tasks-1"]),
    ],
)
def test_jobs_of_custom_kinds_are_simulated(tmp_path: Path, api_version: str, lines: list[str]) -> None:
    world = WITH_MEMORY + guide_job(api_version) + configuration(configured())
    simulation, timeline = run_scenario(tmp_path, SPEC, world)
    assert timeline.lines == lines
    assert simulation.plan.left_out == {}


def test_workload_class_may_use_job_of_custom_kind_as_template(tmp_path: Path) -> None:
    spec = """\
        workloads:
          - name: training
            template: {kind: Training, namespace: team, name: training}
            runTime: {constant: 10s}
            arrivals: {at: [0s, 5s]}
    """
    _, timeline = run_scenario(
        tmp_path, spec, WITH_MEMORY + guide_job("example.com/v1") + configuration(configured())
    )
    assert timeline.lines_of(TimelineEvent.ADMITTED) == ["0 Admitted training-1", "10 Admitted training-2"]


def test_job_of_custom_kind_is_left_out_without_configuration(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no workload is ever submitted"):
        plan(tmp_path, SPEC, WORLD + guide_job("example.com/v1"))


def test_custom_kind_that_exists_already_is_refused_with_its_line(tmp_path: Path) -> None:
    batch_job = {**configured()[0], "group": "batch", "kind": "Job", "plural": "jobs"}
    with pytest.raises(InputError, match=r"scenario.yaml:\d+: integrations.custom\[0\]: is Job of batch"):
        plan(tmp_path, SPEC, WORLD + guide_job("example.com/v1") + configuration([batch_job]))
