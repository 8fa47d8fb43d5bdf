import asyncio
from dataclasses import replace
from typing import Any

import pytest

from admitq.integrations.base import ChildDifference, Integration, OwnerKind, accept_every_child
from admitq.integrations.kinds.deployment import DEPLOYMENT
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.leaderworkerset import LEADER_WORKER_SET
from admitq.integrations.kinds.mpijob import MPI_JOB
from admitq.integrations.kinds.pod import POD
from admitq.integrations.kinds.statefulset import STATEFUL_SET
from admitq.integrations.ownership import (
    AncestorFinder,
    NestedTooDeep,
    Owner,
    OwnerMissing,
    is_controlled_by,
)
from admitq_api.labels import names_for

NAMES = names_for()

NESTING = replace(JOB, ownership=replace(JOB.ownership, created_kinds=None, compare_child=accept_every_child))
"""A kind of jobs that may own further jobs."""


def an_object(
    name: Any,
    *,
    owner: Any = None,
    queue: Any = None,
    owner_uid: Any = None,
    kind: Any = "Job",
    api_version: Any = "batch/v1",
) -> Any:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": {}}
    if queue:
        metadata["labels"] = {NAMES.queue_name: queue}
    if owner:
        metadata["ownerReferences"] = [
            {
                "apiVersion": api_version,
                "kind": kind,
                "name": owner,
                "uid": owner_uid or f"uid-{owner}",
                "controller": True,
            }
        ]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}


def ancestor_of(obj: Any, *others: Any, kind: Any = NESTING, **options: Any) -> Any:
    world = {other["metadata"]["name"]: other for other in others}

    async def find(owner: Owner) -> Any:
        assert owner.uid
        return world.get(owner.name) if owner.namespace == "ns" else None

    kinds = [kind] if isinstance(kind, Integration) else kind
    found = asyncio.run(AncestorFinder(find, kinds, NAMES, **options).find(obj))
    return found.ancestor and found.ancestor["metadata"]["name"]


def test_an_object_without_controller_has_no_ancestor() -> None:
    assert ancestor_of(an_object("a", queue="q")) is None


def test_the_topmost_queued_ancestor_is_found() -> None:
    chain = [an_object("b", owner="c", queue="q"), an_object("c", queue="q")]
    assert ancestor_of(an_object("a", owner="b"), *chain) == "c"


def test_an_ancestor_without_queue_does_not_manage() -> None:
    assert ancestor_of(an_object("a", owner="b"), an_object("b")) is None
    assert ancestor_of(an_object("a", owner="b"), an_object("b"), without_queue_name=True) == "b"


def test_reference_with_another_uid_finds_no_owner() -> None:
    forged = an_object("a", owner="b", owner_uid="forged")
    assert ancestor_of(forged, an_object("b", queue="q")) is None


def test_reference_to_a_kind_without_such_children_finds_no_owner() -> None:
    assert ancestor_of(an_object("a", owner="b"), an_object("b", queue="q"), kind=JOB) is None


def _unless_made(_job: Any, child: Any, _is_elastic: Any) -> ChildDifference | None:
    return None if child["metadata"]["name"] == "made" else ChildDifference.IDENTITY


def test_reference_to_a_job_that_did_not_create_the_object_finds_no_owner() -> None:
    kind = replace(NESTING, ownership=replace(NESTING.ownership, compare_child=_unless_made))
    assert ancestor_of(an_object("a", owner="b"), an_object("b", queue="q"), kind=kind) is None
    assert ancestor_of(an_object("made", owner="b"), an_object("b", queue="q"), kind=kind) == "b"


def test_object_is_compared_with_each_owner_it_descends_from() -> None:
    def differs_below(_job: Any, obj: Any, _is_elastic: Any) -> ChildDifference | None:
        return None if obj["metadata"]["name"] == "made" else ChildDifference.REQUESTS

    kind = replace(NESTING, ownership=replace(NESTING.ownership, compare_grandchild=differs_below))
    chain = [an_object("b", owner="c"), an_object("c", queue="q")]
    assert ancestor_of(an_object("made", owner="b"), *chain, kind=kind) == "c"
    assert ancestor_of(an_object("forged", owner="b"), *chain, kind=kind) is None
    assert ancestor_of(an_object("child", owner="c"), *chain, kind=kind) == "c"


