"""Options of ``whatif`` as manifests and deletions."""

from typing import Any

import pytest

from admitq.manifests.objects import ObjectId
from admitq.plugin.object_edits import apply_edits, read_deletion, read_edits
from admitq.plugin.remedies import CommandError
from admitq_api.json_objects import value_at
from tests.unit.controllers.builders import NAMES

QUEUE = ObjectId("ClusterQueue", "", "cq")
RESOURCES = ("spec", "resourceGroups", 0, "flavors", 0, "resources")
JOBS = [("batch/v1", "Job", "jobs"), ("ray.io/v1", "RayJob", "rayjobs")]


def cluster_queue() -> dict[str, Any]:
    resources = [{"name": "cpu", "nominalQuota": 4}, {"name": "memory", "nominalQuota": "8Gi"}]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "f", "resources": resources}]}]
    metadata = {"name": "cq", "uid": "u", "resourceVersion": "7", "managedFields": [{}]}
    return {"metadata": metadata, "spec": {"cohortName": "all", "resourceGroups": groups}, "status": {}}


STORED: dict[ObjectId, dict[str, Any]] = {
    QUEUE: cluster_queue(),
    ObjectId("LocalQueue", "ns", "lq"): {"metadata": {"name": "lq", "namespace": "ns"}, "spec": {}},
    ObjectId("Workload", "ns", "w"): {"metadata": {"name": "w", "namespace": "ns"}, "spec": {}},
}


def edited(**options: list[str]) -> list[dict[str, Any]]:
    return apply_edits(read_edits("ns", **options), STORED.get, NAMES)


@pytest.mark.parametrize(
    ("option", "text", "path", "value"),
    [
        (
            "quotas",
            "cq:f:cpu=20",
            ("spec", "resourceGroups", 0, "flavors", 0, "resources", 0, "nominalQuota"),
            "20",
        ),
        ("cohorts", "cq=other", ("spec", "cohortName"), "other"),
        ("cohorts", "cq=", ("spec", "cohortName"), None),
        ("stops", "cq/cq", ("spec", "stopPolicy"), "HoldAndDrain"),
        ("stops", "localqueue/lq", ("spec", "stopPolicy"), "HoldAndDrain"),
        ("priorities", "w=100", ("spec", "priority"), 100),
        ("priorities", "w=-1", ("spec", "priority"), -1),
    ],
)
def test_option_changes_one_field_of_the_stored_object(option: str, text: str, path: Any, value: Any) -> None:
    (obj,) = edited(**{option: [text]})
    assert value_at(obj, path) == value


def test_manifest_has_the_kind_and_no_status() -> None:
    (obj,) = edited(stops=["cq/cq"])
    assert set(obj) == {"apiVersion", "kind", "metadata", "spec"}
    assert (obj["apiVersion"], obj["kind"]) == (NAMES.api_version, "ClusterQueue")
    assert obj["metadata"] == {"name": "cq", "uid": "u"}


def test_several_changes_of_an_object_are_one_manifest() -> None:
    (obj,) = edited(quotas=["cq:f:cpu=1", "cq:f:memory=2Gi"], cohorts=["cq=other"])
    resources = obj["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    assert [each["nominalQuota"] for each in resources] == ["1", "2Gi"]
    assert obj["spec"]["cohortName"] == "other"


@pytest.mark.parametrize(
    ("option", "text", "error"),
    [
        ("quotas", "cq:cpu=1", "--quota: 'cq:cpu=1' is not CQ:FLAVOR:RESOURCE=AMOUNT\nWrite, for example, "),
        ("quotas", "cq:f:cpu=much", "--quota: 'much' is not an amount\nAmounts look like 10, 500m or 64Gi."),
        ("quotas", "cq:f:cpu=-1", "--quota: '-1' is not an amount"),
        (
            "quotas",
            "cq:g:cpu=1",
            "--quota: ClusterQueue cq has no quota of cpu in flavor g\nIt has: ",
        ),
        ("quotas", "none:f:cpu=1", "ClusterQueue none does not exist"),
        ("cohorts", "cq", "--cohort: 'cq' is not CQ=COHORT"),
        ("stops", "cq", "--stop: 'cq' is not cq/NAME or lq/NAME"),
        ("stops", "workload/w", "--stop: 'workload/w' is not cq/NAME or lq/NAME"),
        ("stops", "lq/none", "LocalQueue ns/none does not exist"),
        ("priorities", "w", "--priority: 'w' is not WORKLOAD=N"),
        ("priorities", "w=high", "--priority: 'w=high' is not WORKLOAD=N"),
        ("priorities", "w=9999999999", "--priority: 'w=9999999999' is not WORKLOAD=N"),
    ],
)
def test_invalid_option_is_refused_with_its_remedy(option: str, text: str, error: str) -> None:
    with pytest.raises(CommandError) as raised:
        edited(**{option: [text]})
    assert str(raised.value).startswith(error)


@pytest.mark.parametrize(
    ("text", "deletion"),
    [
        ("cq/a", {"apiVersion": NAMES.api_version, "kind": "ClusterQueue", "name": "a"}),
        (
            f"localqueue.{NAMES.group}/a",
            {"apiVersion": NAMES.api_version, "kind": "LocalQueue", "namespace": "ns", "name": "a"},
        ),
        ("job/a", {"apiVersion": "batch/v1", "kind": "Job", "namespace": "ns", "name": "a"}),
        ("RayJobs.ray.io/a", {"apiVersion": "ray.io/v1", "kind": "RayJob", "namespace": "ns", "name": "a"}),
        ("namespace/a", {"apiVersion": "v1", "kind": "Namespace", "name": "a"}),
    ],
)
def test_deletion_names_an_object(text: str, deletion: dict[str, Any]) -> None:
    assert read_deletion(text, "ns", NAMES, JOBS) == deletion


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("job", "--delete: 'job' is not TYPE/NAME\nWrite, for example, --delete job/train."),
        (
            "configmap/a",
            "--delete: 'configmap' is not a type on which decisions depend\nUse a",
        ),
        ("job.ray.io/a", "--delete: 'job.ray.io' is not a type"),
    ],
)
def test_impossible_deletion_is_refused(text: str, error: str) -> None:
    with pytest.raises(CommandError) as raised:
        read_deletion(text, "ns", NAMES, JOBS)
    assert str(raised.value).startswith(error)
