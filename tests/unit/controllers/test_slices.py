"""What is decided about elastic jobs."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import orjson
import pytest

from admitq.controllers import registry
from admitq.controllers.elastic_pods import STARTED_PODS, ElasticPodsController
from admitq.controllers.indexes import resource_followed, resource_of
from admitq.controllers.job.controller import JobController
from admitq.controllers.job.owners import Owners
from admitq.controllers.job.slices import lets_run
from admitq.controllers.job.steps import decide
from admitq.controllers.plan import Create, Patch, Plan
from admitq.integrations.base import Integration, Rules
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.rayjob import RAY_JOB
from admitq.integrations.names import workload_name
from admitq.integrations.paths import Path, value_at, with_value
from admitq.integrations.ray_cluster import CLUSTERS as CLUSTERS_OF_JOBS
from admitq.integrations.registry import registered
from admitq.runtime.store import Change, Key, Store
from admitq_api.feature_gates import FeatureGates, Gate
from tests.unit.controllers.builders import (
    KINDS,
    NAMES,
    OWNER,
    TEMPLATE,
    Object,
    admitted,
    after,
    condition,
    condition_of,
    job,
    reserved,
    settings_with,
    time,
    workload,
)
from tests.unit.controllers.test_job_steps import (
    RUNNING,
    RUNNING_TEMPLATE,
    case_of,
    decided,
    kinds,
    told,
    written,
)
from tests.unit.controllers.world import World
from tests.unit.integrations.examples import examples_of

ELASTIC = {NAMES.elastic_job: "true"}
EVICTED = condition("Evicted", True, "Preempted", "Preempted", since=5)


def running(pods: int, **parts: Any) -> Object:
    return job({**RUNNING, "parallelism": pods, "completions": 50}, annotations=ELASTIC, **parts)


def waiting_job(pods: int) -> Object:
    return job({"parallelism": pods, "completions": 50}, annotations=ELASTIC)


def slice_(name: str, pods: int, of: Any = admitted, *conditions: Object, **parts: Any) -> Object:
    """A slice of so many pods; ``replaces`` names another, ``made`` is when it was made."""
    replaces, made = parts.pop("replaces", None), parts.pop("made", 0)
    annotations = {**ELASTIC, NAMES.workload_slice_name: "first"}
    if replaces:
        annotations[NAMES.workload_slice_replacement_for] = f"ns/{replaces}"
    if of is not workload:
        assignment = {
            "name": "main",
            "count": pods,
            "flavors": {"cpu": "f"},
            "resourceUsage": {"cpu": str(pods)},
        }
        parts["admission"] = {"clusterQueue": "cq", "podSetAssignments": [assignment]}
    return of(
        *conditions,
        name=name,
        metadata={"annotations": annotations, "creationTimestamp": time(made)},
        spec={"podSets": [{"name": "main", "count": pods, "template": TEMPLATE}]},
        **parts,
    )


def created(plan: Plan) -> Any:
    [create] = [action for action in plan.actions if isinstance(action, Create)]
    return create.obj


def test_the_first_workload_begins_a_chain_and_is_named_by_the_jobs_generation() -> None:
    first = created(decided(waiting_job(2)))
    annotations = first["metadata"]["annotations"]
    assert annotations == {**ELASTIC, NAMES.workload_slice_name: first["metadata"]["name"]}
    later = created(decided(with_value(waiting_job(2), ("metadata", "generation"), 7)))
    assert later["metadata"]["name"] != first["metadata"]["name"]


def test_a_kind_may_tell_slices_of_one_generation_apart() -> None:
    versioned = replace(
        JOB,
        scaling=replace(JOB.scaling, slice_version=lambda job, _: job["metadata"]["annotations"]["version"]),
    )
    names = {
        created(decided(of_version, integration=versioned))["metadata"]["name"]
        for one in ("7", "7_1", "7_2")
        for of_version in [with_value(waiting_job(2), ("metadata", "annotations", "version"), one)]
    }
    assert len(names) == 3


def test_without_the_gate_a_job_is_like_any_other() -> None:
    obj = created(decided(waiting_job(2), settings={"elastic_jobs": False}))
    assert NAMES.elastic_job not in obj["metadata"].get("annotations", {})


def test_a_job_that_grows_gets_a_slice_beside_the_one_that_runs() -> None:
    plan = decided(running(5), slice_("first", 3))
    obj = created(plan)
    assert obj["metadata"]["annotations"] == {
        **ELASTIC,
        NAMES.workload_slice_name: "first",
        NAMES.workload_slice_replacement_for: "ns/first",
    }
    [pod_set] = obj["spec"]["podSets"]
    assert pod_set == {"name": "main", "count": 5, "template": TEMPLATE}
    assert [reason for reason, _ in told(plan)] == ["CreatedWorkload"]


def test_it_is_never_stopped_for_that() -> None:
    slices = slice_("first", 3), slice_("second", 5, workload, replaces="first")
    assert decided(running(5), *slices) == Plan()


def test_one_that_cannot_grow_for_want_of_its_class_is_told_so_and_stopped_when_evicted() -> None:
    labels = {NAMES.queue_name: "lq", NAMES.priority_class: "none-such"}
    plan = decided(running(5, labels=labels), slice_("first", 3))
    assert (kinds(plan), [reason for reason, _ in told(plan)]) == ([], ["WorkloadPriorityClassNotFound"])
    assert kinds(decided(running(5, labels=labels), slice_("first", 3, admitted, EVICTED))) == ["patch Job"]


def test_it_is_not_asked_whether_pods_without_quota_are_ready() -> None:
    ready = slice_("first", 3, admitted, condition("PodsReady", True, "Started"))
    plan = decided(running(5), ready, slice_("second", 5, workload, replaces="first"))
    assert plan == Plan()


def test_elastic_job_that_is_started_with_fewer_pods_than_it_wants_keeps_their_number() -> None:
    first, second = slice_("first", 3), slice_("second", 5, workload, replaces="first", made=1)
    waits = waiting_job(5)
    started = written(waits, decided(waits, first, second))
    assert (started["spec"]["suspend"], started["spec"]["parallelism"]) == (False, 5)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "queueName"), "other"),
        (("metadata", "annotations", NAMES.workload_slice_replacement_for), "ns/other"),
        (("metadata", "annotations"), {}),
        (("spec", "podSets", 0, "count"), 9),
    ],
)
def test_slice_that_waits_is_restored_where_another_program_changed_it(path: Path, value: Any) -> None:
    second = slice_("second", 5, workload, replaces="first", made=1)
    changed = with_value(second, path, value)
    assert written(changed, decided(running(5), slice_("first", 3), changed)) == second


def test_slice_that_waits_with_other_pods_ends_and_the_one_with_quota_goes_on() -> None:
    other = {**TEMPLATE, "spec": {"containers": []}}
    second = slice_("second", 5, workload, replaces="first", made=1)
    second = with_value(second, ("spec", "podSets", 0, "template"), other)
    plan = decided(running(5), slice_("first", 3), second)
    assert kinds(plan) == ["patch Workload"]
    assert condition_of(written(second, plan), "Finished")[:2] == ("True", "WorkloadSliceReplaced")


def test_slice_that_waits_follows_the_priority_class_of_the_job() -> None:
    labels = {NAMES.queue_name: "lq", NAMES.priority_class: "high"}
    classes = {"workload_priority_class": {"high": {"metadata": {"name": "high"}, "value": 9}}}
    second = slice_("second", 5, workload, replaces="first")
    plan = decided(running(5, labels=labels), slice_("first", 3), second, known=classes)
    assert written(second, plan)["spec"]["priority"] == 9
    assert told(plan) == [("UpdatedWorkload", "Updated workload priority class: ns/second")]


@pytest.mark.parametrize("pods", [4, 7])
def test_a_slice_that_waits_follows_the_job(pods: int) -> None:
    second = slice_("second", 5, workload, replaces="first")
    plan = decided(running(pods), slice_("first", 3), second)
    assert value_at(written(second, plan), ("spec", "podSets"))[0]["count"] == pods


def test_a_job_that_shrinks_to_what_it_has_waits_for_no_more() -> None:
    second = slice_("second", 5, workload, replaces="first")
    plan = decided(running(3), slice_("first", 3), second)
    assert condition_of(written(second, plan), "Finished")[:2] == ("True", "WorkloadSliceReplaced")


def test_a_job_that_shrinks_gives_quota_back_at_once_when_its_pods_have_ended() -> None:
    first = slice_("first", 3)
    shrunk = written(first, decided(running(2), first))
    assert value_at(shrunk, ("spec", "podSets"))[0]["count"] == 2
    given_back = written(shrunk, decided(running(2), shrunk))
    [assignment] = value_at(given_back, ("status", "admission", "podSetAssignments"))
    assert (assignment["count"], assignment["resourceUsage"]) == (2, {"cpu": "2"})


def shrinking(of_job: Object, pods: int | None, *slices: Object) -> Plan:
    """What is decided about a job that so many pods run of; None if that is not known."""
    case = case_of(of_job, *slices)
    counts = None if pods is None else {"main": pods}
    return decide(replace(case, lookups=replace(case.lookups, running_pods=lambda _: counts)))


@pytest.mark.parametrize(
    ("pods", "expected"),
    [(0, 2), (2, 2), (3, 3), (4, 4), (5, 5), (9, 5), (None, 5)],
    ids=["none", "as wanted", "one leaves", "two leave", "all", "more than granted", "not known"],
)
def test_slice_of_a_job_that_shrinks_keeps_quota_of_pods_that_have_not_ended(
    pods: int | None, expected: int
) -> None:
    first = slice_("first", 5)
    shrunk = written(first, shrinking(running(2), pods, first))
    assert value_at(shrunk, ("spec", "podSets"))[0]["count"] == expected
    given_back = written(shrunk, shrinking(running(2), pods, shrunk))
    [assignment] = value_at(given_back, ("status", "admission", "podSetAssignments"))
    assert assignment["count"] == expected


def test_job_that_grows_again_while_it_shrinks_keeps_its_slice() -> None:
    first = slice_("first", 5)
    assert shrinking(running(4), 5, first).actions == ()
    assert isinstance(shrinking(running(6), 5, first).actions[0], Create)


def test_pods_that_need_no_successor_hold_no_quota_of_a_slice_that_shrinks() -> None:
    reclaimable = [{"name": "main", "count": 1}]
    first = slice_("first", 5, admitted, STARTED, reclaimablePods=reclaimable)
    # One of three indexes is complete. Three pods run, one of which leaves.
    shrunk = written(first, shrinking(indexed(3, completedIndexes="0"), 3, first))
    assert value_at(shrunk, ("spec", "podSets"))[0]["count"] == 4
    assert shrunk["status"]["reclaimablePods"] == reclaimable


def watch_started_pods(world: World) -> Store:
    """Add the store of the pods of elastic jobs, before a list has been read."""
    served = ElasticPodsController(world.ctx).when_served()
    store = Store(STARTED_PODS, transform=served.transform, indexes=served.indexes)
    world.stores.stores[STARTED_PODS] = store
    return store


async def test_pods_of_a_job_that_shrinks_are_counted_until_they_have_ended() -> None:
    world = World()
    world.put(KINDS.workloads, slice_("first", 3))
    world.put(resource_of(JOB), running(2, status={"ready": 2, "active": 2}))
    controller = JobController(world.ctx, JOB, Owners(world.ctx))

    def size() -> int:
        return value_at(world.get(KINDS.workloads, "first"), ("spec", "podSets"))[0]["count"]

    assert await controller.reconcile(Key("ns", "j")) == 1.0
    assert size() == 3, "nothing is known of pods before they are watched"
    store = watch_started_pods(world)
    metadata = {"namespace": "ns", "labels": {NAMES.podset: "main"}, "ownerReferences": [OWNER]}
    notes = {"annotations": {NAMES.workload_slice_name: "first"}}
    for number in range(3):
        name = {"name": f"p{number}", "uid": f"uid-p{number}", "resourceVersion": "1"}
        gone = {"deletionTimestamp": time(9)} if number else {}
        store.upsert({"metadata": {**metadata, **notes, **name, **gone}, "status": {"phase": "Running"}})
    assert await controller.reconcile(Key("ns", "j")) == 1.0
    assert size() == 3, "a list has not been read"
    store.progressed("1")
    assert await controller.reconcile(Key("ns", "j")) == 1.0
    assert size() == 3
    store.remove({"metadata": {**metadata, "name": "p2", "uid": "uid-p2", "resourceVersion": "2"}})
    await controller.reconcile(Key("ns", "j"))
    assert size() == 2
    await controller.reconcile(Key("ns", "j"))
    assert await controller.reconcile(Key("ns", "j")) is None


STARTED = condition("PodsReady", True, "Started")


def indexed(pods: int, **status: Any) -> Object:
    spec = {**RUNNING, "parallelism": pods, "completions": pods, "completionMode": "Indexed"}
    return job(spec, {"ready": pods, **status}, annotations=ELASTIC)


@pytest.mark.parametrize(
    ("of_job", "before", "after_"),
    [
        pytest.param(indexed(3, completedIndexes="1,3-4"), 3, 1, id="scaled-down"),
        pytest.param(indexed(3, completedIndexes="3-4"), 2, 0, id="none-left"),
        pytest.param(indexed(1, completedIndexes="1-3"), 3, 0, id="one-pod-left"),
        pytest.param(indexed(3, completedIndexes="0-1"), 1, 2, id="more-completed"),
    ],
)
def test_c15_reclaimable_pods_of_an_elastic_job_are_derived_from_the_job(
    of_job: Object, before: int, after_: int
) -> None:
    pods = of_job["spec"]["parallelism"]
    first = slice_("first", pods, admitted, STARTED, reclaimablePods=[{"name": "main", "count": before}])
    refreshed = written(first, decided(of_job, first))
    assert refreshed["status"]["reclaimablePods"] == [{"name": "main", "count": after_}]


def test_c15_reclaimable_pods_shrink_before_the_slice_does() -> None:
    of_job = indexed(3, completedIndexes="1,3-4")
    first = slice_("first", 5, admitted, STARTED, reclaimablePods=[{"name": "main", "count": 3}])
    lowered = written(first, decided(of_job, first))
    assert lowered["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]
    assert lowered["spec"] == first["spec"]
    shrunk = written(lowered, decided(of_job, lowered))
    assert value_at(shrunk, ("spec", "podSets"))[0]["count"] == 3
    assert shrunk["status"] == lowered["status"]


def test_c15_reclaimable_pods_do_not_grow_before_the_slice_has_shrunk() -> None:
    of_job = indexed(3, completedIndexes="0-1")
    first = slice_("first", 5, admitted, STARTED, reclaimablePods=[{"name": "main", "count": 1}])
    shrunk = written(first, decided(of_job, first))
    assert value_at(shrunk, ("spec", "podSets"))[0]["count"] == 3
    assert shrunk["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]


def test_c15_reclaimable_pods_of_a_slice_do_not_shrink_while_the_job_grows() -> None:
    reclaimable = [{"name": "main", "count": 3}]
    first = slice_("first", 4, admitted, STARTED, reclaimablePods=reclaimable)
    second = slice_("second", 8, workload, replaces="first", made=1)
    plan = decided(indexed(8, completedIndexes="0"), first, second)
    assert written(first, plan)["status"]["reclaimablePods"] == reclaimable


def test_c15_reclaimable_pods_are_left_alone_without_the_gate_reclaimable_pods() -> None:
    first = slice_("first", 3, admitted, STARTED, reclaimablePods=[{"name": "main", "count": 3}])
    plan = decided(indexed(3, completedIndexes="1"), first, settings={"reclaimable_pods": False})
    assert written(first, plan)["status"]["reclaimablePods"] == [{"name": "main", "count": 3}]


def test_a2_admission_of_a_slice_that_shrinks_is_written_by_the_manager_of_the_admission() -> None:
    first = slice_("first", 3)
    shrunk = written(first, decided(running(2), first))
    [write] = decided(running(2), shrunk).actions
    assert isinstance(write, Patch)
    assert write.concern == "admission"


def test_a2_slice_with_reservation_but_without_admission_gives_nothing_back() -> None:
    first = slice_("first", 3)
    shrunk = written(first, decided(running(2), first))
    del shrunk["status"]["admission"]
    assert decided(running(2), shrunk).actions == ()


@pytest.mark.parametrize("of", [workload, admitted])
def test_of_too_many_slices_the_oldest_ends_first(of: Any) -> None:
    old, new = slice_("a", 5, of, replaces="first"), slice_("b", 5, of, replaces="a")
    plan = decided(running(5), new, old)
    assert (condition_of(written(old, plan), "Finished") or ())[:2] == ("True", "WorkloadSliceReplaced")
    assert written(new, plan) == new
    assert [reason for reason, _ in told(plan)] == ["WorkloadSliceReplaced"]


HAND_IN_HAND = {"a": "b", "b": "c", "c": "a"}
AFTER_EACH_OTHER = {"b": "a", "c": "b"}


@pytest.mark.parametrize(
    ("replaces", "made", "order"),
    [
        pytest.param(AFTER_EACH_OTHER, {}, "abc", id="of one second: by who replaces whom"),
        pytest.param(AFTER_EACH_OTHER, {"a": 2, "b": 1}, "cba", id="by when they were made"),
        pytest.param({}, {}, "abc", id="of one second that say nothing of each other: by name"),
        pytest.param({"b": "a", "c": "a"}, {}, "abc", id="that replace the same"),
        pytest.param({"a": "gone", "b": "gone"}, {"c": 1}, "abc", id="that replace who is gone"),
        pytest.param(HAND_IN_HAND, {}, "abc", id="that replace each other in a circle"),
        pytest.param(HAND_IN_HAND, {"a": 1}, "bca", id="in a circle: by when they were made"),
    ],
)
@pytest.mark.parametrize("of", [workload, reserved, admitted])
def test_superfluous_slices_end_one_by_one_for_the_newest(
    replaces: Mapping[str, str], made: Mapping[str, int], order: str, of: Any
) -> None:
    slices = {
        name: with_value(
            slice_(name, 5, of, replaces=replaces.get(name), made=made.get(name, 0)),
            ("metadata", "uid"),
            f"uid-{name}",
        )
        for name in "cab"
    }
    ended = ""
    for _ in order[:-1]:
        plan = decided(running(5), *slices.values())
        [over] = [name for name, one in slices.items() if written(one, plan) is not one]
        after = written(slices[over], plan)
        assert f"(UID: uid-{order[-1]}, JobUID: uid-j)" in condition_of(after, "Finished")[2]
        slices[over] = with_value(after, ("metadata", "finalizers"), [])
        ended += over
    assert ended == order[:-1]
    assert "WorkloadSliceReplaced" not in dict(told(decided(running(5), *slices.values())))


def test_superfluous_slices_with_quota_end_before_those_that_wait() -> None:
    holding = slice_("a", 3), slice_("b", 4, replaces="a", made=1)
    waiting = (
        slice_("c", 5, workload, replaces="b", made=2),
        slice_("d", 6, workload, replaces="b", made=3),
    )
    plan = decided(running(6), *waiting, *holding)
    assert [written(one, plan) is not one for one in (*holding, *waiting)] == [True, False, False, False]
    plan = decided(running(6), *waiting, holding[1])
    assert [written(one, plan) is not one for one in (holding[1], *waiting)] == [False, True, False]
    assert decided(running(6), waiting[1], holding[1]) == Plan()


@pytest.mark.parametrize("over", ["Finished", "deleted"])
def test_what_is_over_makes_no_other_slice_superfluous(over: str) -> None:
    first, second = slice_("a", 3), slice_("b", 5, workload, replaces="a", made=1)
    gone = slice_("c", 5, workload, replaces="a", made=2)
    if over == "deleted":
        gone = with_value(gone, ("metadata", "deletionTimestamp"), time(5))
    else:
        gone = slice_(
            "c", 5, workload, condition("Finished", True, "WorkloadSliceReplaced"), replaces="a", made=2
        )
    plan = decided(running(5), first, second, gone)
    assert [written(one, plan) is one for one in (first, second)] == [True, True]
    assert "WorkloadSliceReplaced" not in dict(told(plan))


@pytest.mark.parametrize("of", [admitted, workload])
def test_slice_that_another_program_finished_is_freed_while_another_goes_on(of: Any) -> None:
    over = slice_("first", 3, admitted, condition("Finished", True, "Succeeded"))
    plan = decided(running(5), over, slice_("second", 5, of, replaces="first", made=1))
    assert kinds(plan) == ["free Workload"]


def test_every_finished_slice_of_a_job_that_has_ended_is_freed() -> None:
    done = with_value(running(5), ("status", "conditions"), [{"type": "Complete", "status": "True"}])
    early, last = (
        slice_(name, 5, admitted, condition("Finished", True, "Succeeded"), made=made)
        for made, name in enumerate(("early", "last"))
    )
    early["metadata"]["finalizers"] = []
    plan = decided(done, early, last)
    assert kinds(plan) == ["free Workload"]
    assert told(plan) == [("FinishedWorkload", "Workload 'ns/last' is declared finished")]


def test_job_grows_to_its_size_where_another_program_assigned_fewer_pods() -> None:
    path = ("status", "admission", "podSetAssignments", 0, "count")
    obj = created(decided(running(3), with_value(slice_("first", 3), path, 2)))
    assert obj["metadata"]["annotations"][NAMES.workload_slice_replacement_for] == "ns/first"
    assert obj["spec"]["podSets"][0]["count"] == 3


def test_what_was_replaced_is_freed() -> None:
    over = slice_("first", 3, admitted, condition("Finished", True, "WorkloadSliceReplaced"))
    plan = decided(running(5), over, slice_("second", 5, replaces="first"))
    assert kinds(plan) == ["free Workload"]


def test_an_evicted_slice_stops_the_job_although_a_larger_one_waits() -> None:
    plan = decided(
        running(5), slice_("first", 3, admitted, EVICTED), slice_("second", 5, workload, replaces="first")
    )
    assert kinds(plan) == ["patch Job"]


def test_when_the_evicted_one_holds_nothing_the_other_goes_on_alone() -> None:
    first = slice_("first", 3, workload, EVICTED)
    plan = decided(waiting_job(5), first, slice_("second", 5, workload, replaces="first", made=1))
    assert (condition_of(written(first, plan), "Finished") or ())[:2] == ("True", "WorkloadSliceReplaced")


def test_one_with_checks_outstanding_does_not_stop_what_runs() -> None:
    assert decided(running(5), slice_("second", 5, reserved, replaces="first")) == Plan()


UNMARKED = {**TEMPLATE, "metadata": {}}


def by_hand(pods: int) -> Object:
    """An elastic job that somebody else let run."""
    return job({**RUNNING, "template": UNMARKED, "parallelism": pods, "completions": 50}, annotations=ELASTIC)


CHECKED = slice_("second", 3, reserved, replaces="first")


@pytest.mark.parametrize("started", [running, by_hand])
@pytest.mark.parametrize(
    ("of", "seconds"),
    [
        (slice_("first", 3, workload, made=9), 1.0),
        (slice_("first", 3, workload, made=8), None),
        (slice_("first", 3, workload), None),
    ],
)
def test_elastic_job_without_quota_is_stopped_when_its_workload_had_time_to_get_some(
    started: Any, of: Object, seconds: float | None
) -> None:
    plan = decided(started(3), of)
    assert plan.again == seconds
    assert told(plan) == ([("Stopped", "Not admitted by cluster queue")] if seconds is None else [])


@pytest.mark.parametrize(("started", "stopped"), [(running, False), (by_hand, True)])
def test_elastic_job_runs_on_while_checks_of_its_larger_slice_are_pending(
    started: Any, stopped: bool
) -> None:
    assert bool(told(decided(started(3), CHECKED))) is stopped


def test_what_runs_without_an_admission_has_its_slice_follow_it() -> None:
    first = slice_("first", 3, workload)
    assert value_at(written(first, decided(by_hand(5), first)), ("spec", "podSets"))[0]["count"] == 5


def test_whoever_was_not_started_by_its_admission_is_started_anew() -> None:
    plan = decided(by_hand(3), slice_("first", 3))
    assert told(plan) == [("Stopped", "Started before it was admitted")]


def test_what_runs_without_a_slice_gets_one_of_the_chain_of_its_pods() -> None:
    template = with_value(
        RUNNING_TEMPLATE, ("metadata", "annotations"), {NAMES.workload_slice_name: "former"}
    )
    runs = job({**RUNNING, "template": template, "parallelism": 3, "completions": 50}, annotations=ELASTIC)
    obj = created(decided(runs))
    assert obj["metadata"]["annotations"] == {**ELASTIC, NAMES.workload_slice_name: "former"}


def marked(template: Object) -> Object:
    """The template with everything that an admission injects."""
    annotations = {**template["metadata"].get("annotations", {}), NAMES.workload_slice_name: "former"}
    return with_value(template, ("metadata", "annotations"), {**annotations, "own": "kept"})


def test_b11_new_slice_of_a_running_job_keeps_no_marks_of_the_admission() -> None:
    runs = job({**RUNNING, "template": marked(RUNNING_TEMPLATE), "completions": 50}, annotations=ELASTIC)
    [pod_set] = created(decided(runs))["spec"]["podSets"]
    assert pod_set["template"]["metadata"] == {"labels": {"app": "x"}, "annotations": {"own": "kept"}}
    assert pod_set["template"]["spec"] == RUNNING_TEMPLATE["spec"]


def test_b11_replacement_slice_keeps_no_marks_of_the_slice_that_it_replaces() -> None:
    pod_sets = [{"name": "main", "count": 3, "template": marked(RUNNING_TEMPLATE)}]
    held = with_value(slice_("first", 3), ("spec", "podSets"), pod_sets)
    [pod_set] = created(decided(running(5), held))["spec"]["podSets"]
    assert pod_set["count"] == 5
    labels = {"app": "x", "controller-uid": "uid-j"}
    assert pod_set["template"]["metadata"] == {"labels": labels, "annotations": {"own": "kept"}}


def test_b11_stop_leaves_nothing_that_contradicts_the_next_start() -> None:
    runs = job({**RUNNING, "template": marked(RUNNING_TEMPLATE), "completions": 50}, annotations=ELASTIC)
    spec = created(decided(runs))["spec"]
    evicted = with_value(slice_("second", 3, admitted, EVICTED), ("spec",), spec)
    stopped = written(runs, decided(runs, evicted))
    metadata = stopped["spec"]["template"]["metadata"]
    assert NAMES.podset not in metadata["labels"]
    assert metadata["annotations"] == {"own": "kept"}


def test_a_job_of_another_shape_is_stopped() -> None:
    other = {**RUNNING_TEMPLATE, "spec": {**RUNNING_TEMPLATE["spec"], "containers": []}}
    changed = job({**RUNNING, "template": other, "parallelism": 3, "completions": 50}, annotations=ELASTIC)
    plan = decided(changed, slice_("first", 3))
    assert [reason for reason, _ in told(plan)] == ["Stopped"]


def test_a_suspended_job_that_waits_is_updated_as_any_other() -> None:
    first = slice_("first", 3, workload)
    plan = decided(waiting_job(5), first)
    assert value_at(written(first, plan), ("spec", "podSets"))[0]["count"] == 5


def test_all_slices_of_a_job_end_with_it() -> None:
    done = with_value(running(5), ("status", "conditions"), [{"type": "Complete", "status": "True"}])
    first, second = slice_("first", 3), slice_("second", 5, workload, replaces="first")
    plan = decided(done, first, second)
    assert (condition_of(written(second, plan), "Finished") or ("", "", ""))[1] == "WorkloadSliceReplaced"
    plan = decided(done, first)
    assert (condition_of(written(first, plan), "Finished") or ("", "", ""))[1] == "Succeeded"


def test_a_slice_that_is_deleted_stops_the_job() -> None:
    going = with_value(slice_("first", 3), ("metadata", "deletionTimestamp"), time(5))
    assert kinds(decided(running(3), going)) == ["patch Job"]


def test_a_slice_that_failed_to_start_is_told_of() -> None:
    failed = slice_("first", 3, workload, condition("Finished", True, "FailedToStart"))
    assert ("FinishedWorkload", "Workload 'ns/first' is declared finished") in told(
        decided(waiting_job(3), failed)
    )


# --- every kind that can be elastic ---------------------------------------------------------------


GROWN: Mapping[str, Path] = {
    "batch/job": ("spec", "parallelism"),
    "ray.io/rayjob": ("spec", "rayClusterSpec", "workerGroupSpecs", 0, "replicas"),
    "ray.io/raycluster": ("spec", "workerGroupSpecs", 0, "replicas"),
    "ray.io/rayservice": ("spec", "rayClusterConfig", "workerGroupSpecs", 0, "replicas"),
}
"""Where a job of each kind says how many pods it wants."""

ELASTIC_KINDS = [pytest.param(one, id=one.framework) for one in registered() if one.scaling.can_be_elastic]


def test_every_kind_that_can_be_elastic_is_tried() -> None:
    assert {one.framework for one in registered() if one.scaling.can_be_elastic} == set(GROWN)


@pytest.mark.parametrize("kind", ELASTIC_KINDS)
def test_a_job_of_any_kind_grows_by_a_slice_and_shrinks_in_place(kind: Integration) -> None:
    def decided_of(job_: Object, *workloads: Object) -> Plan:
        return decided(job_, *workloads, integration=kind)

    def pods_of(slice_: Object) -> int:
        return sum(one["count"] for one in slice_["spec"]["podSets"])

    def sized(job_: Object, pods: int) -> Object:
        """The job when it wants so many pods; kinds that have a bound have one that leaves room for them."""
        asked = GROWN[kind.framework]
        result = with_value(with_value(job_, asked, pods), (*asked[:-1], "maxReplicas"), 10)
        return with_value(
            result, ("metadata", "generation"), value_at(job_, ("metadata", "generation"), 1) + 1
        )

    example = next(one for one in examples_of(kind.api_version, kind.kind) if kind.pod_sets(one, NAMES))
    identity = {"namespace": "ns", "name": "j", "uid": "uid-j", "creationTimestamp": time(0), "generation": 1}
    metadata = {"labels": {NAMES.queue_name: "lq"}, "annotations": ELASTIC, **identity}
    waits = dict(kind.with_suspend(sized({**example, "metadata": metadata, "status": {}}, 5), True))

    first = created(decided_of(waits))
    name = first["metadata"]["name"]
    owner = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": "j",
        "uid": "uid-j",
        "controller": True,
    }
    counts = {one["name"]: one["count"] for one in first["spec"]["podSets"]}
    assignments = [{"name": each, "count": count, "flavors": {"cpu": "f"}} for each, count in counts.items()]
    has_quota = admitted(
        name=name,
        owner=owner,
        metadata={"annotations": first["metadata"]["annotations"]},
        spec=first["spec"],
        admission={"clusterQueue": "cq", "podSetAssignments": assignments},
    )
    runs = written(waits, decided_of(waits, has_quota))
    assert not kind.is_suspended(runs, NAMES)
    assert decided_of(runs, has_quota) == Plan()

    second = created(decided_of(sized(runs, 7), has_quota))
    assert second["metadata"]["name"] != name
    assert second["metadata"]["annotations"] == {
        **ELASTIC,
        NAMES.workload_slice_name: name,
        NAMES.workload_slice_replacement_for: f"ns/{name}",
    }
    assert pods_of(second) > pods_of(first)
    assert [one["template"] for one in second["spec"]["podSets"]] == [
        one["template"] for one in first["spec"]["podSets"]
    ]

    less = written(has_quota, decided_of(sized(runs, 3), has_quota))
    assert pods_of(less) < pods_of(first)


STATUS = {
    "active": 9,
    "succeeded": 9,
    "desiredWorkerReplicas": 9,
    "availableWorkerReplicas": 9,
    "rayClusterName": "j-cluster",
    "rayClusterStatus": {"state": "ready", "desiredWorkerReplicas": 9, "availableWorkerReplicas": 9},
    "activeServiceStatus": {"rayClusterStatus": {"desiredWorkerReplicas": 9}},
}


@pytest.mark.parametrize("kind", ELASTIC_KINDS)
def test_how_many_pods_a_job_of_any_kind_wants_changes_with_its_generation_alone(kind: Integration) -> None:
    """Or with what it follows besides: which is all that tells the names of its slices apart."""
    example = next(one for one in examples_of(kind.api_version, kind.kind) if kind.pod_sets(one, NAMES))
    states = [STATUS, {}, None]
    assert len({tuple(map(repr, kind.pod_sets({**example, "status": one}, NAMES))) for one in states}) == 1
    running_ = kind.with_suspend({**example, "status": STATUS}, False)
    references = kind.templates.references(running_)
    found = {one: {"metadata": {"generation": 7}} for one in references}
    of_job, of_both = (
        kind.scaling.slice_version(one, NAMES) for one in (running_, kind.templates.resolved(running_, found))
    )
    assert (of_job != of_both) is bool(references)


# --- clusters that Ray scales ---------------------------------------------------------------------


VERSIONS = count(1)


def ray_job(**status: Any) -> Object:
    """A RayJob that runs, of three workers."""
    group = {"groupName": "g", "replicas": 3, "template": {"metadata": MARKS, "spec": TEMPLATE["spec"]}}
    head = {"template": {"metadata": MARKS, "spec": TEMPLATE["spec"]}}
    cluster = {"enableInTreeAutoscaling": True, "headGroupSpec": head, "workerGroupSpecs": [group]}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {
            "name": "j",
            "namespace": "ns",
            "uid": "uid-j",
            "resourceVersion": str(next(VERSIONS)),
            "generation": 2,
            "creationTimestamp": time(0),
            "labels": {NAMES.queue_name: "lq"},
            "annotations": ELASTIC,
        },
        "spec": {"suspend": False, "submissionMode": "HTTPMode", "rayClusterSpec": cluster},
        "status": {"jobDeploymentStatus": "Running", "rayClusterName": "j-1", **status},
    }


def made_cluster(workers: int, generation: int = 1, name: str = "j-1", owner: str = "uid-j") -> Object:
    job_ = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "j", "uid": owner, "controller": True}
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": name,
        "resourceVersion": str(next(VERSIONS)),
        "ownerReferences": [job_],
    }
    spec = {"headGroupSpec": {}, "workerGroupSpecs": [{"groupName": "g", "replicas": workers}]}
    return {"metadata": {**metadata, "generation": generation}, "spec": spec}


MARKS: Object = {"labels": {NAMES.podset: "g"}, "annotations": {NAMES.workload_slice_name: "first"}}
RAY_JOBS = resource_of(RAY_JOB)
CLUSTERS = resource_followed(RAY_JOB, CLUSTERS_OF_JOBS)
RAY_KEY = Key("ns", "j")


def with_quota(job_: Object) -> Object:
    """The Workload that has quota for a RayJob as it states itself."""
    spec = {
        "podSets": [
            {"name": one.name, "count": one.count, "template": one.template_in(job_)}
            for one in RAY_JOB.pod_sets(job_, NAMES)
        ]
    }
    assignments = [
        {"name": one["name"], "count": one["count"], "flavors": {"cpu": "f"}} for one in spec["podSets"]
    ]
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "j", "uid": "uid-j", "controller": True}
    annotations = {**ELASTIC, NAMES.workload_slice_name: "first"}
    admission = {"clusterQueue": "cq", "podSetAssignments": assignments}
    metadata = {"annotations": annotations}
    return admitted(name="first", owner=owner, metadata=metadata, spec=spec, admission=admission)


class Ray:
    """A RayJob that runs with quota for three workers, and its controller."""

    def __init__(self, job_: Object | None = None, **settings: Any) -> None:
        self.world = World(settings=settings_with(integrations=(RAY_JOB,), **settings))
        watch_started_pods(self.world).progressed("1")
        self.world.put(RAY_JOBS, job_ or ray_job())
        self.world.put(KINDS.workloads, with_quota(job_ or ray_job()))
        self.jobs = JobController(self.world.ctx, RAY_JOB, Owners(self.world.ctx))

    async def scaled(self, *clusters: Object) -> list[tuple[str, list[int]]]:
        """What the slices that are not over ask for, by name, with these clusters."""
        self.world.put(CLUSTERS, *clusters)
        await self.jobs.reconcile(RAY_KEY)
        return [
            (one["metadata"]["name"], [each["count"] for each in one["spec"]["podSets"]])
            for one in self.world.stores.of(KINDS.workloads).list()
            if not condition_of(one, "Finished")
        ]


async def test_what_ray_adds_to_the_cluster_of_a_job_gets_a_slice_that_follows_it() -> None:
    ray = Ray()
    assert await ray.scaled(made_cluster(3)) == [("first", [1, 3])]
    [first, (second, pods)] = await ray.scaled(made_cluster(5, generation=2))
    assert (first, pods) == (("first", [1, 3]), [1, 5])
    assert second == workload_name("RayJob", "ray.io", "j", "uid-j", extra="2_2")
    assert await ray.scaled(made_cluster(6, generation=3)) == [first, (second, [1, 6])]
    assert await ray.scaled(made_cluster(3, generation=4)) == [first]


async def test_of_what_ray_removes_from_the_cluster_of_a_job_the_quota_is_free_when_no_pod_runs() -> None:
    ray = Ray()
    assert await ray.scaled(made_cluster(1, generation=2)) == [("first", [1, 1])]
    await ray.jobs.reconcile(RAY_KEY)
    found = ray.world.get(KINDS.workloads, "first")
    assert [one["count"] for one in value_at(found, ("status", "admission", "podSetAssignments"))] == [1, 1]


async def test_a_job_whose_cluster_is_not_known_keeps_what_it_has() -> None:
    ray = Ray()
    slices = await ray.scaled(made_cluster(5, generation=2))
    ray.world.stores.of(CLUSTERS).remove(made_cluster(5))
    calls = len(ray.world.calls)
    assert await ray.scaled() == slices
    assert ray.world.calls[calls:] == []
    assert not [one for one in ray.world.told.events if "not found" in one[2]]


async def test_a_cluster_that_was_made_for_a_former_job_changes_nothing() -> None:
    ray = Ray()
    assert await ray.scaled(made_cluster(5, owner="former")) == [("first", [1, 3])]
    assert await ray.scaled(made_cluster(1, owner="former")) == [("first", [1, 3])]
    assert ray.world.calls == []
    assert [pods for _, pods in await ray.scaled(made_cluster(5))] == [[1, 3], [1, 5]]


async def test_a_cluster_that_is_made_anew_gets_a_slice_of_another_name() -> None:
    ray = Ray()
    [_, (name, _)] = await ray.scaled(made_cluster(5))
    assert await ray.scaled(made_cluster(3)) == await ray.scaled() == [("first", [1, 3])]
    ray.world.put(RAY_JOBS, ray_job(rayClusterName="j-2"))
    [_, (other, pods)] = await ray.scaled(made_cluster(4, name="j-2"))
    assert (pods, other == name) == ([1, 4], False)


@pytest.mark.parametrize(
    ("job_", "settings"),
    [
        (after(ray_job(), {"spec": {"rayClusterSpec": {"enableInTreeAutoscaling": False}}}), {}),
        (ray_job(rayClusterName=""), {}),
        (ray_job(), {"elastic_jobs": False}),
    ],
    ids=["not scaled by Ray", "no cluster yet", "without the gate"],
)
async def test_any_other_job_goes_by_what_it_states(job_: Object, settings: Any) -> None:
    ray = Ray(job_, **settings)
    assert await ray.scaled(made_cluster(5, generation=2)) == [("first", [1, 3])]
    assert value_at(ray.world.get(RAY_JOBS, "j"), ("spec", "suspend")) is False


def test_a_cluster_that_ray_scales_concerns_the_job_that_it_was_made_for() -> None:
    world = Ray().world
    [part] = [
        one for one in registry.controllers(world.ctx, world.core).when_served if one.resource == RAY_JOBS
    ]
    [followed] = part.follows
    assert followed.resource == CLUSTERS
    assert followed.transform is not None
    old, new, same = (followed.transform(dict(made_cluster(*one))) for one in ((3, 1), (4, 2), (4, 3)))
    assert "headGroupSpec" not in new["spec"]

    def keys(before: Object, now: Object, name: str = "j-1") -> set[Key]:
        change = Change("modified", Key("ns", name), now, orjson.dumps(before))
        return {
            key for watch in part.spec.watches if watch.resource == CLUSTERS for key in watch.keys(change)
        }

    assert (keys(old, new), keys(new, same), keys(old, new, "other")) == ({RAY_KEY}, set(), set())


# --- what a job creates ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workloads", "ordinary", "elastic"),
    [
        ([], False, False),
        ([slice_("first", 3)], True, True),
        ([slice_("first", 3, workload)], False, True),
        ([slice_("first", 3), slice_("second", 5, workload, replaces="first", made=1)], False, True),
        ([slice_("first", 3, admitted, EVICTED), slice_("second", 5, workload, made=1)], False, False),
    ],
)
def test_what_an_elastic_job_creates_runs_on_while_a_larger_slice_waits(
    workloads: list[Object], ordinary: bool, elastic: bool
) -> None:
    assert lets_run(workloads, elastic=False) is ordinary
    assert lets_run(workloads, elastic=True) is elastic


# --- the gate -------------------------------------------------------------------------------------


def rules(gates: Mapping[Gate, bool] | None = None) -> Rules:
    return Rules(NAMES, FeatureGates(gates or {}), is_managed=True)


def test_an_elastic_job_has_its_pods_held() -> None:
    held = JOB.webhook.mutate(waiting_job(2), rules())
    assert value_at(held, ("spec", "template", "spec", "schedulingGates")) == [{"name": NAMES.elastic_gate}]
    assert JOB.webhook.mutate(held, rules()) is held


@pytest.mark.parametrize(
    ("obj", "gates"),
    [
        (job(), {}),
        (waiting_job(2), {Gate.ELASTIC_JOBS: False}),
        ({"metadata": {"annotations": ELASTIC}, "spec": {"template": None}}, {}),
    ],
)
def test_any_other_job_is_left_as_it_is(obj: Object, gates: Mapping[Gate, bool]) -> None:
    assert JOB.webhook.mutate(obj, rules(gates)) is obj
