"""Clusters from stored objects: settings, notes and estimated run times."""

from dataclasses import replace
from typing import Any

import pytest

from admitq.asking.sources import NODES_UNKNOWN, observe_objects, suppose_manifests
from admitq.asking.stored_objects import ObjectSorter, SourceError, StoredObjects
from admitq.core.asking.run_times import RunTimeEstimate, RunTimeSource
from admitq.core.model import SECOND, ObjectKey
from admitq.translate.read_options import ReadOptions
from admitq.translate.workloads import read_workload
from admitq_api.labels import GROUPS, names_for
from tests.unit.controllers.builders import (
    NAMES,
    condition,
    instant,
    local_queue,
    reserved,
    timestamp,
    workload,
)

CONFIGURATION = f"apiVersion: {NAMES.config_api_version}\nkind: Configuration\napiGroup: {NAMES.group}\n"
FAIR = f"{CONFIGURATION}fairSharing: {{preemptionStrategies: [LessThanInitialShare]}}\n"
ASSIGNED = {"name": "main", "count": 3, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}}
ADMISSION = {"clusterQueue": "cq", "podSetAssignments": [ASSIGNED]}


def cluster_queue() -> dict[str, Any]:
    resources = [{"name": "cpu", "nominalQuota": 4}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    return {"metadata": {"name": "cq", "uid": "uid-cq", "creationTimestamp": timestamp(0)}, "spec": spec}


def own(name: str, obj: dict[str, Any], owner: str = "") -> dict[str, Any]:
    owners = [{"kind": "TrainJob", "name": owner, "uid": f"uid-{owner}"}] if owner else []
    metadata = {**obj["metadata"], "name": name, "uid": f"uid-{name}", "ownerReferences": owners}
    return {**obj, "metadata": metadata}


def run(name: str, seconds: int) -> dict[str, Any]:
    """Return a Workload that was admitted for so many seconds and has finished."""
    ended = condition("Finished", True, "Succeeded", since=100 + seconds)
    return own(name, reserved(condition("Admitted", True, "Admitted", since=100), ended, admission=ADMISSION))


def objects(*workloads: dict[str, Any], others: tuple[dict[str, Any], ...] = ()) -> StoredObjects:
    sorter = ObjectSorter(NAMES)
    sorter.add_observed("resourceflavors", {"metadata": {"name": "f"}, "spec": {}})
    sorter.add_observed("clusterqueues", cluster_queue())
    sorter.add_observed("localqueues", local_queue())
    for each in workloads:
        sorter.add_observed("workloads", each)
    for each in others:
        sorter.add(each)
    return sorter.sorted_objects(instant(600))


def estimate(stored: StoredObjects, name: str) -> RunTimeEstimate:
    (found,) = (each for each in stored.of("workloads") if each["metadata"]["name"] == name)
    return observe_objects(stored).estimate_of(read_workload(found, NAMES, ReadOptions()))


def test_finished_and_running_workloads_are_the_history_of_a_queue() -> None:
    running = own(
        "running", reserved(condition("Admitted", True, "Admitted", since=100), admission=ADMISSION)
    )
    known = estimate(
        objects(run("a", 60), run("b", 60), run("c", 60), running, own("new", workload())), "new"
    )
    assert (known.source, known.samples) == (RunTimeSource.QUEUE, 4)
    assert known.durations == (60 * SECOND, 500 * SECOND)


def test_estimate_of_a_train_job_counts() -> None:
    metadata = {"name": "train", "namespace": "ns", "uid": "uid-train"}
    status = {"trainerStatus": {"estimatedRemainingSeconds": 50, "lastUpdatedTime": timestamp(590)}}
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": metadata,
        "status": status,
    }
    known = estimate(objects(own("w", workload(), "train"), others=(job,)), "w")
    assert (known.source, known.remaining) == (RunTimeSource.OWN_ESTIMATE, 40 * SECOND)


