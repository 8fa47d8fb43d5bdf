"""Properties of every job kind, for objects of any shape."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admitq.integrations.base import Integration, RuleContext, is_never_elastic
from admitq.integrations.registry import load_integrations
from admitq.workloads import template_injection
from admitq.workloads.template_injection import PodSetInfo
from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.json_objects import create_merge_patch, with_value, without_value
from admitq_api.labels import names_for
from tests.unit.integrations.examples import RUNTIME, custom_kinds, examples_of

NAMES = names_for()
RULES = RuleContext(NAMES, FeatureGates({Gate.TOPOLOGY_AWARE_SCHEDULING: True}))
EVERY_KIND = (*load_integrations(), *custom_kinds())
KINDS = [pytest.param(kind, id=kind.framework) for kind in EVERY_KIND]
KINDS_OF_JOBS = [pytest.param(kind, id=kind.framework) for kind in EVERY_KIND if kind.serving is None]

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
VALUES_OF_EVERY_TYPE: tuple[Any, ...] = (None, True, -1, 1.5, "x", [None], {"x": None})
REMOVED = object()


def paths_of(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of all values in a document, except that of the root."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for step, item in items:
        yield (*path, step)
        yield from paths_of(item, (*path, step))


@st.composite
def malformed_jobs(draw: st.DrawFn, job: Any) -> Any:
    """Draw the job with some values removed or replaced by garbage."""
    for _ in range(draw(st.integers(2, 5))):
        path = draw(st.sampled_from(list(paths_of(job))))
        damage = draw(st.sampled_from((*GARBAGE, REMOVED)))
        job = without_value(job, path) if damage is REMOVED else with_value(job, path, copy.deepcopy(damage))
    return job


@st.composite
def incomplete_jobs(draw: st.DrawFn, kind: Integration) -> Any:
    """Draw an object of the kind that lacks some of its fields, or has null in them."""
    job = draw(st.sampled_from(examples_of(kind.api_version, kind.kind)))
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from([path for path in paths_of(job) if isinstance(path[-1], str)]))
        job = draw(st.sampled_from((without_value(job, path), with_value(job, path, None))))
    return kind.templates.resolve(job, {})


def call_every_function(kind: Integration, old: Any, job: Any) -> None:
    """Call every function of a kind."""
    pod_sets = kind.list_pod_sets(job, NAMES)
    started = stopped = kind.with_suspend(job, True)
    for pod_set in pod_sets:
        assert isinstance(pod_set.count, int)
        assert pod_set.count >= 0
        started = kind.templates.with_template(started, pod_set, pod_set.get_template(job), NAMES)
    for function in (
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
        function(job)
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
def test_malformed_field_does_not_make_a_kind_raise_or_modify_the_job(kind: Integration) -> None:
    for job in examples_of(kind.api_version, kind.kind, started=True):
        unmodified = copy.deepcopy(job)
        for path in paths_of(job):
            call_every_function(kind, job, without_value(job, path))
            for value in VALUES_OF_EVERY_TYPE:
                call_every_function(kind, job, with_value(job, path, value))
        assert job == unmodified


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=30)
def test_several_malformed_fields_do_not_make_a_kind_raise_or_modify_the_job(
    kind: Integration, data: st.DataObject
) -> None:
    """Several malformed fields can reach code that one malformed field does not reach."""
    old = data.draw(st.sampled_from(examples_of(kind.api_version, kind.kind, started=True)))
    job = data.draw(malformed_jobs(old))
    unmodified = copy.deepcopy((old, job))
    call_every_function(kind, old, job)
    assert (old, job) == unmodified


def without_empties(value: Any) -> Any:
    """Return a document without nulls and empty parts, which mean the same as absent fields.

    ``podSetInfos`` of an AppWrapper that are all empty are also removed; they add nothing to podsets.
    """
    if isinstance(value, dict):
        items = {key: without_empties(item) for key, item in value.items()}
        if not any(items.get("podSetInfos") or ()):
            items.pop("podSetInfos", None)
        return {key: item for key, item in items.items() if item not in (None, {}, [])}
    if isinstance(value, list):
        return [without_empties(item) for item in value]
    return value


POD_SET_INFO = PodSetInfo(
    "",
    1,
    node_selector={"given.example.com/pool": "spot"},
    tolerations=({"key": "given", "operator": "Exists"}, {"key": "own", "operator": "Exists"}),
    labels={NAMES.podset: "p", NAMES.local_queue_name: "q"},
    annotations={NAMES.workload: "w"},
    scheduling_gates=("example.com/gate",),
)


def injected(kind: Integration, job: Any) -> Any:
    """Return the job with everything that a start injects into its templates."""
    for pod_set in kind.list_pod_sets(job, NAMES):
        template = template_injection.inject_into_template(pod_set.get_template(job), POD_SET_INFO)
        job = kind.templates.with_template(job, pod_set, template, NAMES)
    return job


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=30)
def test_injected_template_is_read_back(kind: Integration, data: st.DataObject) -> None:
    job = data.draw(incomplete_jobs(kind))
    before = [
        template_injection.sanitise_template(pod_set.get_template(job))
        for pod_set in kind.list_pod_sets(job, NAMES)
    ]
    running = injected(kind, job)
    after = kind.list_pod_sets(running, NAMES)
    assert [template_injection.sanitise_template(pod_set.get_template(running)) for pod_set in after] == [
        template_injection.inject_into_template(template, POD_SET_INFO) for template in before
    ]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=30)
def test_restored_job_has_no_trace_of_the_injection(kind: Integration, data: st.DataObject) -> None:
    job = data.draw(incomplete_jobs(kind))
    originals = [
        template_injection.sanitise_template(pod_set.get_template(job))
        for pod_set in kind.list_pod_sets(job, NAMES)
    ]
    running = injected(kind, job)
    assert not originals or create_merge_patch(job, running)
    stopped = running
    for pod_set, original in zip(kind.list_pod_sets(running, NAMES), originals, strict=True):
        restored = template_injection.restore_template(pod_set.get_template(stopped), original)
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
    """Return the podsets of a job; every runtime that the job references exists."""
    referenced = {
        reference: RUNTIME
        for reference in kind.templates.list_references(job)
        if kind.is_required(reference) and reference.name
    }
    return list(kind.list_pod_sets(kind.templates.resolve(job, referenced), NAMES))


@pytest.mark.parametrize("kind", KINDS_OF_JOBS)
@pytest.mark.parametrize("empty", [{}, None])
def test_d24_kind_with_optional_podsets_names_their_field(kind: Integration, empty: Any) -> None:
    without_spec = {"metadata": {"name": "j", "namespace": "ns"}, "spec": empty}
    assert (pod_sets_of(kind, without_spec) == []) is (kind.framework in FIELDS_OF_PODS)
    if fields := FIELDS_OF_PODS.get(kind.framework):
        assert kind.templates.pod_sets_field == fields
        for started in examples_of(kind.api_version, kind.kind, started=True):
            job = {key: value for key, value in started.items() if key != "resolvedRuntime"}
            assert pod_sets_of(kind, job)
            for field in fields.split(", "):
                # A podset of a custom kind exists if the parent of its template exists.
                parent = field.removesuffix(".template").removesuffix("[]")
                job = with_value(job, parent.split("."), None)
            assert pod_sets_of(kind, job) == []
