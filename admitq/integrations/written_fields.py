"""Which fields of jobs the manager writes, by kind. All other fields are the user's.

An admission policy of the chart rejects every other change that the manager requests, so that a stolen token
of the manager cannot change an image. A kind of the registry that is missing here fails a test.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Free(NamedTuple):
    """A value that may change in any way, come and go."""


class Each(NamedTuple):
    """A list whose elements may change in these fields; none is added and none removed."""

    of: "Fields"


class Entries(NamedTuple):
    """A map whose values may change in these fields; no key is added and none removed."""

    of: "Fields"


class Prefixed(NamedTuple):
    """A map in which entries may change whose keys begin with one of the prefixes."""

    prefixes: tuple[str, ...]


class Created(NamedTuple):
    """A pod template that may change in these fields, and that the manager may create and delete.

    One that it creates has containers with a name, an image and resources only. The images are among those of
    the containers at ``images`` in the object; without a path containers have none.
    """

    of: "Fields"
    images: tuple[str, ...] = ()


class OwnPatches(NamedTuple):
    """A list of patches with managers, of which those of other managers stay as they are.

    Those of the manager of admitq change in pod templates what an admission injects, and nothing else.
    """


Value = Free | Each | Entries | Prefixed | Created | OwnPatches | Mapping[str, "Value"]
Fields = Mapping[str, Value]
"""What may change below each key; all other keys stay as they are. An absent map counts as an empty one."""

FREE: Final = Free()

INJECTED: Final[Fields] = {"nodeSelector": FREE, "tolerations": FREE, "schedulingGates": FREE}
"""What an admission injects into the spec of pods."""

TEMPLATE: Final[Fields] = {"metadata": {"labels": FREE, "annotations": FREE}, "spec": INJECTED}
"""What an admission injects into a pod template."""


def _replicas(field: str) -> Fields:
    return {"runPolicy": {"suspend": FREE}, field: Entries({"template": TEMPLATE})}


_RAY_CLUSTER: Final[Fields] = {
    "headGroupSpec": {"template": TEMPLATE},
    "workerGroupSpecs": Each({"template": TEMPLATE}),
}


_RAY_JOB_IMAGES: Final = ("spec", "rayClusterSpec", "headGroupSpec", "template", "spec", "containers")

_SPARK_ROLE: Final[Fields] = {
    "labels": FREE,
    "annotations": FREE,
    "nodeSelector": FREE,
    "tolerations": FREE,
    "template": Created({"spec": {"schedulingGates": FREE}}),
}


SPEC: Final[Mapping[str, Fields]] = {
    "batch/job": {
        "suspend": FREE,
        # Partial admission starts a Job with fewer pods.
        "parallelism": FREE,
        "completions": FREE,
        "template": TEMPLATE,
    },
    "jobset.x-k8s.io/jobset": {
        "suspend": FREE,
        "replicatedJobs": Each({"template": {"spec": {"template": TEMPLATE}}}),
    },
    "ray.io/raycluster": {"suspend": FREE, **_RAY_CLUSTER},
    "ray.io/rayjob": {
        "suspend": FREE,
        "rayClusterSpec": _RAY_CLUSTER,
        "submitterPodTemplate": Created(TEMPLATE, images=_RAY_JOB_IMAGES),
    },
    "ray.io/rayservice": {"rayClusterConfig": {"suspend": FREE, **_RAY_CLUSTER}},
    "trainer.kubeflow.org/trainjob": {"suspend": FREE, "runtimePatches": OwnPatches()},
    "kubeflow.org/mpijob": _replicas("mpiReplicaSpecs"),
    "kubeflow.org/tfjob": _replicas("tfReplicaSpecs"),
    "kubeflow.org/pytorchjob": _replicas("pytorchReplicaSpecs"),
    "kubeflow.org/xgboostjob": _replicas("xgbReplicaSpecs"),
    "kubeflow.org/paddlejob": _replicas("paddleReplicaSpecs"),
    "kubeflow.org/jaxjob": _replicas("jaxReplicaSpecs"),
    "workload.codeflare.dev/appwrapper": {"suspend": FREE, "components": Each({"podSetInfos": FREE})},
    "sparkoperator.k8s.io/sparkapplication": {
        "suspend": FREE,
        "driver": _SPARK_ROLE,
        "executor": _SPARK_ROLE,
        "sparkConf": Prefixed(
            ("spark.kubernetes.driver.node.selector.", "spark.kubernetes.executor.node.selector.")
        ),
    },
    "pod": INJECTED,
}
"""The fields of the spec that the manager writes, by framework.

It never writes kinds that only have their pods queue."""

STATUS: Final[Mapping[str, Fields]] = {
    # A stop takes the start time back, so that the template may change.
    "batch/job": {"startTime": FREE},
    # Why a pod is stopped; failure recovery declares a pod failed.
    "pod": {"conditions": FREE, "phase": FREE},
}
"""The fields of the status that the manager writes, by framework."""
