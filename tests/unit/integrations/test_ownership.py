import asyncio
from dataclasses import replace
from typing import Any

import pytest

from admitq.integrations.base import ChildDifference, Integration, accept_every_child
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
from admitq.integrations.references import OwnerKind
from admitq_api.labels import names_for

NAMES = names_for()

NESTING = replace(JOB, ownership=replace(JOB.ownership, created_kinds=None, compare_child=accept_every_child))
"""A job kind that creates jobs of the same kind."""


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
    objects = {other["metadata"]["name"]: other for other in others}

    async def find(owner: Owner) -> Any:
        assert owner.uid
        return objects.get(owner.name) if owner.namespace == "ns" else None

    kinds = [kind] if isinstance(kind, Integration) else kind
    result = asyncio.run(AncestorFinder(find, kinds, NAMES, **options).find(obj))
    return result.ancestor and result.ancestor["metadata"]["name"]


def test_object_without_controller_has_no_ancestor() -> None:
    assert ancestor_of(an_object("a", queue="q")) is None


def test_ancestor_is_topmost_queued_owner() -> None:
    chain = [an_object("b", owner="c", queue="q"), an_object("c", queue="q")]
    assert ancestor_of(an_object("a", owner="b"), *chain) == "c"


def test_owner_without_queue_is_ancestor_only_if_all_jobs_are_managed() -> None:
    assert ancestor_of(an_object("a", owner="b"), an_object("b")) is None
    assert ancestor_of(an_object("a", owner="b"), an_object("b"), without_queue_name=True) == "b"


def test_reference_with_other_uid_finds_no_ancestor() -> None:
    forged = an_object("a", owner="b", owner_uid="forged")
    assert ancestor_of(forged, an_object("b", queue="q")) is None


def test_owner_of_kind_that_creates_no_such_children_is_no_ancestor() -> None:
    assert ancestor_of(an_object("a", owner="b"), an_object("b", queue="q"), kind=JOB) is None


def differs_unless_created(_job: Any, child: Any, _is_elastic: Any) -> ChildDifference | None:
    return None if child["metadata"]["name"] == "created" else ChildDifference.IDENTITY


def test_owner_that_did_not_create_the_object_is_no_ancestor() -> None:
    kind = replace(NESTING, ownership=replace(NESTING.ownership, compare_child=differs_unless_created))
    assert ancestor_of(an_object("a", owner="b"), an_object("b", queue="q"), kind=kind) is None
    assert ancestor_of(an_object("created", owner="b"), an_object("b", queue="q"), kind=kind) == "b"


def test_object_is_compared_with_every_owner_above_it() -> None:
    def compare_grandchild(_job: Any, obj: Any, _is_elastic: Any) -> ChildDifference | None:
        return None if obj["metadata"]["name"] == "created" else ChildDifference.REQUESTS

    kind = replace(NESTING, ownership=replace(NESTING.ownership, compare_grandchild=compare_grandchild))
    chain = [an_object("b", owner="c"), an_object("c", queue="q")]
    assert ancestor_of(an_object("created", owner="b"), *chain, kind=kind) == "c"
    assert ancestor_of(an_object("forged", owner="b"), *chain, kind=kind) is None
    assert ancestor_of(an_object("child", owner="c"), *chain, kind=kind) == "c"


def test_pods_and_workers_of_leader_worker_set_have_no_ancestor() -> None:
    """Neither the pods nor the StatefulSet of workers, which the leader pod controls, have an ancestor."""
    lws = an_object("l", queue="q")
    leaders = an_object(
        "l-leaders", owner="l", kind="LeaderWorkerSet", api_version=LEADER_WORKER_SET.api_version
    )
    leader = an_object("l-0", owner="l-leaders", kind="StatefulSet", api_version="apps/v1")
    workers = an_object("workers", owner="l-0", kind="Pod", api_version="v1")
    worker = an_object("worker", owner="workers", kind="StatefulSet", api_version="apps/v1")
    workers |= {"apiVersion": "apps/v1", "kind": "StatefulSet"}
    kinds = [
        replace(kind, ownership=replace(kind.ownership, compare_child=accept_every_child))
        for kind in (POD, STATEFUL_SET, LEADER_WORKER_SET)
    ]
    for pod in (leader, worker):
        pod |= {"apiVersion": "v1", "kind": "Pod"}
    for obj in (workers, worker, leader):
        assert ancestor_of(obj, lws, leaders, leader, workers, kind=kinds) is None