def test_unreadable_workload_is_a_note() -> None:
    cluster = observe_objects(objects(own("bad", workload(spec={"podSets": 7}))))
    assert any(
        note.startswith("workloads/ns/bad is invalid, and counts only in part: ") for note in cluster.notes
    )


@pytest.mark.parametrize(
    ("stored", "given", "is_fair"),
    [(None, None, False), (FAIR, None, True), (FAIR, CONFIGURATION, False), (None, FAIR, True)],
    ids=["defaults", "of the cluster", "given one wins", "given"],
)
def test_settings_are_those_of_the_configuration(
    stored: str | None, given: str | None, is_fair: bool
) -> None:
    cluster = observe_objects(replace(objects(), configuration=stored), given)
    assert (cluster.settings.core.fair_sharing is not None) is is_fair


def test_invalid_configuration_of_the_cluster_is_a_note() -> None:
    cluster = observe_objects(replace(objects(), configuration=f"{CONFIGURATION}unknown: 1\n"))
    assert any("defaults are assumed" in note and "unknown" in note for note in cluster.notes)


def test_invalid_configuration_of_the_caller_is_refused() -> None:
    with pytest.raises(SourceError, match=r"^config\.yaml: unknown: "):
        observe_objects(objects(), f"{CONFIGURATION}unknown: 1\n", "config.yaml")


def test_configuration_for_another_group_is_refused() -> None:
    (other,) = (names_for(group) for group in GROUPS if group != NAMES.group)
    text = f"apiVersion: {other.config_api_version}\nkind: Configuration\napiGroup: {other.group}\n"
    with pytest.raises(SourceError, match=f"is for the API group {other.group}"):
        observe_objects(objects(), text)


def with_topology(*seen: tuple[str, dict[str, Any]]) -> StoredObjects:
    """Return a cluster with a flavor in a topology, a Workload of one pod, and these nodes and pods."""
    sorter = ObjectSorter(NAMES)
    for each in objects(workload(name="w")).observed:
        sorter.add_observed(*each)
    spec = {"topologyName": "hosts"}
    sorter.add_observed("resourceflavors", {"metadata": {"name": "f"}, "spec": spec})
    levels = [{"nodeLabel": "kubernetes.io/hostname"}]
    sorter.add_observed("topologies", {"metadata": {"name": "hosts"}, "spec": {"levels": levels}})
    for plural, obj in seen:
        sorter.add_observed(plural, obj)
    return sorter.sorted_objects(instant(600))


NODE: dict[str, Any] = {
    "metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "n"}},
    "spec": {},
    "status": {
        "allocatable": {"cpu": "4", "memory": "4Gi", "pods": "9"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
POD: dict[str, Any] = {
    "metadata": {"namespace": "ns", "name": "p"},
    "spec": {"nodeName": "n", "containers": [{"resources": {"requests": {"cpu": "4"}}}]},
}


@pytest.mark.parametrize(
    ("seen", "is_placed", "notes"),
    [
        ((), True, (NODES_UNKNOWN,)),
        ((("nodes", NODE),), True, ()),
        ((("nodes", NODE), ("pods", POD)), False, ()),
    ],
    ids=["unknown nodes", "free node", "full node"],
)
def test_known_nodes_decide_about_flavors_with_a_topology(
    seen: tuple[tuple[str, dict[str, Any]], ...], is_placed: bool, notes: tuple[str, ...]
) -> None:
    stored = with_topology(*seen)
    cluster = observe_objects(stored)
    assert [note for note in cluster.notes if "topology" in note] == list(notes)
    key = ObjectKey("ns", "w")
    assert (cluster.state.queries.last_refusal(key) is None) is is_placed
    assert suppose_manifests(replace(cluster, objects=replace(stored, manifests=(MANIFEST,))), "ns")


MANIFEST: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "namespace": "ns", "labels": {NAMES.queue_name: "lq"}},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
}
