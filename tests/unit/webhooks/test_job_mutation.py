"""The mutating webhook of jobs: which jobs are suspended, and which defaults they get."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from admitq.core.model import LabelSelector, SelectorOperator, SelectorRequirement
from admitq.integrations.base import accept_every_child
from admitq.integrations.kinds.job import JOB
from admitq_webhooks.mutate import jobs
from admitq_webhooks.routes import review_handlers
from tests.unit.webhooks.job_requests import DEFAULTS, GROUP_KIND, a_group, deleted, managed, owned_by
from tests.unit.webhooks.support import (
    NAMES,
    PRIORITY,
    QUEUE,
    Answer,
    FakeLookups,
    a_job,
    mutate_job,
    policy,
    post,
    review,
    validate_job,
)

SELECTED = LabelSelector((SelectorRequirement("team", SelectorOperator.IN, ("ml",)),))


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
    lookups = FakeLookups(namespaces={"team": {}, "kube-system": {}, "admitq-system": {}})
    answer = await mutate_job(job, lookups=lookups, **options)
    assert answer.response == {"uid": "the-uid", "allowed": True}


async def test_a_request_is_not_believed_that_its_object_is_being_deleted() -> None:
    assert (await mutate_job(deleted(managed()))).after["spec"]["suspend"] is True
    assert not (await validate_job(deleted(a_job()), managed())).allowed
    assert not (await validate_job(deleted(managed(labels={QUEUE: "No Name"})))).allowed


async def test_what_is_stored_is_not_mutated_again() -> None:
    lookups = FakeLookups(**DEFAULTS)
    assert (await mutate_job(a_job(), lookups=lookups, request={"operation": "UPDATE"})).patch is None


async def test_jobs_of_namespaces_that_are_not_selected_are_left_alone_even_with_a_queue() -> None:
    lookups = FakeLookups(namespaces={"team": {"team": "web"}, "other": {"team": "ml"}})
    bad = a_job(labels={QUEUE: "Not A Name"})
    for namespace, held in (("team", False), ("other", True)):
        options: dict[str, Any] = {"lookups": lookups, "namespace": namespace, "namespace_selector": SELECTED}
        assert ((await mutate_job(managed(), **options)).patch is not None) is held
        assert (await validate_job(bad, **options)).allowed is not held


async def test_without_a_queue_name_a_job_is_held_only_where_all_are_managed() -> None:
    answer = await mutate_job(a_job(), manage_jobs_without_queue_name=True)
    assert answer.patch == [{"op": "add", "path": "/spec/suspend", "value": True}]


@pytest.mark.parametrize("labels", [None, {}, {QUEUE: ""}, {"other": "label"}])
async def test_the_default_queue_takes_jobs_that_name_none(labels: dict[str, str] | None) -> None:
    answer = await mutate_job(a_job(labels=labels), lookups=FakeLookups(**DEFAULTS))
    assert answer.after["metadata"]["labels"] == {**(labels or {}), QUEUE: "default"}
    assert answer.after["spec"]["suspend"] is True


async def test_a_queue_that_is_named_is_kept_and_the_default_of_another_namespace_is_nothing_to_us() -> None:
    answer = await mutate_job(managed(), lookups=FakeLookups(**DEFAULTS))
    assert answer.after["metadata"]["labels"] == {QUEUE: "q"}
    elsewhere = await mutate_job(a_job(), lookups=FakeLookups(local_queues={("other", "default")}))
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
    lookups = FakeLookups(priority_classes={"default"})
    answer = await mutate_job(a_job(labels={**queue, **labels}), lookups=lookups, gates=gates)
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
    lookups = FakeLookups(namespaces={"team": {}, "kube-system": {}}, priority_classes={"default"})
    assert (await mutate_job(a_job(), lookups=lookups, **options)).patch is None


@pytest.mark.parametrize(("kind", "has_class"), [("Group", False), ("Unknown", True)])
async def test_no_owner_is_asked_for_the_sake_of_a_priority_class(kind: str, has_class: bool) -> None:
    lookups = FakeLookups(priority_classes={"default"}, owners={"group": a_group(queue="")})
    job = a_job(owner=owned_by("group", kind=kind))
    answer = await mutate_job(job, lookups=lookups, external_frameworks=(GROUP_KIND,))
    assert (answer.patch is not None) is has_class
    assert lookups.asked == []


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
                    replace(JOB, delegation=replace(JOB.delegation, dispatch_controller="example.com/other")),
                )
            },
            "example.com/other",
        ),
        (None, {"lookups": FakeLookups(controllers={("team", "q"): {"example.com/other"}})}, None),
        (None, {"lookups": FakeLookups(controllers={("other", "q"): {NAMES.multikueue_controller}})}, None),
    ],
)
async def test_job_for_another_cluster_is_not_run_here(
    managed_by: str | None, options: dict[str, Any], after: str | None
) -> None:
    spec: dict[str, Any] = {"managedBy": managed_by} if managed_by else {}
    job = a_job(labels={QUEUE: "q"}, **spec)
    integration = options.get("integrations", (JOB,))[0]
    changed = await jobs.mutate_job(
        job,
        "team",
        integration,
        policy(**{key: value for key, value in options.items() if key != "lookups"}),
        options.get("lookups", FakeLookups(controllers=DISPATCHED)),
    )
    assert changed["spec"]["suspend"] is True
    assert changed["spec"].get("managedBy") == after


async def test_an_object_that_is_being_deleted_is_let_go_on_updates() -> None:
    """Its owner is gone, which would refuse every other object, and its finalizers must come off."""
    updated = replace(JOB, webhook=replace(JOB.webhook, mutates_updates=True))
    gone = {"apiVersion": "batch/v1", "kind": "Job", "name": "gone", "uid": "u"}
    job = a_job(labels={QUEUE: "q"}, owner=gone)

    async def asked(**options: Any) -> Answer:
        nesting = replace(
            updated,
            ownership=replace(updated.ownership, created_kinds=None, compare_child=accept_every_child),
        )
        served = review_handlers(policy(integrations=(nesting,), **options), FakeLookups(), (nesting,))
        path = "/mutate-batch-v1-job"
        _, body = await post(served[path], path, review(job, deleted(job)))
        return Answer(200, orjson.loads(body), job)

    let_go = await asked()
    assert let_go.allowed
    assert let_go.patch is None
    assert not (await asked(gates={"SkipAncestorCheckForDeletedWorkloads": False})).allowed


async def test_mutation_holds_when_it_is_repeated() -> None:
    lookups = FakeLookups(**DEFAULTS, priority_classes={"default"})
    once = await mutate_job(a_job(), lookups=lookups)
    assert once.patch
    twice = await mutate_job(once.after, lookups=lookups)
    assert twice.patch is None


async def test_a_dry_run_gets_the_same_answer() -> None:
    answer = await mutate_job(managed(), request={"dryRun": True})
    assert answer.after["spec"]["suspend"] is True


async def test_fields_that_we_do_not_know_survive() -> None:
    job = managed(brandNew={"deep": [1, {"er": None}]}, ttlSecondsAfterFinished=2**53)
    answer = await mutate_job(job)
    assert {**answer.after["spec"], "suspend": None} == {**job["spec"], "suspend": None}
