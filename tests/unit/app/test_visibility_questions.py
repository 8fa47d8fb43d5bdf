"""What the visibility API keeps to answer questions."""

from typing import Any

import pytest

from admitq.app.visibility_questions import TRAIN_JOB, StoredObjects, keep_reported_estimate
from admitq.manifests.objects import ObjectId
from admitq.runtime.store import Store


def train_job(**status: Any) -> dict[str, Any]:
    metadata = {"name": "t", "namespace": "ns", "uid": "u", "resourceVersion": "1", "labels": {"a": "b"}}
    return {"metadata": metadata, "spec": {"trainer": {}}, "status": {"conditions": [], **status}}


@pytest.mark.parametrize(
    ("status", "kept"),
    [({}, {}), ({"trainerStatus": {"x": 1}}, {"status": {"trainerStatus": {"x": 1}}})],
)
def test_only_identity_and_reported_estimate_of_a_train_job_are_kept(
    status: dict[str, Any], kept: dict[str, Any]
) -> None:
    metadata = {"name": "t", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    assert keep_reported_estimate(train_job(**status)) == {"metadata": metadata, **kept}


def test_stored_objects_are_found_by_kind() -> None:
    store = Store(TRAIN_JOB)
    store.upsert(train_job())
    stored = StoredObjects([store])
    found = stored.get(ObjectId("TrainJob", "ns", "t"))
    assert found is not None
    assert found["metadata"]["uid"] == "u"
    assert stored.get(ObjectId("TrainJob", "ns", "none")) is None
    assert stored.get(ObjectId("Other", "ns", "t")) is None
    assert [each["metadata"]["name"] for each in stored.of_kind("TrainJob")] == ["t"]
    assert list(stored.of_kind("Other")) == []
