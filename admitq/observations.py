"""How objects of the API become events of the core, kind by kind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from admitq import translate
from admitq.core import events as happened
from admitq.integrations.paths import Object
from admitq_api.labels import Names


@dataclass(frozen=True, slots=True)
class Observation:
    """How objects of one resource become events of the core."""

    changed: Callable[[Object], happened.Event]
    deleted: Callable[[Object], happened.Event]


def observations(names: Names, how: translate.Reading) -> Mapping[str, Observation]:
    """The observation of every kind that decisions depend on, by the resource's plural."""

    def name(obj: Object) -> str:
        return obj["metadata"]["name"]

    return {
        "clusterqueues": Observation(
            lambda obj: happened.ClusterQueueChanged(translate.cluster_queue(obj)),
            lambda obj: happened.ClusterQueueDeleted(name(obj)),
        ),
        "cohorts": Observation(
            lambda obj: happened.CohortChanged(translate.cohort(obj)),
            lambda obj: happened.CohortDeleted(name(obj)),
        ),
        "localqueues": Observation(
            lambda obj: happened.LocalQueueChanged(translate.local_queue(obj)),
            lambda obj: happened.LocalQueueDeleted(translate.key_of(obj)),
        ),
        "resourceflavors": Observation(
            lambda obj: happened.ResourceFlavorChanged(translate.resource_flavor(obj)),
            lambda obj: happened.ResourceFlavorDeleted(name(obj)),
        ),
        "admissionchecks": Observation(
            lambda obj: happened.AdmissionCheckChanged(translate.admission_check(obj)),
            lambda obj: happened.AdmissionCheckDeleted(name(obj)),
        ),
        "topologies": Observation(
            lambda obj: happened.TopologyChanged(name(obj)),
            lambda obj: happened.TopologyDeleted(name(obj)),
        ),
        "namespaces": Observation(
            lambda obj: happened.NamespaceChanged(
                name(obj), translate.labels_of(obj["metadata"].get("labels"))
            ),
            lambda obj: happened.NamespaceDeleted(name(obj)),
        ),
        "limitranges": Observation(
            lambda obj: happened.LimitRangeChanged(translate.key_of(obj), translate.limit_range(obj)),
            lambda obj: happened.LimitRangeDeleted(translate.key_of(obj)),
        ),
        "runtimeclasses": Observation(
            lambda obj: happened.RuntimeClassChanged(name(obj), translate.overhead(obj)),
            lambda obj: happened.RuntimeClassDeleted(name(obj)),
        ),
        "workloads": Observation(
            lambda obj: happened.WorkloadChanged(translate.workload(obj, names, how)),
            lambda obj: happened.WorkloadDeleted(translate.key_of(obj), obj["metadata"]["uid"]),
        ),
    }
