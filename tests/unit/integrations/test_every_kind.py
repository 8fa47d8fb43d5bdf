"""What holds for every kind of job, whatever an object of it looks like."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admitq.integrations.base import Integration, RuleContext, is_never_elastic
from admitq.integrations.registry import load_integrations
from admitq.workloads import pod_templates
from admitq.workloads.pod_templates import PodSetInfo
from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.json_objects import create_merge_patch, with_value, without_value
from admitq_api.labels import names_for
from tests.unit.integrations.examples import RUNTIME, custom_kinds, examples_of

NAMES = names_for()
RULES = RuleContext(NAMES, FeatureGates({Gate.TOPOLOGY_AWARE_SCHEDULING: True}))
EVERY_KIND = (*load_integrations(), *custom_kinds())
KINDS = [pytest.param(one, id=one.framework) for one in EVERY_KIND]
KINDS_OF_JOBS = [pytest.param(one, id=one.framework) for one in EVERY_KIND if one.serving is None]

GARBAGE: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    "",
    "x",
    "9" * 5000,
    "template[9].x",
    [],
    [None],
    [1, "x"],
    [[]],
    [{}],
    {},
    {"x": None},
    {"a": {"b": []}},
    {"a": 1},
)
OF_ANY_TYPE: tuple[Any, ...] = (None, True, -1, 1.5, "x", [None], {"x": None})
GONE = object()


def paths_of(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a document but its root."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for step, item in items:
        yield (*path, step)
        yield from paths_of(item, (*path, step))


@st.composite
def mutilated(draw: st.DrawFn, job: Any) -> Any:
    """The job with anything in some places, or nothing."""
    for _ in range(draw(st.integers(2, 5))):
        path = draw(st.sampled_from(list(paths_of(job))))
        damage = draw(st.sampled_from((*GARBAGE, GONE)))
        job = without_value(job, path) if damage is GONE else with_value(job, path, copy.deepcopy(damage))
    return job


@st.composite
def abridged(draw: st.DrawFn, kind: Integration) -> Any:
    """An object of the kind that lacks some of its fields, or has nulls there."""
    job = draw(st.sampled_from(examples_of(kind.api_version, kind.kind)))
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from([path for path in paths_of(job) if isinstance(path[-1], str)]))
        job = draw(st.sampled_from((without_value(job, path), with_value(job, path, None))))
    return kind.templates.resolve(job, {})


def ask_all(kind: Integration, old: Any, job: Any) -> None:
    """Call every function of a kind."""
    pod_sets = kind.list_pod_sets(job, NAMES)
    started = stopped = kind.with_suspend(job, True)
    for pod_set in pod_sets:
        assert isinstance(pod_set.count, int)
        assert pod_set.count >= 0
        started = kind.templates.with_template(started, pod_set, pod_set.get_template(job), NAMES)
    for ask in (
        kind.find_outcome,
        kind.is_active,
        kind.are_pods_ready,
        kind.templates.list_references,
        kind.lifecycle.is_ignored,
        kind.lifecycle.is_cleaning_up,
        kind.scaling.count_reclaimable_pods,
        kind.lifecycle.is_on_hold,
        kind.templates.find_priority_class,
        kind.may_create_kind_of,
    ):
        ask(job)
    kind.templates.resolve(job, dict.fromkeys(kind.templates.list_references(job), RUNTIME))
    kind.lifecycle.is_stop_in_progress(job, NAMES)
    kind.is_suspended(job, NAMES)
    kind.lifecycle.plan_stop(job, stopped, NAMES)
    kind.lifecycle.plan_start(job, kind.with_suspend(started, False), NAMES)
    kind.may_have_created(job, old)
    kind.may_have_created(old, job)
    kind.ownership.compare_grandchild(job, old, is_never_elastic)
    if kind.scaling.with_pod_counts is not None:
        kind.scaling.with_pod_counts(job, {pod_set.name: 1 for pod_set in pod_sets}, NAMES)
    kind.webhook.mutate(job, RULES)
    kind.webhook.mutate_every_object(job, RULES)
    kind.scaling.get_slice_version(job, NAMES)
    kind.webhook.validate_create(job, RULES)
    kind.webhook.validate_update(old, job, RULES)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_odd_at_any_place_makes_a_kind_raise_or_change_it(kind: Integration) -> None:
    for job in examples_of(kind.api_version, kind.kind, started=True):
        kept = copy.deepcopy(job)
        for path in paths_of(job):
            ask_all(kind, job, without_value(job, path))
            for odd in OF_ANY_TYPE:
                ask_all(kind, job, with_value(job, path, odd))
        assert job == kept


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=30)
def test_no_object_makes_a_kind_raise_or_change_it(kind: Integration, data: st.DataObject) -> None:
    """Several odd things at once can meet where one alone does not get."""
    old = data.draw(st.sampled_from(examples_of(kind.api_version, kind.kind, started=True)))
    job = data.draw(mutilated(old))
    kept = copy.deepcopy((old, job))
    ask_all(kind, old, job)
    assert (old, job) == kept


def without_empties(value: Any) -> Any:
    """A document without nulls and empty parts, which mean the same as none.

    So do ``podSetInfos`` of an AppWrapper that are all empty: each adds nothing to its podset.
    """
    if isinstance(value, dict):
        found = {key: without_empties(item) for key, item in value.items()}
        if not any(found.get("podSetInfos") or ()):
            found.pop("podSetInfos", None)
        return {key: item for key, item in found.items() if item not in (None, {}, [])}
    if isinstance(value, list):
        return [without_empties(item) for item in value]
    return value


GIVEN = PodSetInfo(
    "",
    1,
    node_selector={"given.example.com/pool": "spot"},
    tolerations=({"key": "given", "operator": "Exists"}, {"key": "own", "operator": "Exists"}),
    labels={NAMES.podset: "p", NAMES.local_queue_name: "q"},
    annotations={NAMES.workload: "w"},
    scheduling_gates=("example.com/gate",),
)


def injected(kind: Integration, job: Any) -> Any:
    """The job as a start leaves it."""
    for pod_set in kind.list_pod_sets(job, NAMES):
        template = pod_templates.inject_into_template(pod_set.get_template(job), GIVEN)
        job = kind.templates.with_template(job, pod_set, template, NAMES)
    return job


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=30)
def test_a_template_that_is_written_is_read_again(kind: Integration, data: st.DataObject) -> None:
    job = data.draw(abridged(kind))
    before = [
        pod_templates.sanitise_template(one.get_template(job)) for one in kind.list_pod_sets(job, NAMES)
    ]
    running = injected(kind, job)
    after = kind.list_pod_sets(running, NAMES)
    assert [pod_templates.sanitise_template(one.get_template(running)) for one in after] == [
        pod_templates.inject_into_template(template, GIVEN) for template in before
    ]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=30)
def test_what_is_injected_is_taken_out_without_a_trace(kind: Integration, data: st.DataObject) -> None:
    job = data.draw(abridged(kind))
    remembered = [
        pod_templates.sanitise_template(one.get_template(job)) for one in kind.list_pod_sets(job, NAMES)
    ]
    running = injected(kind, job)
    assert not remembered or create_merge_patch(job, running)
    stopped = running
    for pod_set, original in zip(kind.list_pod_sets(running, NAMES), remembered, strict=True):
        restored = pod_templates.restore_template(pod_set.get_template(stopped), original)
        stopped = kind.templates.with_template(stopped, pod_set, restored, NAMES)
    assert without_empties(stopped) == without_empties(job)


FIELDS_OF_PODS = {
    "example.com/training": "spec.leader.template, spec.workers.template",
    "jobset.x-k8s.io/jobset": "spec.replicatedJobs",
    "kubeflow.org/jaxjob": "spec.jaxReplicaSpecs",
    "kubeflow.org/mpijob": "spec.mpiReplicaSpecs",
    "kubeflow.org/paddlejob": "spec.paddleReplicaSpecs",
    "kubeflow.org/pytorchjob": "spec.pytorchReplicaSpecs",
    "kubeflow.org/tfjob": "spec.tfReplicaSpecs",
    "kubeflow.org/xgboostjob": "spec.xgbReplicaSpecs",
    "ray.io/raycluster": "spec",
    "ray.io/rayjob": "spec.rayClusterSpec",
    "ray.io/rayservice": "spec.rayClusterConfig",
    "tasks.example.com/job": "spec.tasks[].template",
    "trainer.kubeflow.org/trainjob": "spec.runtimeRef",
    "workload.codeflare.dev/appwrapper": "spec.components",
}
"""The fields that describe pods, for kinds with optional pod templates."""


def pod_sets_of(kind: Integration, job: Any) -> list[Any]:
    """The pod_templates of a job; every runtime that it names exists."""
    found = {
        one: RUNTIME for one in kind.templates.list_references(job) if kind.is_required(one) and one.name
    }
    return list(kind.list_pod_sets(kind.templates.resolve(job, found), NAMES))


@pytest.mark.parametrize("kind", KINDS_OF_JOBS)
@pytest.mark.parametrize("empty", [{}, None])
def test_d24_kind_with_optional_podsets_names_their_field(kind: Integration, empty: Any) -> None:
    bare = {"metadata": {"name": "j", "namespace": "ns"}, "spec": empty}
    assert (pod_sets_of(kind, bare) == []) is (kind.framework in FIELDS_OF_PODS)
    if fields := FIELDS_OF_PODS.get(kind.framework):
        assert kind.templates.pod_sets_field == fields
        for started in examples_of(kind.api_version, kind.kind, started=True):
            job = {key: value for key, value in started.items() if key != "resolvedRuntime"}
            assert pod_sets_of(kind, job)
            for field in fields.split(", "):
                # A custom kind names templates; a podset is there as soon as what holds its template is.
                holder = field.removesuffix(".template").removesuffix("[]")
                job = with_value(job, holder.split("."), None)
            assert pod_sets_of(kind, job) == []