def test_reference_to_unknown_kind_ends_the_search() -> None:
    assert ancestor_of(an_object("a", owner="b", kind="CronJob"), an_object("b", queue="q")) is None


def test_queued_object_of_external_kind_is_ancestor_at_any_depth() -> None:
    robot = OwnerKind.parse("Robot.v1.example.com")
    assert robot == OwnerKind("example.com", "v1", "Robot")
    child = an_object("a", owner="b")
    intermediate = an_object("b", owner="r", kind="Robot", api_version="example.com/v1")
    assert ancestor_of(child, intermediate, an_object("r", queue="q"), external=[robot]) == "r"
    assert ancestor_of(child, intermediate, an_object("r"), external=[robot]) is None
    assert ancestor_of(child, intermediate, an_object("r", queue="q")) is None


def test_intermediate_owner_is_followed_but_is_no_ancestor() -> None:
    intermediate = OwnerKind("apps", "v1", "ReplicaSet")
    kind = replace(NESTING, ownership=replace(NESTING.ownership, intermediate_owners=(intermediate,)))
    child = an_object("a", owner="rs", kind="ReplicaSet", api_version="apps/v1")
    queued = an_object("rs", queue="q")
    assert ancestor_of(child, queued, kind=kind) is None
    assert ancestor_of(child, an_object("rs", owner="b"), an_object("b", queue="q"), kind=kind) == "b"


def test_missing_owner_raises_owner_missing() -> None:
    with pytest.raises(OwnerMissing):
        ancestor_of(an_object("a", owner="b"))


def test_cycle_of_owners_raises_nested_too_deep() -> None:
    with pytest.raises(NestedTooDeep):
        ancestor_of(an_object("a", owner="b"), an_object("b", owner="a"), an_object("a", owner="b"))


def test_at_most_ten_owners_are_followed() -> None:
    chain = [an_object(f"o{i}", owner=f"o{i + 1}") for i in range(1, 11)]
    tops = an_object("o10", queue="q"), an_object("o11", queue="q")
    assert ancestor_of(an_object("a", owner="o1"), *chain[:9], tops[0]) == "o10"
    with pytest.raises(NestedTooDeep):
        ancestor_of(an_object("a", owner="o1"), *chain, tops[1])


def test_controller_is_identified_by_uid_and_not_by_name() -> None:
    owned = an_object("w", owner="b")
    assert is_controlled_by(owned, an_object("b"))
    assert not is_controlled_by(owned, {"metadata": {"name": "b", "uid": "another"}})


def test_b12_job_owned_by_a_job_has_no_ancestor() -> None:
    parent = an_object("parent", queue="q")
    assert ancestor_of(an_object("child", owner="parent", queue="q"), parent, kind=JOB) is None


@pytest.mark.parametrize(("name", "ancestor"), [("m-launcher", "m"), ("another", None)])
def test_b12_job_follows_mpijob_only_with_name_of_its_launcher(name: str, ancestor: str | None) -> None:
    parent = {
        **an_object("m", queue="q"),
        "apiVersion": MPI_JOB.api_version,
        "kind": "MPIJob",
        "spec": {"mpiReplicaSpecs": {"Launcher": {"template": {}}}},
    }
    child = an_object(name, owner="m", kind="MPIJob", api_version=MPI_JOB.api_version, queue="q")
    assert ancestor_of(child, parent, kind=MPI_JOB) == ancestor


# --- owners that did not create the object --------------------------------------------------------


