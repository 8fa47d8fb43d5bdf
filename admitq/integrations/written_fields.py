"""The fields of jobs that the manager writes, by kind. All other fields belong to users.

An admission policy of the chart rejects all other changes by the manager. So a stolen token of the manager
cannot change an image. A test fails if a registered kind is missing here.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class AnyValue(NamedTuple):
    """A value that may change in any way, and may be added and removed."""


class ListItems(NamedTuple):
    """A list of items that may change in these fields. Items must not be added or removed."""

    item_fields: "WritableFields"


class MapValues(NamedTuple):
    """A map of values that may change in these fields. Keys must not be added or removed."""

    value_fields: "WritableFields"


class PrefixedEntries(NamedTuple):
    """A map of entries that may change if their keys begin with one of the prefixes."""

    prefixes: tuple[str, ...]


class OptionalTemplate(NamedTuple):
    """A pod template that may change in these fields, and that the manager may create and delete.

    The containers of a created template have a name, an image and resources only. The image must be one of
    the containers at ``image_path`` in the object. Without that path, the containers have no image.
    """

    template_fields: "WritableFields"
    image_path: tuple[str, ...] = ()


class OwnPatches(NamedTuple):
    """A list of patches, each with a manager. Patches of other managers must not change.

    The patches of admitq's manager must change only the fields of pod templates that an admission injects.
    """


WritableValue = (
    AnyValue
    | ListItems
    | MapValues
    | PrefixedEntries
    | OptionalTemplate
    | OwnPatches
    | Mapping[str, "WritableValue"]
)
WritableFields = Mapping[str, WritableValue]
"""What may change below each key. Other keys must not change. An absent map counts as empty."""

ANY_VALUE: Final = AnyValue()

INJECTED_SPEC_FIELDS: Final[WritableFields] = {
    "nodeSelector": ANY_VALUE,
    "tolerations": ANY_VALUE,
    "schedulingGates": ANY_VALUE,
}
"""The fields of pod specs that an admission injects."""

INJECTED_TEMPLATE_FIELDS: Final[WritableFields] = {
    "metadata": {"labels": ANY_VALUE, "annotations": ANY_VALUE},
    "spec": INJECTED_SPEC_FIELDS,
}
"""The fields of pod templates that an admission injects."""


def _create_replica_fields(field: str) -> WritableFields:
    return {"runPolicy": {"suspend": ANY_VALUE}, field: MapValues({"template": INJECTED_TEMPLATE_FIELDS})}


_RAY_CLUSTER: Final[WritableFields] = {
    "headGroupSpec": {"template": INJECTED_TEMPLATE_FIELDS},
    "workerGroupSpecs": ListItems({"template": INJECTED_TEMPLATE_FIELDS}),
}


_RAY_JOB_IMAGES: Final = ("spec", "rayClusterSpec", "headGroupSpec", "template", "spec", "containers")

_SPARK_ROLE: Final[WritableFields] = {
    "labels": ANY_VALUE,
    "annotations": ANY_VALUE,
    "nodeSelector": ANY_VALUE,
    "tolerations": ANY_VALUE,
    "template": OptionalTemplate({"spec": {"schedulingGates": ANY_VALUE}}),
}


SPEC_FIELDS: Final[Mapping[str, WritableFields]] = {
    "batch/job": {
        "suspend": ANY_VALUE,
        # Partial admission starts a Job with fewer pods.
        "parallelism": ANY_VALUE,
        "completions": ANY_VALUE,
        "template": INJECTED_TEMPLATE_FIELDS,
    },
    "jobset.x-k8s.io/jobset": {
        "suspend": ANY_VALUE,
        "replicatedJobs": ListItems({"template": {"spec": {"template": INJECTED_TEMPLATE_FIELDS}}}),
    },
    "ray.io/raycluster": {"suspend": ANY_VALUE, **_RAY_CLUSTER},
    "ray.io/rayjob": {
        "suspend": ANY_VALUE,
        "rayClusterSpec": _RAY_CLUSTER,
        "submitterPodTemplate": OptionalTemplate(INJECTED_TEMPLATE_FIELDS, image_path=_RAY_JOB_IMAGES),
    },
    "ray.io/rayservice": {"rayClusterConfig": {"suspend": ANY_VALUE, **_RAY_CLUSTER}},
    "trainer.kubeflow.org/trainjob": {"suspend": ANY_VALUE, "runtimePatches": OwnPatches()},
    "kubeflow.org/mpijob": _create_replica_fields("mpiReplicaSpecs"),
    "kubeflow.org/tfjob": _create_replica_fields("tfReplicaSpecs"),
    "kubeflow.org/pytorchjob": _create_replica_fields("pytorchReplicaSpecs"),
    "kubeflow.org/xgboostjob": _create_replica_fields("xgbReplicaSpecs"),
    "kubeflow.org/paddlejob": _create_replica_fields("paddleReplicaSpecs"),
    "kubeflow.org/jaxjob": _create_replica_fields("jaxReplicaSpecs"),
    "workload.codeflare.dev/appwrapper": {
        "suspend": ANY_VALUE,
        "components": ListItems({"podSetInfos": ANY_VALUE}),
    },
    "sparkoperator.k8s.io/sparkapplication": {
        "suspend": ANY_VALUE,
        "driver": _SPARK_ROLE,
        "executor": _SPARK_ROLE,
        "sparkConf": PrefixedEntries(
            ("spark.kubernetes.driver.node.selector.", "spark.kubernetes.executor.node.selector.")
        ),
    },
    "pod": INJECTED_SPEC_FIELDS,
}
"""The fields of the spec that the manager writes, by framework.

The manager never writes kinds that queue their pods instead of the object itself."""

STATUS_FIELDS: Final[Mapping[str, WritableFields]] = {
    # A stop removes the start time, so that the template may change.
    "batch/job": {"startTime": ANY_VALUE},
    # A condition says why a pod is stopped. Failure recovery sets the phase to Failed.
    "pod": {"conditions": ANY_VALUE, "phase": ANY_VALUE},
}
"""The fields of the status that the manager writes, by framework."""
