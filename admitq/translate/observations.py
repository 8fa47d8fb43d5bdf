"""Conversion of API objects to events of the core, for each kind."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from admitq.core import events as happened
from admitq.translate.admission_checks import read_admission_check
from admitq.translate.cluster_queues import read_cluster_queue, read_quarantined_cluster_queue
from admitq.translate.cohorts import read_cohort
from admitq.translate.limit_ranges import read_limit_range
from admitq.translate.local_queues import read_local_queue
from admitq.translate.metadata import key_of, read_labels
from admitq.translate.nodes import read_node
from admitq.translate.pods_of_others import read_pod_of_others
from admitq.translate.read_options import ReadOptions
from admitq.translate.resource_flavors import read_resource_flavor
from admitq.translate.runtime_classes import read_overhead
from admitq.translate.topologies import read_levels
from admitq.translate.workloads import read_quota_holder, read_workload
from admitq_api.json_objects import JsonObject
from admitq_api.labels import Names
from admitq_api.stored_fields import MalformedField

READ_ERRORS: Final = (MalformedField, KeyError, TypeError, ValueError, AttributeError)
"""Exceptions of reading an object with an unexpected structure."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The functions that convert objects of one resource to events of the core."""

    changed: Callable[[JsonObject], happened.Event]
    deleted: Callable[[JsonObject], happened.Event]
    quarantined: Callable[[JsonObject], happened.Event] | None = None
    """Converts a reduced quarantined object; None if the kind has no reduced form. Raises exceptions as
    ``changed``."""


def describe_read_error(error: Exception) -> str:
    """Return what is wrong with an object that cannot be read."""
    return str(error) if isinstance(error, MalformedField) else f"unreadable: {error!r}"


def quarantined_event(observation: Observation, obj: JsonObject) -> happened.Event:
    """Return the event by which the core observes a quarantined object: a reduced object, or its deletion.

    The quota that a Workload holds still counts, and so do the quota and the cohort of a ClusterQueue.
    """
    if observation.quarantined is not None:
        with suppress(*READ_ERRORS):
            return observation.quarantined(obj)
    return observation.deleted(obj)


def observations(names: Names, how: ReadOptions) -> Mapping[str, Observation]:
    """Return the conversions of all kinds on which decisions depend, by the plural of the resource."""

    def name(obj: JsonObject) -> str:
        return obj["metadata"]["name"]

    def pod_changed(obj: JsonObject) -> happened.Event:
        pod, key = read_pod_of_others(obj, names), key_of(obj)
        return happened.PodOfOthersDeleted(key) if pod is None else happened.PodOfOthersChanged(key, pod)

    return {
        "clusterqueues": Observation(
            lambda obj: happened.ClusterQueueChanged(read_cluster_queue(obj)),
            lambda obj: happened.ClusterQueueDeleted(name(obj)),
            lambda obj: happened.ClusterQueueChanged(read_quarantined_cluster_queue(obj)),
        ),
        "cohorts": Observation(
            lambda obj: happened.CohortChanged(read_cohort(obj)),
            lambda obj: happened.CohortDeleted(name(obj)),
        ),
        "localqueues": Observation(
            lambda obj: happened.LocalQueueChanged(read_local_queue(obj)),
            lambda obj: happened.LocalQueueDeleted(key_of(obj)),
        ),
        "resourceflavors": Observation(
            lambda obj: happened.ResourceFlavorChanged(read_resource_flavor(obj)),
            lambda obj: happened.ResourceFlavorDeleted(name(obj)),
        ),
        "admissionchecks": Observation(
            lambda obj: happened.AdmissionCheckChanged(read_admission_check(obj)),
            lambda obj: happened.AdmissionCheckDeleted(name(obj)),
        ),
        "topologies": Observation(
            lambda obj: happened.TopologyChanged(name(obj), read_levels(obj)),
            lambda obj: happened.TopologyDeleted(name(obj)),
        ),
        "nodes": Observation(
            lambda obj: happened.NodeChanged(read_node(obj)),
            lambda obj: happened.NodeDeleted(name(obj)),
        ),
        "pods": Observation(pod_changed, lambda obj: happened.PodOfOthersDeleted(key_of(obj))),
        "namespaces": Observation(
            lambda obj: happened.NamespaceChanged(name(obj), read_labels(obj["metadata"].get("labels"))),
            lambda obj: happened.NamespaceDeleted(name(obj)),
        ),
        "limitranges": Observation(
            lambda obj: happened.LimitRangeChanged(key_of(obj), read_limit_range(obj)),
            lambda obj: happened.LimitRangeDeleted(key_of(obj)),
        ),
        "runtimeclasses": Observation(
            lambda obj: happened.RuntimeClassChanged(name(obj), read_overhead(obj)),
            lambda obj: happened.RuntimeClassDeleted(name(obj)),
        ),
        "workloads": Observation(
            lambda obj: happened.WorkloadChanged(read_workload(obj, names, how)),
            lambda obj: happened.WorkloadDeleted(key_of(obj), obj["metadata"]["uid"]),
            lambda obj: happened.WorkloadChanged(read_quota_holder(obj)),
        ),
    }