def find_lineage(obj: Any, *others: Any, kind: Any, **options: Any) -> Any:
    objects = {other["metadata"]["name"]: other for other in others}

    async def find(owner: Owner) -> Any:
        return objects.get(owner.name)

    ancestor, claimed, difference = asyncio.run(AncestorFinder(find, [kind], NAMES, **options).find(obj))
    names = (owner and owner["metadata"]["name"] for owner in (ancestor, claimed))
    return (*names, difference)


def test_queued_owner_that_did_not_create_the_object_is_claimed_at_any_depth() -> None:
    kind = replace(NESTING, ownership=replace(NESTING.ownership, compare_child=differs_unless_created))
    forged, intermediate = an_object("a", owner="b"), an_object("b", owner="c")
    queued = an_object("c", queue="q")
    assert find_lineage(an_object("a", owner="c"), queued, kind=kind) == (None, "c", ChildDifference.IDENTITY)
    assert find_lineage(forged, intermediate, queued, kind=kind) == (None, "c", ChildDifference.IDENTITY)
    assert find_lineage(forged, an_object("b"), kind=kind) == (None, None, ChildDifference.IDENTITY)
    # A missing owner above an owner that did not create the object changes nothing.
    assert find_lineage(forged, intermediate, kind=kind) == (None, None, ChildDifference.IDENTITY)


def test_ancestor_is_kept_if_its_own_owner_reference_is_forged() -> None:
    kind = replace(NESTING, ownership=replace(NESTING.ownership, compare_child=differs_unless_created))
    created, intermediate = an_object("created", owner="b"), an_object("b", owner="c", queue="q")
    queued = an_object("c", queue="q")
    assert find_lineage(created, intermediate, queued, kind=kind) == ("b", "c", ChildDifference.IDENTITY)


@pytest.mark.parametrize(("current", "ancestor"), [("created", "b"), ("b", None), (None, None)])
def test_owner_is_read_again_before_child_counts_as_forged(current: Any, ancestor: Any) -> None:
    """The watch of the owner can be older than what the controller of the owner has read."""
    read: list[str] = []

    def differs(owner: Any, _child: Any, _is_elastic: Any) -> ChildDifference | None:
        return None if owner["metadata"].get("annotations") else ChildDifference.PODS

    async def read_again(owner: Owner) -> Any:
        read.append(owner.name)
        current_owner: Any = an_object("b", queue="q")
        current_owner["metadata"]["annotations"] = {"is": "current"} if current == "created" else {}
        return current_owner if current else None

    kind = replace(NESTING, ownership=replace(NESTING.ownership, compare_child=differs))
    obj, owner = an_object("a", owner="b"), an_object("b", queue="q")
    assert find_lineage(obj, owner, kind=kind, read_again=read_again)[0] == ancestor
    assert read == ["b"]
    owner["metadata"]["annotations"] = {"is": "current"}
    assert find_lineage(obj, owner, kind=kind, read_again=read_again)[0] == "b"
    assert read == ["b"]


def test_pod_of_deployment_without_marks_has_no_ancestor() -> None:
    """Each pod of a Deployment is queued on its own; marks in the template gate the pods."""
    pod = an_object("d-5f7c-x7k2p", owner="d-5f7c", kind="ReplicaSet", api_version="apps/v1", queue="q")
    pod |= {"apiVersion": "v1", "kind": "Pod"}
    intermediate = an_object("d-5f7c", owner="d", kind="Deployment", api_version="apps/v1")
    intermediate |= {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    intermediate["metadata"]["labels"] = {"pod-template-hash": "5f7c"}
    deployment = {**an_object("d", queue="q"), "apiVersion": "apps/v1", "kind": "Deployment", "spec": {}}
    assert ancestor_of(pod, intermediate, deployment, kind=(DEPLOYMENT, POD)) is None
    assert ancestor_of(intermediate, deployment, kind=(DEPLOYMENT, POD)) == "d"