def test_workers_of_a_leader_worker_set_follow_nothing_and_need_their_marks() -> None:
    """Neither the StatefulSet of workers, controlled by the leader pod, nor the pods do."""
    lws = an_object("l", queue="q")
    leaders = an_object(
        "l-leaders", owner="l", kind="LeaderWorkerSet", api_version=LEADER_WORKER_SET.api_version
    )
    leader = an_object("l-0", owner="l-leaders", kind="StatefulSet", api_version="apps/v1")
    workers = an_object("workers", owner="l-0", kind="Pod", api_version="v1")
    worker = an_object("worker", owner="workers", kind="StatefulSet", api_version="apps/v1")
    workers |= {"apiVersion": "apps/v1", "kind": "StatefulSet"}
    kinds = [
        replace(one, ownership=replace(one.ownership, compare_child=accept_every_child))
        for one in (POD, STATEFUL_SET, LEADER_WORKER_SET)
    ]
    for one in (leader, worker):
        one |= {"apiVersion": "v1", "kind": "Pod"}
    for one in (workers, worker, leader):
        assert ancestor_of(one, lws, leaders, leader, workers, kind=kinds) is None


def test_a_reference_to_an_unknown_kind_ends_the_walk() -> None:
    assert ancestor_of(an_object("a", owner="b", kind="CronJob"), an_object("b", queue="q")) is None


def test_an_external_kind_manages_at_any_depth() -> None:
    robot = OwnerKind.parse("Robot.v1.example.com")
    assert robot == OwnerKind("example.com", "v1", "Robot")
    child = an_object("a", owner="b")
    between = an_object("b", owner="r", kind="Robot", api_version="example.com/v1")
    assert ancestor_of(child, between, an_object("r", queue="q"), external=[robot]) == "r"
    assert ancestor_of(child, between, an_object("r"), external=[robot]) is None
    assert ancestor_of(child, between, an_object("r", queue="q")) is None


def test_a_known_owner_is_followed_and_does_not_manage() -> None:
    between = OwnerKind("apps", "v1", "ReplicaSet")
    kind = replace(NESTING, ownership=replace(NESTING.ownership, intermediate_owners=(between,)))
    child = an_object("a", owner="rs", kind="ReplicaSet", api_version="apps/v1")
    queued = an_object("rs", queue="q")
    assert ancestor_of(child, queued, kind=kind) is None
    assert ancestor_of(child, an_object("rs", owner="b"), an_object("b", queue="q"), kind=kind) == "b"


def test_an_owner_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OwnerMissing):
        ancestor_of(an_object("a", owner="b"))


def test_a_cycle_of_owners_is_an_error() -> None:
    with pytest.raises(NestedTooDeep):
        ancestor_of(an_object("a", owner="b"), an_object("b", owner="a"), an_object("a", owner="b"))


def test_ten_owners_are_followed_and_eleven_are_not() -> None:
    chain = [an_object(f"o{i}", owner=f"o{i + 1}") for i in range(1, 11)]
    tops = an_object("o10", queue="q"), an_object("o11", queue="q")
    assert ancestor_of(an_object("a", owner="o1"), *chain[:9], tops[0]) == "o10"
    with pytest.raises(NestedTooDeep):
        ancestor_of(an_object("a", owner="o1"), *chain, tops[1])


def test_control_is_by_uid_and_not_by_name() -> None:
    owned = an_object("w", owner="b")
    assert is_controlled_by(owned, an_object("b"))
    assert not is_controlled_by(owned, {"metadata": {"name": "b", "uid": "another"}})


def test_b12_job_in_a_job_is_queued_for_its_kind_creates_no_jobs() -> None:
    parent = an_object("parent", queue="q")
    assert ancestor_of(an_object("child", owner="parent", queue="q"), parent, kind=JOB) is None


