"""Manifests of the API group are stored or refused as by the API server."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from admitq.core.events import ClusterQueueChanged
from admitq.manifests.api_server import store
from admitq.manifests.documents import Document, read_text
from admitq.simulator import InputError, SimulationPlan, read
from admitq_api.labels import names_for
from tests.unit.simulator.stage import WORLD, plan, scenario

NAMES = names_for("kueue.x-k8s.io")
KUBECTL = (Path(__file__).parent / "cases" / "kueue-v1beta1.yaml").read_text()
LOCAL_QUEUE = "kueue.x-k8s.io/v1beta1\n  kind: LocalQueue"
CLASS = "workloads: [{name: a, queue: team/main, requests: {cpu: 1}, runTime: 1m}]"


def read_all(folder: Path, manifests: str, spec: str = CLASS, group: str = "admitq.dev") -> SimulationPlan:
    path = folder / "scenario.yaml"
    path.write_text(scenario(f"manifests: [manifests.yaml]\n{spec}").replace("admitq.dev", group))
    (folder / "manifests.yaml").write_text(manifests)
    return read([path])


def refusal(folder: Path, manifests: str, spec: str = CLASS) -> str:
    with pytest.raises(InputError) as error:
        read_all(folder, manifests, spec)
    return str(error.value).replace(f"{folder}/", "")


def document(version: str, kind: str, fields: str, name: str = "one") -> Document:
    head = f"apiVersion: kueue.x-k8s.io/{version}\nkind: {kind}\nmetadata: {{name: {name}}}\n"
    return read_text(head + fields, "file.yaml")[0]


def queue_of(plan: SimulationPlan) -> Any:
    (queue,) = [event.cluster_queue for event in plan.start if isinstance(event, ClusterQueueChanged)]
    return queue


@pytest.mark.parametrize("group", ["admitq.dev", "kueue.x-k8s.io"])
def test_kubectl_output_of_v1beta1_objects_is_read(tmp_path: Path, group: str) -> None:
    plan = read_all(tmp_path, KUBECTL, group=group)
    assert plan.names.group == "kueue.x-k8s.io"
    assert (queue_of(plan).name, queue_of(plan).cohort) == ("queue", "all")
    assert len(plan.sources) == 1


def test_v1beta1_and_v1beta2_manifests_are_read_as_the_same_queue(tmp_path: Path) -> None:
    newer = KUBECTL.replace("kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2")
    newer = newer.replace("    cohort: all", "    cohortName: all")
    newer = newer.replace("whenCanBorrow: Borrow", "whenCanBorrow: MayStopSearch")
    assert queue_of(read_all(tmp_path, newer)) == queue_of(read_all(tmp_path, KUBECTL))


def test_objects_of_two_versions_are_read_together(tmp_path: Path) -> None:
    newer = "kueue.x-k8s.io/v1beta2\n  kind: LocalQueue"
    read_all(tmp_path, KUBECTL.replace(LOCAL_QUEUE, newer))


def test_object_of_other_api_group_is_refused(tmp_path: Path) -> None:
    other = KUBECTL.replace(LOCAL_QUEUE, "admitq.dev/v1beta2\n  kind: LocalQueue")
    message = "apiVersion: write kueue.x-k8s.io/v1beta2: all objects must have one API group"
    assert message in refusal(tmp_path, other)


def test_unknown_version_is_refused(tmp_path: Path) -> None:
    unknown = KUBECTL.replace(LOCAL_QUEUE, "kueue.x-k8s.io/v1\n  kind: LocalQueue")
    message = "apiVersion: kueue.x-k8s.io has no version v1: use v1beta2 or v1beta1"
    assert message in refusal(tmp_path, unknown)


def test_patch_of_v1beta1_object_has_fields_of_v1beta1(tmp_path: Path) -> None:
    change = "changes: [{at: 1m, patch: {kind: ClusterQueue, name: queue, patch: {spec: {cohort: other}}}}]"
    (_, event), *_ = read_all(tmp_path, KUBECTL, f"{CLASS}\n{change}").changes
    assert isinstance(event, ClusterQueueChanged)
    assert event.cluster_queue.cohort == "other"


def test_validation_error_names_file_object_field_and_message(tmp_path: Path) -> None:
    assert refusal(tmp_path, KUBECTL.replace("    cohort: all\n", "")) == (
        "manifests.yaml:37: ClusterQueue queue: items[0].spec.resourceGroups: "
        "borrowingLimit must be nil when cohort is empty"
    )


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (
            "ClusterQueue",
            "spec: {preemption: {reclaimWithinCohort: Never, borrowWithinCohort: {policy: LowerPriority}}}",
            "spec.preemption.reclaimWithinCohort: reclaimWithinCohort must not be Never when ",
        ),
        (
            "ClusterQueue",
            "spec: {queueingStrategy: Fastest}",
            'spec.queueingStrategy: "Fastest": must be one of StrictFIFO, BestEffortFIFO',
        ),
        ("ClusterQueue", "spec: {cohort: x}", "spec.cohort: unknown field: did you mean cohortName?"),
        ("Cohort", "spec: {parentName: Upper_Case}", 'spec.parentName: "Upper_Case": must match '),
        (
            "Cohort",
            "spec: {fairSharing: {weight: 1n}}",
            "weight: weight must be 0, or greater than",
        ),
        (
            "Cohort",
            "spec: {fairSharing: {weight: [1]}}",
            "spec.fairSharing.weight: [1]: must be a whole",
        ),
        (
            "Topology",
            "spec: {levels: [{nodeLabel: a}, {nodeLabel: a}]}",
            "levels: levels must be unique",
        ),
        ("Topology", "spec: {levels: []}", "spec.levels: []: must have at least 1 items"),
        (
            "ResourceFlavor",
            "spec: {tolerations: [{key: a, operator: Exists, value: b}]}",
            "spec.tolerations[0].value: value must be empty when operator is Exists",
        ),
        ("ResourceFlavor", "spec: {topologyName: rack}", "spec.nodeLabels"),
        ("WorkloadPriorityClass", "value: 3000000000", "value: 3000000000: must be a"),
        ("WorkloadPriorityClass", "", "value: is required"),
        ("Workload", "spec: {podSets: []}", "spec.podSets: []: must have at least 1 items"),
    ],
)
def test_object_that_api_server_would_refuse_is_refused(kind: str, fields: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        store(document("v1beta2", kind, fields), NAMES)
    assert message in str(error.value)
    assert str(error.value).startswith("file.yaml:")
    assert f": {kind} one: " in str(error.value)


def test_object_is_validated_by_schema_of_its_version() -> None:
    with pytest.raises(InputError, match=r"spec.cohortName: unknown field: did you mean cohort\?"):
        store(document("v1beta1", "ClusterQueue", "spec: {cohortName: x}"), NAMES)


@pytest.mark.parametrize("weight", ["0", '"0"', "2", "500m", '"1.5"'])
def test_valid_weight_is_stored(weight: str) -> None:
    stored = store(document("v1beta2", "Cohort", f"spec: {{fairSharing: {{weight: {weight}}}}}"), NAMES)
    assert "weight" in stored.value["spec"]["fairSharing"]


def test_stored_object_has_defaults_and_no_status() -> None:
    stored = store(document("v1beta2", "ClusterQueue", "spec: {preemption: {}}\nstatus: {key: value}"), NAMES)
    assert "status" not in stored.value
    preemption: Mapping[str, Any] = stored.value["spec"]["preemption"]
    assert (preemption["reclaimWithinCohort"], preemption["withinClusterQueue"]) == ("Never", "Never")


def test_v1beta1_object_is_stored_as_v1beta2() -> None:
    stored = store(document("v1beta1", "ClusterQueue", "spec: {cohort: all}"), NAMES).value
    assert (stored["apiVersion"], stored["spec"]["cohortName"]) == ("kueue.x-k8s.io/v1beta2", "all")


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_update_of_immutable_field_is_refused(version: str) -> None:
    old = store(document("v1beta2", "LocalQueue", "spec: {clusterQueue: a}"), NAMES)
    store(document(version, "LocalQueue", "spec: {clusterQueue: a}"), NAMES, old)
    with pytest.raises(InputError, match=r"LocalQueue one: spec.clusterQueue: \w+ is immutable"):
        store(document(version, "LocalQueue", "spec: {clusterQueue: b}"), NAMES, old)


def test_change_of_immutable_field_during_run_is_refused(tmp_path: Path) -> None:
    spec = f"""
        {CLASS}
        changes:
          - at: 1m
            patch: {{kind: LocalQueue, namespace: team, name: main, patch: {{spec: {{clusterQueue: other}}}}}}
        """
    with pytest.raises(InputError, match=r"LocalQueue main: .*clusterQueue is immutable"):
        plan(tmp_path, spec, WORLD)


def test_every_item_of_raw_list_is_a_document() -> None:
    text = yaml.safe_dump({"kind": "ClusterQueueList", "items": [{"kind": "ClusterQueue"}]})
    assert [item.value["kind"] for item in read_text(text, "file.yaml")] == ["ClusterQueue"]
