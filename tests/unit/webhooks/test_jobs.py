"""What happens to jobs: held, given a queue, refused, or left byte for byte as they came."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admitq.core.model import LabelSelector, SelectorOperator, SelectorRequirement
from admitq.integrations.base import OwnerKind, never_differs
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.jobset import JOBSET
from admitq.integrations.registry import registered
from admitq_api.field_errors import FieldError
from admitq_webhooks.mutate.jobs import mutate
from admitq_webhooks.routes import routes
from admitq_webhooks.validate.jobs import validate_create, validate_update
from tests.unit.integrations.examples import custom_kinds
from tests.unit.webhooks.support import (
    BY_OPERATOR,
    NAMES,
    PRIORITY,
    QUEUE,
    Answer,
    FakeWorld,
    a_job,
    mutate_job,
    policy,
    post,
    review,
    validate_job,
)

SELECTED = LabelSelector((SelectorRequirement("team", SelectorOperator.IN, ("ml",)),))
DEFAULTS: dict[str, Any] = {"local_queues": {("team", "default")}}


def managed(**options: Any) -> dict[str, Any]:
    labels = {QUEUE: "q", **options.pop("labels", {})}
    return a_job(labels=labels, **options)


def deleted(job: dict[str, Any]) -> dict[str, Any]:
    return {**job, "metadata": {**job["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


# --- mutation ---------------------------------------------------------------------------------------


async def test_a_job_with_a_queue_is_suspended_and_otherwise_unchanged() -> None:
    job = managed()
    answer = await mutate_job(job)
    assert answer.patch == [{"op": "add", "path": "/spec/suspend", "value": True}]


async def test_a_job_that_says_it_runs_is_suspended_all_the_same() -> None:
    answer = await mutate_job(managed(suspend=False))
    assert answer.patch == [{"op": "replace", "path": "/spec/suspend", "value": True}]


async def test_a_job_that_is_held_already_needs_nothing() -> None:
    answer = await mutate_job(managed(suspend=True))
    assert answer.response == {"uid": "the-uid", "allowed": True}


@pytest.mark.parametrize(
    ("job", "options"),
    [
        pytest.param(a_job(), {}, id="no queue"),
        pytest.param(a_job(labels={}), {}, id="no labels"),
        pytest.param(a_job(labels={QUEUE: ""}), {}, id="empty queue"),
        pytest.param(a_job(labels={QUEUE: 7}), {}, id="queue that is no text"),
        pytest.param(a_job(labels={PRIORITY: "high"}), {}, id="priority class without a queue"),
        pytest.param(managed(), {"namespace": "kube-system"}, id="kube-system"),
        pytest.param(managed(), {"namespace": "admitq-system"}, id="our own namespace"),
        pytest.param(managed(), {"namespace": "gone"}, id="namespace that does not exist"),
        pytest.param(managed(), {"integrations": ()}, id="kind switched off"),
        pytest.param(
            a_job(),
            {"namespace": "kube-system", "manage_jobs_without_queue_name": True},
            id="kube-system, all jobs managed",
        ),
    ],
)
async def test_a_job_that_is_not_ours_is_left_byte_for_byte(job: Any, options: dict[str, Any]) -> None:
    world = FakeWorld(namespaces={"team": {}, "kube-system": {}, "admitq-system": {}})
    answer = await mutate_job(job, world=world, **options)
    assert answer.response == {"uid": "the-uid", "allowed": True}


async def test_a_request_is_not_believed_that_its_object_is_being_deleted() -> None:
    assert (await mutate_job(deleted(managed()))).after["spec"]["suspend"] is True
    assert not (await validate_job(deleted(a_job()), managed())).allowed
    assert not (await validate_job(deleted(managed(labels={QUEUE: "No Name"})))).allowed


async def test_what_is_stored_is_not_mutated_again() -> None:
    world = FakeWorld(**DEFAULTS)
    assert (await mutate_job(a_job(), world=world, request={"operation": "UPDATE"})).patch is None


async def test_jobs_of_namespaces_that_are_not_selected_are_left_alone_even_with_a_queue() -> None:
    world = FakeWorld(namespaces={"team": {"team": "web"}, "other": {"team": "ml"}})
    bad = a_job(labels={QUEUE: "Not A Name"})
    for namespace, held in (("team", False), ("other", True)):
        options: dict[str, Any] = {"world": world, "namespace": namespace, "namespace_selector": SELECTED}
        assert ((await mutate_job(managed(), **options)).patch is not None) is held
        assert (await validate_job(bad, **options)).allowed is not held


async def test_without_a_queue_name_a_job_is_held_only_where_all_are_managed() -> None:
    answer = await mutate_job(a_job(), manage_jobs_without_queue_name=True)
    assert answer.patch == [{"op": "add", "path": "/spec/suspend", "value": True}]


@pytest.mark.parametrize("labels", [None, {}, {QUEUE: ""}, {"other": "label"}])
async def test_the_default_queue_takes_jobs_that_name_none(labels: dict[str, str] | None) -> None:
    answer = await mutate_job(a_job(labels=labels), world=FakeWorld(**DEFAULTS))
    assert answer.after["metadata"]["labels"] == {**(labels or {}), QUEUE: "default"}
    assert answer.after["spec"]["suspend"] is True


async def test_a_queue_that_is_named_is_kept_and_the_default_of_another_namespace_is_nothing_to_us() -> None:
    answer = await mutate_job(managed(), world=FakeWorld(**DEFAULTS))
    assert answer.after["metadata"]["labels"] == {QUEUE: "q"}
    elsewhere = await mutate_job(a_job(), world=FakeWorld(local_queues={("other", "default")}))
    assert elsewhere.patch is None


@pytest.mark.parametrize("queue", [{QUEUE: "q"}, {}])
@pytest.mark.parametrize(
    ("labels", "gates", "expected"),
    [
        ({}, {}, "default"),
        ({PRIORITY: ""}, {}, "default"),
        ({PRIORITY: "high"}, {}, "high"),
        ({}, {"WorkloadPriorityClassDefaulting": False}, None),
    ],
)
async def test_the_default_priority_class_is_for_jobs_that_name_none_queued_or_not(
    queue: dict[str, str], labels: dict[str, str], gates: dict[str, bool], expected: str | None
) -> None:
    world = FakeWorld(priority_classes={"default"})
    answer = await mutate_job(a_job(labels={**queue, **labels}), world=world, gates=gates)
    assert answer.after["metadata"].get("labels", {}).get(PRIORITY) == expected
    assert answer.after["spec"].get("suspend") == (True if queue else None)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"namespace": "kube-system"}, id="kube-system"),
        pytest.param({"namespace": "gone"}, id="namespace that does not exist"),
        pytest.param({"integrations": ()}, id="kind switched off"),
        pytest.param({"request": {"operation": "UPDATE"}}, id="job that is there already"),
        pytest.param({"namespace_selector": SELECTED}, id="namespace that is not selected"),
    ],
)
async def test_where_nothing_is_managed_there_is_no_default_priority_class(options: dict[str, Any]) -> None:
    world = FakeWorld(namespaces={"team": {}, "kube-system": {}}, priority_classes={"default"})
    assert (await mutate_job(a_job(), world=world, **options)).patch is None


@pytest.mark.parametrize(("kind", "has_class"), [("Group", False), ("Unknown", True)])
async def test_no_owner_is_asked_for_the_sake_of_a_priority_class(kind: str, has_class: bool) -> None:
    world = FakeWorld(priority_classes={"default"}, owners={"group": a_group(queue="")})
    job = a_job(owner=owned_by("group", kind=kind))
    answer = await mutate_job(job, world=world, external_frameworks=(GROUP_KIND,))
    assert (answer.patch is not None) is has_class
    assert world.asked == []


DISPATCHED = {("team", "q"): {NAMES.multikueue_controller, "example.com/other"}}


@pytest.mark.parametrize(
    ("managed_by", "options", "after"),
    [
        (None, {}, NAMES.multikueue_controller),
        ("kubernetes.io/job-controller", {}, NAMES.multikueue_controller),
        ("example.com/mine", {}, "example.com/mine"),
        (None, {"gates": {"MultiKueue": False}}, None),
        (
            None,
            {"integrations": (replace(JOB, delegation=replace(JOB.delegation, managed_by_path=None)),)},
            None,
        ),
        (
            None,
            {
                "integrations": (
                    replace(JOB, delegation=replace(JOB.delegation, dispatched_as="example.com/other")),
                )
            },
            "example.com/other",
        ),
        (None, {"world": FakeWorld(controllers={("team", "q"): {"example.com/other"}})}, None),
        (None, {"world": FakeWorld(controllers={("other", "q"): {NAMES.multikueue_controller}})}, None),
    ],
)
async def test_a_job_that_is_to_run_in_another_cluster_is_run_here_by_nobody(
    managed_by: str | None, options: dict[str, Any], after: str | None
) -> None:
    spec: dict[str, Any] = {"managedBy": managed_by} if managed_by else {}
    job = a_job(labels={QUEUE: "q"}, **spec)
    integration = options.get("integrations", (JOB,))[0]
    changed = await mutate(
        job,
        "team",
        integration,
        policy(**{key: value for key, value in options.items() if key != "world"}),
        options.get("world", FakeWorld(controllers=DISPATCHED)),
    )
    assert changed["spec"]["suspend"] is True
    assert changed["spec"].get("managedBy") == after


async def test_an_object_that_is_being_deleted_is_let_go_on_updates() -> None:
    """Its owner is gone, which would refuse every other object, and its finalizers must come off."""
    updated = replace(JOB, webhook=replace(JOB.webhook, mutates_updates=True))
    gone = {"apiVersion": "batch/v1", "kind": "Job", "name": "gone", "uid": "u"}
    job = a_job(labels={QUEUE: "q"}, owner=gone)

    async def asked(**options: Any) -> Answer:
        nesting = replace(updated, ownership=replace(updated.ownership, creates=None, differs=never_differs))
        served = routes(policy(integrations=(nesting,), **options), FakeWorld(), (nesting,))
        path = "/mutate-batch-v1-job"
        _, body = await post(served[path], path, review(job, deleted(job)))
        return Answer(200, orjson.loads(body), job)

    let_go = await asked()
    assert let_go.allowed
    assert let_go.patch is None
    assert not (await asked(gates={"SkipAncestorCheckForDeletedWorkloads": False})).allowed


async def test_mutation_holds_when_it_is_repeated() -> None:
    world = FakeWorld(**DEFAULTS, priority_classes={"default"})
    once = await mutate_job(a_job(), world=world)
    assert once.patch
    twice = await mutate_job(once.after, world=world)
    assert twice.patch is None


async def test_a_dry_run_gets_the_same_answer() -> None:
    answer = await mutate_job(managed(), request={"dryRun": True})
    assert answer.after["spec"]["suspend"] is True


async def test_fields_that_we_do_not_know_survive() -> None:
    job = managed(brandNew={"deep": [1, {"er": None}]}, ttlSecondsAfterFinished=2**53)
    answer = await mutate_job(job)
    assert {**answer.after["spec"], "suspend": None} == {**job["spec"], "suspend": None}


# --- owners -----------------------------------------------------------------------------------------

GROUP_KIND = OwnerKind("batch.example.com", "v1", "Group")


def owned_by(name: str, uid: str = "owner-uid", **reference: str) -> dict[str, Any]:
    return {"apiVersion": "batch.example.com/v1", "kind": "Group", "name": name, "uid": uid, **reference}


def a_group(
    *, queue: str = "q", owner: dict[str, Any] | None = None, uid: str = "owner-uid"
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "group", "namespace": "team", "uid": uid}
    metadata["labels"] = {QUEUE: queue} if queue else {}
    if owner:
        metadata["ownerReferences"] = [{"controller": True, **owner}]
    return {"apiVersion": "batch.example.com/v1", "kind": "Group", "metadata": metadata}


async def ask_with_owners(job: dict[str, Any], **owners: Any) -> Any:
    return await mutate_job(
        job, world=FakeWorld(owners=owners), external_frameworks=(GROUP_KIND,), request=BY_OPERATOR
    )


async def test_a_child_of_a_queued_owner_follows_it() -> None:
    answer = await ask_with_owners(managed(owner=owned_by("group")), group=a_group())
    assert answer.patch is None


async def test_a_child_of_a_queued_owner_gets_no_default_queue() -> None:
    world = FakeWorld(**DEFAULTS, owners={"group": a_group()})
    job = a_job(owner=owned_by("group"))
    answer = await mutate_job(job, world=world, external_frameworks=(GROUP_KIND,), request=BY_OPERATOR)
    assert answer.patch is None


@pytest.mark.parametrize(
    ("owner", "found"),
    [
        pytest.param(owned_by("group", uid="forged"), a_group(), id="name of a queued owner, another uid"),
        pytest.param(owned_by("group"), a_group(queue=""), id="owner without a queue"),
        pytest.param(owned_by("group", kind="Unknown"), a_group(), id="kind that nobody manages"),
        pytest.param({**owned_by("group"), "controller": False}, a_group(), id="owner that does not control"),
        pytest.param(
            {"apiVersion": "batch/v1", "kind": "Job", "name": "group", "uid": "owner-uid"},
            {**managed(), "metadata": {**managed()["metadata"], "uid": "owner-uid"}},
            id="true reference to an admitted Job: Jobs make no Jobs",
        ),
    ],
)
async def test_a_forged_owner_reference_frees_no_job(owner: dict[str, Any], found: dict[str, Any]) -> None:
    answer = await ask_with_owners(managed(owner=owner), group=found)
    assert answer.after["spec"]["suspend"] is True


async def test_the_owner_is_looked_for_in_the_namespace_of_the_request() -> None:
    job = managed(owner=owned_by("group"))
    job["metadata"]["namespace"] = "other"
    world = FakeWorld(owners={"group": a_group()})
    await mutate_job(job, world=world, external_frameworks=(GROUP_KIND,))
    assert world.asked == ["batch.example.com/v1 Group team/group"]


async def test_an_owner_that_does_not_exist_is_refused() -> None:
    answer = await ask_with_owners(managed(owner=owned_by("group")))
    assert not answer.allowed
    assert answer.message.startswith("metadata.ownerReferences: ")


async def test_a_cycle_of_owners_is_refused() -> None:
    cycle = a_group(owner=owned_by("group"))
    answer = await ask_with_owners(managed(owner=owned_by("group")), group=cycle)
    assert not answer.allowed
    assert "nested too deep" in answer.message


async def test_an_owner_is_asked_for_only_when_the_job_would_be_held() -> None:
    world = FakeWorld(owners={})
    answer = await mutate_job(a_job(owner=owned_by("group")), world=world, external_frameworks=(GROUP_KIND,))
    assert answer.patch is None
    assert world.asked == []


# --- validation on creation -------------------------------------------------------------------------

GATED = NAMES.admission_gated_by
MAX_TIME = NAMES.max_exec_time
PREBUILT = NAMES.prebuilt_workload_name
ELASTIC = NAMES.elastic_job


@pytest.mark.parametrize(("on", "refused"), [(True, "annotations"), (False, "labels")])
async def test_the_gate_says_whether_the_annotation_or_the_label_names_the_workload(
    on: bool, refused: str
) -> None:
    gates = {"WorkloadIdentifierAnnotations": on}
    job = managed(labels={PREBUILT: "Label"}, annotations={PREBUILT: "Annotation"})
    answer = await validate_job(job, gates=gates)
    assert answer.message.startswith(f"metadata.{refused}[{PREBUILT}]: ")
    long = await validate_job(managed(annotations={PREBUILT: "L" * 64}), gates=gates)
    assert long.message.startswith(f"metadata.annotations[{PREBUILT}]: ")
    short = await validate_job(managed(annotations={PREBUILT: "Short"}), gates=gates)
    assert short.allowed is not on


@pytest.mark.parametrize(
    "job",
    [
        a_job(),
        managed(),
        managed(labels={QUEUE: "a" * 63}),
        managed(labels={MAX_TIME: "1"}),
        managed(labels={PREBUILT: "ready-made"}),
        managed(annotations={PREBUILT: "r" * 253}),
        managed(annotations={ELASTIC: "true"}),
        managed(annotations={ELASTIC: "false"}),
        managed(annotations={GATED: "example.com/a,example.com/b/c"}),
        managed(annotations={GATED: ""}),
        managed(annotations={NAMES.job_min_parallelism: "3"}),
        managed(annotations={NAMES.job_completions_equal_parallelism: "true"}, completionMode="Indexed"),
    ],
)
async def test_valid_jobs_are_created(job: Any) -> None:
    assert (await validate_job(job)).response == {"uid": "the-uid", "allowed": True}


@pytest.mark.parametrize(
    ("job", "field", "says"),
    [
        (managed(labels={QUEUE: "Team A"}), f"metadata.labels[{QUEUE}]", "lower case"),
        (managed(labels={QUEUE: "a" * 254}), f"metadata.labels[{QUEUE}]", "253"),
        (managed(labels={MAX_TIME: "0"}), f"metadata.labels[{MAX_TIME}]", "should be greater than 0"),
        (managed(labels={MAX_TIME: "-5"}), f"metadata.labels[{MAX_TIME}]", "should be greater than 0"),
        (managed(labels={MAX_TIME: "1h"}), f"metadata.labels[{MAX_TIME}]", "whole number"),
        (managed(labels={MAX_TIME: "\uff11"}), f"metadata.labels[{MAX_TIME}]", "whole number"),
        (managed(labels={MAX_TIME: "2147483648"}), f"metadata.labels[{MAX_TIME}]", "less than 2147483648"),
        (managed(labels={PREBUILT: "Ready"}), f"metadata.labels[{PREBUILT}]", "lower case"),
        (managed(annotations={PREBUILT: ""}), f"metadata.annotations[{PREBUILT}]", "Invalid value"),
        (managed(annotations={GATED: "a"}), f"metadata.annotations[{GATED}]", "domain-prefixed"),
        (managed(annotations={GATED: "a.b/"}), f"metadata.annotations[{GATED}]", "domain-prefixed"),
        (managed(annotations={GATED: "A_B/c"}), f"metadata.annotations[{GATED}]", "prefix part"),
        (managed(annotations={GATED: "a.b/c,"}), f"metadata.annotations[{GATED}]", "cannot be empty"),
        (managed(annotations={GATED: "a.b/c,a.b/c"}), f"metadata.annotations[{GATED}]", "Duplicate value"),
        (managed(annotations={GATED: "a.b/" + "c" * 60}), f"metadata.annotations[{GATED}]", "63"),
        (managed(annotations={GATED: "a.b/c d"}), f"metadata.annotations[{GATED}]", "URL"),
        (
            managed(annotations={NAMES.job_min_parallelism: "4"}),
            f"metadata.annotations[{NAMES.job_min_parallelism}]",
            "should be between 0 and 3",
        ),
        (
            managed(annotations={NAMES.job_completions_equal_parallelism: "true"}),
            f"metadata.annotations[{NAMES.job_completions_equal_parallelism}]",
            "NonIndexed",
        ),
    ],
)
async def test_a_wrong_job_is_refused_with_the_field_and_the_reason(job: Any, field: str, says: str) -> None:
    answer = await validate_job(job)
    assert not answer.allowed
    assert answer.message.startswith(f"{field}: ")
    assert says in answer.message


async def test_what_a_kind_cannot_do_is_refused() -> None:
    plain = replace(
        JOB,
        delegation=replace(JOB.delegation, adopts_prebuilt_workload=False),
        scaling=replace(JOB.scaling, can_be_elastic=False),
    )
    handler = routes(policy(integrations=(plain,)), FakeWorld(), (plain,))["/validate-batch-v1-job"]
    job = managed(labels={PREBUILT: "w"}, annotations={ELASTIC: "true"})
    _, body = await post(handler, "/validate-batch-v1-job", review(job))
    message = orjson.loads(body)["response"]["status"]["message"]
    assert f"metadata.labels[{PREBUILT}]: Forbidden: Is not supported for batch/v1, Kind=Job" in message
    assert f"metadata.annotations[{ELASTIC}]: Forbidden: " in message


RAY_GROUPS = "spec.rayClusterSpec.workerGroupSpecs"
BEYOND = "19: a Workload has at most 18 podsets; put pods of several together, or make several jobs"
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "c", "image": "i"}]}}


def groups(number: int, **spec: Any) -> dict[str, Any]:
    workers = [{"groupName": f"g{index}", "template": TEMPLATE} for index in range(number)]
    cluster = {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": workers}
    return {"shutdownAfterJobFinishes": True, "rayClusterSpec": cluster, **spec}


def wrapped(number: int) -> dict[str, Any]:
    """As many podsets in one object as are declared beside it."""
    template = {"spec": {"template": TEMPLATE, "parallelism": 1}}
    jobs = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "spec": {"replicatedJobs": [{"name": f"j{index}", "template": template} for index in range(number)]},
    }
    paths = [
        {"path": f"template.spec.replicatedJobs[{index}].template.spec.template"} for index in range(number)
    ]
    return {"components": [{"template": jobs, "podSets": paths}]}


def replicated(number: int) -> dict[str, Any]:
    job = {"spec": {"template": TEMPLATE}}
    return {"replicatedJobs": [{"name": f"j{index}", "template": job} for index in range(number)]}


def tasks(number: int) -> dict[str, Any]:
    return {"tasks": [{"name": f"t{index}", "template": TEMPLATE} for index in range(number)]}


@pytest.mark.parametrize(
    ("framework", "most", "beyond", "field", "says"),
    [
        # The head and the pod that submits the job are podsets too.
        ("ray.io/rayjob", groups(16), groups(17), RAY_GROUPS, "17: must have at most 16 items"),
        (
            "ray.io/rayjob",
            groups(17, submissionMode="HTTPMode"),
            groups(18, submissionMode="HTTPMode"),
            RAY_GROUPS,
            "18: must have at most 17 items",
        ),
        (
            "ray.io/raycluster",
            groups(17)["rayClusterSpec"],
            groups(18)["rayClusterSpec"],
            "spec.workerGroupSpecs",
            "18: must have at most 17 items",
        ),
        ("jobset.x-k8s.io/jobset", replicated(18), replicated(19), "spec.replicatedJobs", BEYOND),
        ("workload.codeflare.dev/appwrapper", wrapped(18), wrapped(19), "spec.components", BEYOND),
        ("tasks.example.com/job", tasks(18), tasks(19), "spec.tasks", BEYOND),
    ],
)
def test_a_job_of_more_podsets_than_a_workload_may_have_is_refused(
    framework: str, most: dict[str, Any], beyond: dict[str, Any], field: str, says: str
) -> None:
    (kind,) = (one for one in (*registered(), *custom_kinds()) if one.framework == framework)
    ours = policy(integrations=(kind,))

    def job(spec: dict[str, Any], **labels: str) -> dict[str, Any]:
        metadata = {"name": "j", "namespace": "team", "labels": labels}
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}

    def change(old: dict[str, Any], new: dict[str, Any]) -> list[FieldError]:
        return validate_update(old, new, "team", kind, ours, FakeWorld())

    queue = {QUEUE: "q"}
    assert validate_create(job(most, **queue), kind, ours) == []
    (error,) = validate_create(job(beyond, **queue), kind, ours)
    assert f"{error.path}: {error.message}" == f"{field}: Too many: {says}"
    assert validate_create(job(beyond), kind, ours) == []
    assert error in change(job(most, **queue), job(beyond, **queue))
    assert error in change(job(beyond), job(beyond, **queue))
    assert error not in change(job(beyond), job(beyond, x="y"))


def test_a_job_that_had_too_many_podsets_before_we_looked_at_it_is_let_go() -> None:
    old = {"metadata": {"name": "j", "labels": {QUEUE: "q"}}, "spec": replicated(19)}
    new = {**old, "metadata": {**old["metadata"], "finalizers": []}}
    ours = policy(integrations=(JOBSET,))
    assert validate_update(old, new, "team", JOBSET, ours, FakeWorld()) == []


def partial(pods: int, *, suspend: bool, minimum: str = "2") -> dict[str, Any]:
    annotations = {NAMES.job_min_parallelism: minimum}
    return managed(suspend=suspend, parallelism=pods, completions=5, annotations=annotations)


def half_stopped(job: dict[str, Any]) -> dict[str, Any]:
    metadata = job["metadata"]
    annotations = {**metadata["annotations"], NAMES.stopping: "true"}
    return {**job, "metadata": {**metadata, "annotations": annotations}}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        pytest.param(partial(2, suspend=False), partial(2, suspend=True), "", id="stop with fewest"),
        pytest.param(
            partial(2, suspend=False), half_stopped(partial(2, suspend=True)), "", id="first step of a stop"
        ),
        pytest.param(
            half_stopped(partial(2, suspend=True)), partial(5, suspend=True), "", id="last step of a stop"
        ),
        pytest.param(partial(2, suspend=True), partial(5, suspend=True), "", id="restore"),
        pytest.param(
            partial(2, suspend=False, minimum="x"),
            partial(2, suspend=True, minimum="x"),
            "",
            id="stop stored",
        ),
        pytest.param(
            partial(5, suspend=True), partial(2, suspend=True), "should be between 0 and 1", id="shrink"
        ),
        pytest.param(
            partial(5, suspend=False),
            partial(2, suspend=True),
            "should be between 0 and 1",
            id="shrink and stop",
        ),
    ],
)
def test_job_is_suspended_whatever_errors_it_was_stored_with(
    old: dict[str, Any], new: dict[str, Any], says: str
) -> None:
    errors = validate_update(old, new, "team", JOB, policy(), FakeWorld())
    assert [says in str(error) for error in errors] == ([True] if says else [])


def test_rayjob_that_keeps_its_cluster_is_suspended_but_neither_started_nor_queued() -> None:
    (kind,) = (one for one in registered() if one.framework == "ray.io/rayjob")
    ours = policy(integrations=(kind,))

    def job(queue: str = "q", **spec: Any) -> dict[str, Any]:
        labels = {QUEUE: queue} if queue else {}
        return {"metadata": {"name": "j", "labels": labels}, "spec": groups(1, **spec)}

    def refused(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
        return [error.path for error in validate_update(old, new, "team", kind, ours, FakeWorld())]

    runs, waits, unqueued = (
        job(queue, suspend=suspended, shutdownAfterJobFinishes=False)
        for queue, suspended in (("q", False), ("q", True), ("", True))
    )
    assert refused(runs, waits) == []
    for before, after in ((waits, runs), (unqueued, waits), (job(suspend=True), waits)):
        assert refused(before, after) == ["spec.shutdownAfterJobFinishes"]


# --- increases of running jobs ----------------------------------------------------------------------


def requesting(cpu: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {}, "spec": {"containers": [container]}}


def running_job(pods: int = 4, cpu: str = "1", **options: Any) -> dict[str, Any]:
    suspended = options.pop("suspend", False)
    return managed(suspend=suspended, parallelism=pods, completions=50, template=requesting(cpu), **options)


REJECTS: dict[str, Any] = {"rejects_increases": True}
MORE_PODS = "spec: Forbidden: podset main asks for 5 pods, 4 admitted; suspend the job first"
MORE_CPU = "spec.template: Forbidden: pods of podset main ask for more cpu than was admitted; suspend the job"


@pytest.mark.parametrize(
    ("old", "new", "ours", "says"),
    [
        pytest.param(running_job(), running_job(5), REJECTS, MORE_PODS, id="more pods"),
        pytest.param(running_job(), running_job(cpu="1100m"), REJECTS, MORE_CPU, id="larger pods"),
        pytest.param(running_job(), running_job(5), {}, "", id="off by default"),
        pytest.param(running_job(), running_job(4, "1000m"), REJECTS, "", id="the same"),
        pytest.param(running_job(), running_job(3, "500m"), REJECTS, "", id="less"),
        pytest.param(running_job(suspend=True), running_job(5, suspend=True), REJECTS, "", id="suspended"),
        pytest.param(running_job(), running_job(5, suspend=True), REJECTS, "", id="suspended as well"),
        pytest.param(
            running_job(annotations={ELASTIC: "true"}),
            running_job(5, annotations={ELASTIC: "true"}),
            REJECTS,
            "",
            id="elastic",
        ),
        pytest.param(
            running_job(annotations={ELASTIC: "true"}),
            running_job(5, annotations={ELASTIC: "true"}),
            {**REJECTS, "gates": {"ElasticJobsViaWorkloadSlices": False}},
            MORE_PODS,
            id="elastic without the gate",
        ),
        pytest.param(
            running_job(labels={QUEUE: ""}), running_job(5, labels={QUEUE: ""}), REJECTS, "", id="no queue"
        ),
    ],
)
def test_increase_of_running_job_is_rejected_where_configured(
    old: dict[str, Any], new: dict[str, Any], ours: dict[str, Any], says: str
) -> None:
    found = validate_update(old, new, "team", JOB, policy(**ours), FakeWorld())
    assert [f"{one.path}: {one.message}"[: len(says)] for one in found] == ([says] if says else [])


# --- validation of changes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(
            managed(suspend=True), managed(labels={QUEUE: "r"}, suspend=True), id="queue, suspended"
        ),
        pytest.param(managed(suspend=True), a_job(suspend=True), id="queue taken off, suspended"),
        pytest.param(managed(suspend=True), managed(suspend=False), id="start"),
        pytest.param(managed(), managed(labels={"x": "y"}), id="other label while running"),
        pytest.param(
            managed(labels={PRIORITY: "a"}),
            managed(labels={PRIORITY: "b"}),
            id="priority class while running",
        ),
        pytest.param(
            managed(suspend=True),
            managed(labels={PRIORITY: "b"}, suspend=True),
            id="priority class, suspended",
        ),
        pytest.param(
            managed(suspend=True), managed(labels={MAX_TIME: "5"}, suspend=True), id="time limit, suspended"
        ),
        pytest.param(
            managed(suspend=True), managed(labels={PREBUILT: "w"}, suspend=True), id="prebuilt, suspended"
        ),
        pytest.param(
            managed(annotations={ELASTIC: "true"}),
            managed(annotations={ELASTIC: "true"}, labels={PREBUILT: "w"}),
            id="prebuilt of a running elastic job",
        ),
        pytest.param(
            managed(annotations={GATED: "a.b/c,a.b/d"}),
            managed(annotations={GATED: "a.b/d"}),
            id="one gate less",
        ),
        pytest.param(managed(annotations={GATED: "a.b/c"}), managed(), id="no gate left"),
        pytest.param(
            managed(annotations={GATED: "bad"}),
            managed(annotations={GATED: "bad"}),
            id="gate of before our time",
        ),
        pytest.param(
            a_job(template_annotations={NAMES.podset_slice_size: "x"}),
            a_job(template_annotations={NAMES.podset_slice_size: "x"}, labels={"x": "y"}),
            id="topology request of before our time",
        ),
        pytest.param(deleted(managed()), a_job(), id="being deleted"),
    ],
)
async def test_valid_changes_are_made(old: Any, new: Any) -> None:
    assert (await validate_job(new, old)).response == {"uid": "the-uid", "allowed": True}


@pytest.mark.parametrize(
    ("old", "new", "field", "says"),
    [
        (managed(), managed(labels={QUEUE: "r"}), f"metadata.labels[{QUEUE}]", "field is immutable"),
        (managed(), a_job(), f"metadata.labels[{QUEUE}]", "field is immutable"),
        (managed(), a_job(labels={QUEUE: ""}), f"metadata.labels[{QUEUE}]", "field is immutable"),
        (a_job(), managed(), f"metadata.labels[{QUEUE}]", "field is immutable"),
        (
            managed(suspend=True),
            managed(labels={QUEUE: "r"}, suspend=False),
            f"metadata.labels[{QUEUE}]",
            "field is immutable",
        ),
        (
            managed(suspend=True),
            managed(labels={QUEUE: "No Name"}, suspend=True),
            f"metadata.labels[{QUEUE}]",
            "lower case",
        ),
        (
            managed(),
            managed(labels={PRIORITY: "a"}),
            f"metadata.labels[{PRIORITY}]",
            "WorkloadPriorityClass cannot be added to a non-suspended workload",
        ),
        (
            managed(labels={PRIORITY: "a"}, suspend=True),
            managed(suspend=True),
            f"metadata.labels[{PRIORITY}]",
            "WorkloadPriorityClass cannot be removed from a workload",
        ),
        (
            managed(suspend=True),
            managed(labels={MAX_TIME: "5"}, suspend=False),
            f"metadata.labels[{MAX_TIME}]",
            "field is immutable",
        ),
        (
            managed(suspend=False),
            managed(labels={MAX_TIME: "5"}, suspend=True),
            f"metadata.labels[{MAX_TIME}]",
            "field is immutable",
        ),
        (
            managed(suspend=True),
            managed(labels={MAX_TIME: "0"}, suspend=True),
            f"metadata.labels[{MAX_TIME}]",
            "should be greater than 0",
        ),
        (managed(), managed(labels={PREBUILT: "w"}), f"metadata.labels[{PREBUILT}]", "field is immutable"),
        (
            managed(labels={PREBUILT: "w"}),
            managed(annotations={PREBUILT: "v"}),
            f"metadata.annotations[{PREBUILT}]",
            "field is immutable",
        ),
        (
            managed(suspend=True),
            managed(annotations={ELASTIC: "true"}, suspend=True),
            f"metadata.annotations[{ELASTIC}]",
            "field is immutable",
        ),
        (
            managed(),
            managed(annotations={GATED: "a.b/c"}),
            f"metadata.annotations[{GATED}]",
            "cannot add admission gate after creation",
        ),
        (
            managed(annotations={GATED: "a.b/c"}),
            managed(annotations={GATED: "a.b/c,a.b/d"}),
            f"metadata.annotations[{GATED}]",
            "can only remove gates, not add new ones",
        ),
        (
            managed(annotations={NAMES.job_min_parallelism: "2"}, suspend=False),
            managed(annotations={NAMES.job_min_parallelism: "2"}, suspend=False, parallelism=3),
            "spec.parallelism",
            "cannot change when partial admission is enabled",
        ),
    ],
)
async def test_a_wrong_change_is_refused_with_the_field_and_the_reason(
    old: Any, new: Any, field: str, says: str
) -> None:
    answer = await validate_job(new, old)
    assert not answer.allowed
    assert answer.message.startswith(f"{field}: ")
    assert says in answer.message


async def test_a_queue_cannot_be_taken_off_where_there_is_a_default_one() -> None:
    world = FakeWorld(**DEFAULTS)
    answer = await validate_job(a_job(suspend=True), managed(suspend=True), world=world)
    assert "queue-name must not be empty in namespace with default queue" in answer.message
    unmanaged = await validate_job(a_job(labels={"x": "y"}), a_job(), world=world)
    assert unmanaged.allowed


async def test_gates_are_not_looked_at_while_their_feature_is_off() -> None:
    job = managed(annotations={GATED: "bad"})
    assert (await validate_job(job, gates={"AdmissionGatedBy": False})).allowed


async def test_several_errors_are_told_together() -> None:
    answer = await validate_job(managed(labels={QUEUE: "No Name", MAX_TIME: "0"}))
    assert answer.message.startswith("[metadata.labels")
    fields = [cause["field"] for cause in answer.response["status"]["details"]["causes"]]
    assert fields == [f"metadata.labels[{QUEUE}]", f"metadata.labels[{MAX_TIME}]"]


# --- sequences of changes ---------------------------------------------------------------------------

EDITS = st.sampled_from(
    [(("metadata", "labels", QUEUE), value) for value in (None, "", "q", "r", 7)]
    + [(("metadata", "labels"), value) for value in (None, {}, {QUEUE: "s"})]
    + [(("metadata", "labels", PRIORITY), value) for value in (None, "", "a", "b")]
    + [(("metadata", "labels", MAX_TIME), value) for value in (None, "1", "2", "0")]
    + [(("metadata", "annotations", ELASTIC), value) for value in (None, "true", "false")]
    + [(("metadata", "annotations", GATED), value) for value in (None, "", "a.b/c", "a.b/c,a.b/d")]
    + [(("spec", "suspend"), value) for value in (None, True, False)]
)


def edited(job: dict[str, Any], edits: list[tuple[tuple[str, ...], Any]]) -> dict[str, Any]:
    changed = orjson.loads(orjson.dumps(job))
    for path, value in edits:
        parent = changed
        for step in path[:-1]:
            if not isinstance(parent.get(step), dict):
                parent[step] = {}
            parent = parent[step]
        if value is None:
            parent.pop(path[-1], None)
        else:
            parent[path[-1]] = value
    return changed


def seen(job: dict[str, Any], *path: str) -> Any:
    found: Any = job
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    return found if isinstance(found, str) and found else None


@settings(max_examples=120, deadline=None)
@given(
    start=st.lists(EDITS, max_size=4),
    updates=st.lists(st.lists(EDITS, min_size=1, max_size=3), min_size=1, max_size=10),
    has_default=st.booleans(),
)
async def test_no_sequence_of_changes_moves_a_running_job_or_strips_it(
    start: list[Any], updates: list[list[Any]], has_default: bool
) -> None:
    world = FakeWorld(**(DEFAULTS if has_default else {}))
    job = edited(managed(), start)
    for edits in updates:
        changed = edited(job, edits)
        if not (await validate_job(changed, job, world=world)).allowed:
            continue
        running = changed["spec"].get("suspend") is not True
        was_running = job["spec"].get("suspend") is not True
        before, after = (seen(one, "metadata", "labels", QUEUE) for one in (job, changed))
        if running:
            assert before == after
        if has_default and before:
            assert after
        times = [seen(one, "metadata", "labels", MAX_TIME) for one in (job, changed)]
        if running or was_running:
            assert times[0] == times[1]
        classes = [seen(one, "metadata", "labels", PRIORITY) for one in (job, changed)]
        assert not (classes[0] and not classes[1])
        assert not (running and not classes[0] and classes[1])
        elastic = [seen(one, "metadata", "annotations", ELASTIC) == "true" for one in (job, changed)]
        assert elastic[0] == elastic[1]
        gates = [
            set((seen(one, "metadata", "annotations", GATED) or "").split(",")) for one in (job, changed)
        ]
        assert gates[1] - {""} <= gates[0]
        job = changed


@pytest.mark.parametrize(
    "framework",
    ["ray.io/rayjob", "ray.io/raycluster", "ray.io/rayservice", "sparkoperator.k8s.io/sparkapplication"],
)
def test_d23_update_of_a_job_that_left_its_queue_is_not_validated_without_the_gate(framework: str) -> None:
    (kind,) = (one for one in registered() if one.framework == framework)

    def change(gate: bool, before: dict[str, str], after: dict[str, str], **more: Any) -> list[FieldError]:
        gates = {"ValidateRayAndSparkJobUpdates": gate}
        ours = policy(integrations=(kind,), gates=gates, **more)
        old, new = ({"metadata": {"name": "j", "labels": labels}, "spec": {}} for labels in (before, after))
        return validate_update(old, new, "team", kind, ours, FakeWorld(local_queues={("team", "default")}))

    queued = {QUEUE: "q", PRIORITY: "p", NAMES.max_exec_time: "5"}
    assert change(False, queued, {}) == []
    paths = {error.path for error in change(True, queued, {})}
    assert paths >= {f"metadata.labels[{key}]" for key in queued}
    assert change(False, queued, {}, manage_jobs_without_queue_name=True)
    assert change(False, queued, {QUEUE: "other"})