@pytest.mark.parametrize(("name", "ancestor"), [("m-launcher", "m"), ("another", None)])
def test_b12_job_of_an_mpi_job_follows_it_only_under_the_name_of_its_launcher(
    name: str, ancestor: str | None
) -> None:
    parent = {
        **an_object("m", queue="q"),
        "apiVersion": MPI_JOB.api_version,
        "kind": "MPIJob",
        "spec": {"mpiReplicaSpecs": {"Launcher": {"template": {}}}},
    }
    child = an_object(name, owner="m", kind="MPIJob", api_version=MPI_JOB.api_version, queue="q")
    assert ancestor_of(child, parent, kind=MPI_JOB) == ancestor


# --- owners that did not create what names them ---------------------------------------------------


def lineage(obj: Any, *others: Any, kind: Any, **options: Any) -> Any:
    world = {other["metadata"]["name"]: other for other in others}

    async def find(owner: Owner) -> Any:
        return world.get(owner.name)

    ancestor, claimed, difference = asyncio.run(AncestorFinder(find, [kind], NAMES, **options).find(obj))
    names = (one and one["metadata"]["name"] for one in (ancestor, claimed))
    return (*names, difference)


def test_queued_owner_that_did_not_create_an_object_is_claimed_at_any_height() -> None:
    kind = replace(NESTING, ownership=replace(NESTING.ownership, compare_child=_unless_made))
    forged, between = an_object("a", owner="b"), an_object("b", owner="c")
    queued = an_object("c", queue="q")
    assert lineage(an_object("a", owner="c"), queued, kind=kind) == (None, "c", ChildDifference.IDENTITY)
    assert lineage(forged, between, queued, kind=kind) == (None, "c", ChildDifference.IDENTITY)
    assert lineage(forged, an_object("b"), kind=kind) == (None, None, ChildDifference.IDENTITY)
    # What lies above such an owner and is gone decides nothing.
    assert lineage(forged, between, kind=kind) == (None, None, ChildDifference.IDENTITY)


def test_owner_that_covers_an_object_stays_when_the_owner_itself_is_forged() -> None:
    kind = replace(NESTING, ownership=replace(NESTING.ownership, compare_child=_unless_made))
    made, between = an_object("made", owner="b"), an_object("b", owner="c", queue="q")
    queued = an_object("c", queue="q")
    assert lineage(made, between, queued, kind=kind) == ("b", "c", ChildDifference.IDENTITY)


@pytest.mark.parametrize(("current", "ancestor"), [("made", "b"), ("b", None), (None, None)])
def test_owner_is_read_again_before_an_object_counts_as_forged(current: Any, ancestor: Any) -> None:
    """Its watch may be behind what its controller has seen."""
    read: list[str] = []

    def differs(owner: Any, _child: Any, _is_elastic: Any) -> ChildDifference | None:
        return None if owner["metadata"].get("annotations") else ChildDifference.PODS

    async def read_again(owner: Owner) -> Any:
        read.append(owner.name)
        found = an_object("b", queue="q")
        found["metadata"]["annotations"] = {"is": "current"} if current == "made" else {}
        return found if current else None

    kind = replace(NESTING, ownership=replace(NESTING.ownership, compare_child=differs))
    obj, owner = an_object("a", owner="b"), an_object("b", queue="q")
    assert lineage(obj, owner, kind=kind, read_again=read_again)[0] == ancestor
    assert read == ["b"]
    owner["metadata"]["annotations"] = {"is": "current"}
    assert lineage(obj, owner, kind=kind, read_again=read_again)[0] == "b"
    assert read == ["b"]


def test_pod_of_a_deployment_without_marks_of_admitq_does_not_follow_it() -> None:
    """Pods of a Deployment are queued each for itself, and are held by marks in its template."""
    pod = an_object("d-5f7c-x7k2p", owner="d-5f7c", kind="ReplicaSet", api_version="apps/v1", queue="q")
    pod |= {"apiVersion": "v1", "kind": "Pod"}
    between = an_object("d-5f7c", owner="d", kind="Deployment", api_version="apps/v1")
    between |= {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    between["metadata"]["labels"] = {"pod-template-hash": "5f7c"}
    deployment = {**an_object("d", queue="q"), "apiVersion": "apps/v1", "kind": "Deployment", "spec": {}}
    assert ancestor_of(pod, between, deployment, kind=(DEPLOYMENT, POD)) is None
    assert ancestor_of(between, deployment, kind=(DEPLOYMENT, POD)) == "d"
