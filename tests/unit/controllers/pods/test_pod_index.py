"""The index of pods by the Workload that they belong to."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.controllers.pods.pod_index import PodIndex, belongs_to, may_run
from tests.unit.controllers.builders import NAMES, timestamp, workload

# Names and UIDs share their values: a value of one field must not match another field.
VALUES = st.sampled_from(["", "a", "b", "c"])
OWNERS = st.lists(st.fixed_dictionaries({"uid": VALUES, "controller": st.booleans()}), max_size=2)
MARKS = st.dictionaries(st.sampled_from([NAMES.workload, NAMES.workload_slice_name]), VALUES)
LABELS = st.dictionaries(st.sampled_from([NAMES.job_uid, NAMES.podset, "app"]), VALUES)


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": draw(VALUES), "namespace": "ns", "uid": draw(VALUES)}
    parts = {"annotations": MARKS, "labels": LABELS, "ownerReferences": OWNERS}
    metadata |= {key: draw(part) for key, part in parts.items() if draw(st.booleans())}
    return {"metadata": metadata, "status": {"phase": draw(st.sampled_from(["Running", "Failed"]))}}


@st.composite
def workloads(draw: st.DrawFn) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": draw(VALUES), "ownerReferences": draw(OWNERS)}
    return workload(metadata={**metadata, "annotations": draw(MARKS), "labels": draw(LABELS)})


@given(st.lists(st.lists(pods(), max_size=5), max_size=3), workloads())
def test_index_finds_the_pods_that_belong_to_a_workload_and_may_run(
    pages: list[list[dict[str, Any]]], of: dict[str, Any]
) -> None:
    index = PodIndex(NAMES)
    for page in pages:
        index.add(page)
    running = [pod_ for page in pages for pod_ in page if may_run(pod_, NAMES)]
    expected = [pod_["metadata"] for pod_ in running if belongs_to(pod_, of, NAMES)]
    identified = [{key: pod_[key] for key in ("name", "namespace", "uid")} for pod_ in expected]
    indexed = [pod_["metadata"] for pod_ in index.of(of)]
    assert [{key: pod_[key] for key in ("name", "namespace", "uid")} for pod_ in indexed] == identified
    assert len(index.pods) == len(running)


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"app": "job-j-1"}},
        {"labels": {NAMES.workload: "job-j-1"}},
        {"labels": {"app": "chain"}},
        {"annotations": {NAMES.workload: "uid-j"}},
        {"annotations": {NAMES.workload: "chain", NAMES.workload_slice_name: "job-j-1"}},
        {"annotations": {"example.com/job": "uid-j"}},
        {"uid": "job-j-1"},
        {"ownerReferences": [{"uid": "job-j-1"}]},
        {"ownerReferences": [{"name": "j"}]},
    ],
)
def test_pod_does_not_belong_to_workload_by_value_of_another_field(metadata: dict[str, Any]) -> None:
    of = workload(metadata={"annotations": {NAMES.workload_slice_name: "chain"}})
    pod_ = {"metadata": {"name": "p", "creationTimestamp": timestamp(0), **metadata}}
    assert not belongs_to(pod_, of, NAMES)
