"""Mutation of jobs: which jobs are suspended, and which defaults they get."""

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


async def test_job_with_queue_is_suspended_and_otherwise_unchanged() -> None:
    job = managed()
    answer = await mutate_job(job)
    assert answer.patch == [{"op": "add", "path": "/spec/suspend", "value": True}]


async def test_job_with_suspend_false_is_suspended() -> None:
    answer = await mutate_job(managed(suspend=False))
    assert answer.patch == [{"op": "replace", "path": "/spec/suspend", "value": True}]


async def test_suspended_job_gets_no_patch() -> None:
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
        pytest.param(managed(), {"namespace": "admitq-system"}, id="namespace of admitq"),
        pytest.param(managed(), {"namespace": "gone"}, id="namespace that does not exist"),
        pytest.param(managed(), {"integrations": ()}, id="kind disabled"),
        pytest.param(
            a_job(),
            {"namespace": "kube-system", "manage_jobs_without_queue_name": True},
            id="kube-system, all jobs managed",
        ),
    ],
)
async def test_unmanaged_job_gets_no_patch(job: Any, options: dict[str, Any]) -> None:
    lookups = FakeLookups(namespaces={"team": {}, "kube-system": {}, "admitq-system": {}})
    answer = await mutate_job(job, lookups=lookups, **options)
    assert answer.response == {"uid": "the-uid", "allowed": True}


async def test_deletion_timestamp_in_request_does_not_bypass_review() -> None:
    assert (await mutate_job(deleted(managed()))).after["spec"]["suspend"] is True
    assert not (await validate_job(deleted(a_job()), managed())).allowed
    assert not (await validate_job(deleted(managed(labels={QUEUE: "No Name"})))).allowed


async def test_update_of_job_is_not_mutated() -> None:
    lookups = FakeLookups(**DEFAULTS)
    assert (await mutate_job(a_job(), lookups=lookups, request={"operation": "UPDATE"})).patch is None


async def test_job_in_unselected_namespace_is_neither_suspended_nor_validated() -> None:
    lookups = FakeLookups(namespaces={"team": {"team": "web"}, "other": {"team": "ml"}})
    invalid = a_job(labels={QUEUE: "Not A Name"})
    for namespace, is_selected in (("team", False), ("other", True)):
        options: dict[str, Any] = {"lookups": lookups, "namespace": namespace, "namespace_selector": SELECTED}
        assert ((await mutate_job(managed(), **options)).patch is not None) is is_selected
        assert (await validate_job(invalid, **options)).allowed is not is_selected


async def test_job_without_queue_is_suspended_if_all_jobs_are_managed() -> None:
    answer = await mutate_job(a_job(), manage_jobs_without_queue_name=True)
    assert answer.patch == [{"op": "add", "path": "/spec/suspend", "value": True}]


@pytest.mark.parametrize("labels", [None, {}, {QUEUE: ""}, {"other": "label"}])
async def test_job_without_queue_gets_default_queue(labels: dict[str, str] | None) -> None:
    answer = await mutate_job(a_job(labels=labels), lookups=FakeLookups(**DEFAULTS))
    assert answer.after["metadata"]["labels"] == {**(labels or {}), QUEUE: "default"}
    assert answer.after["spec"]["suspend"] is True


async def test_queue_of_job_is_kept_despite_default_queue() -> None:
    answer = await mutate_job(managed(), lookups=FakeLookups(**DEFAULTS))
    assert answer.after["metadata"]["labels"] == {QUEUE: "q"}


async def test_default_queue_of_other_namespace_is_ignored() -> None:
    answer = await mutate_job(a_job(), lookups=FakeLookups(local_queues={("other", "default")}))
    assert answer.patch is None


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
async def test_job_without_priority_class_gets_default_with_or_without_queue(
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
        pytest.param({"integrations": ()}, id="kind disabled"),
        pytest.param({"request": {"operation": "UPDATE"}}, id="update"),
        pytest.param({"namespace_selector": SELECTED}, id="namespace that is not selected"),
    ],
)
async def test_unmanaged_job_gets_no_default_priority_class(options: dict[str, Any]) -> None:
    lookups = FakeLookups(namespaces={"team": {}, "kube-system": {}}, priority_classes={"default"})
    assert (await mutate_job(a_job(), lookups=lookups, **options)).patch is None


@pytest.mark.parametrize(("kind", "has_class"), [("Group", False), ("Unknown", True)])
async def test_owner_is_not_read_for_default_priority_class(kind: str, has_class: bool) -> None:
    lookups = FakeLookups(priority_classes={"default"}, objects={"group": a_group(queue="")})
    job = a_job(owner=owned_by("group", kind=kind))
    answer = await mutate_job(job, lookups=lookups, external_frameworks=(GROUP_KIND,))
    assert (answer.patch is not None) is has_class
    assert lookups.object_requests == []


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
async def test_managed_by_of_job_is_set_for_multikueue_queue(
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


async def test_update_of_job_in_deletion_is_accepted_despite_missing_owner() -> None:
    """The missing owner would reject other jobs, but finalizers of a job in deletion must be removable."""
    updated = replace(JOB, webhook=replace(JOB.webhook, mutates_updates=True))
    missing_owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "gone", "uid": "u"}
    job = a_job(labels={QUEUE: "q"}, owner=missing_owner)

    async def update(**options: Any) -> Answer:
        nesting = replace(
            updated,
            ownership=replace(updated.ownership, created_kinds=None, compare_child=accept_every_child),
        )
        served = review_handlers(policy(integrations=(nesting,), **options), FakeLookups(), (nesting,))
        path = "/mutate-batch-v1-job"
        _, body = await post(served[path], path, review(job, deleted(job)))
        return Answer(200, orjson.loads(body), job)

    answer = await update()
    assert answer.allowed
    assert answer.patch is None
    assert not (await update(gates={"SkipAncestorCheckForDeletedWorkloads": False})).allowed


async def test_repeated_mutation_changes_nothing() -> None:
    lookups = FakeLookups(**DEFAULTS, priority_classes={"default"})
    first = await mutate_job(a_job(), lookups=lookups)
    assert first.patch
    second = await mutate_job(first.after, lookups=lookups)
    assert second.patch is None


async def test_dry_run_is_mutated_like_other_requests() -> None:
    answer = await mutate_job(managed(), request={"dryRun": True})
    assert answer.after["spec"]["suspend"] is True


async def test_unknown_fields_survive_mutation() -> None:
    job = managed(brandNew={"deep": [1, {"er": None}]}, ttlSecondsAfterFinished=2**53)
    answer = await mutate_job(job)
    assert {**answer.after["spec"], "suspend": None} == {**job["spec"], "suspend": None}
