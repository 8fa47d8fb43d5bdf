"""Mutation of jobs with owners: jobs that follow a queued owner are not queued themselves."""

from typing import Any

import pytest

from tests.unit.webhooks.job_requests import DEFAULTS, GROUP_KIND, a_group, managed, owned_by
from tests.unit.webhooks.support import (
    BY_OPERATOR,
    FakeLookups,
    a_job,
    mutate_job,
)


async def mutate_with_owners(job: dict[str, Any], **owners: Any) -> Any:
    return await mutate_job(
        job, lookups=FakeLookups(objects=owners), external_frameworks=(GROUP_KIND,), request=BY_OPERATOR
    )


async def test_child_of_queued_owner_is_not_suspended() -> None:
    answer = await mutate_with_owners(managed(owner=owned_by("group")), group=a_group())
    assert answer.patch is None


async def test_child_of_queued_owner_gets_no_default_queue() -> None:
    lookups = FakeLookups(**DEFAULTS, objects={"group": a_group()})
    job = a_job(owner=owned_by("group"))
    answer = await mutate_job(job, lookups=lookups, external_frameworks=(GROUP_KIND,), request=BY_OPERATOR)
    assert answer.patch is None


@pytest.mark.parametrize(
    ("owner", "stored"),
    [
        pytest.param(owned_by("group", uid="forged"), a_group(), id="other uid than the queued owner"),
        pytest.param(owned_by("group"), a_group(queue=""), id="owner without a queue"),
        pytest.param(owned_by("group", kind="Unknown"), a_group(), id="unmanaged kind"),
        pytest.param({**owned_by("group"), "controller": False}, a_group(), id="owner that does not control"),
        pytest.param(
            {"apiVersion": "batch/v1", "kind": "Job", "name": "group", "uid": "owner-uid"},
            {**managed(), "metadata": {**managed()["metadata"], "uid": "owner-uid"}},
            id="admitted Job as owner: Jobs create no Jobs",
        ),
    ],
)
async def test_job_with_ineffective_owner_reference_is_suspended(
    owner: dict[str, Any], stored: dict[str, Any]
) -> None:
    answer = await mutate_with_owners(managed(owner=owner), group=stored)
    assert answer.after["spec"]["suspend"] is True


async def test_owner_is_read_from_namespace_of_request() -> None:
    job = managed(owner=owned_by("group"))
    job["metadata"]["namespace"] = "other"
    lookups = FakeLookups(objects={"group": a_group()})
    await mutate_job(job, lookups=lookups, external_frameworks=(GROUP_KIND,))
    assert lookups.object_requests == ["batch.example.com/v1 Group team/group"]


async def test_job_with_missing_owner_is_rejected() -> None:
    answer = await mutate_with_owners(managed(owner=owned_by("group")))
    assert not answer.allowed
    assert answer.message.startswith("metadata.ownerReferences: ")


async def test_job_with_cyclic_owners_is_rejected() -> None:
    cycle = a_group(owner=owned_by("group"))
    answer = await mutate_with_owners(managed(owner=owned_by("group")), group=cycle)
    assert not answer.allowed
    assert "nested too deep" in answer.message


async def test_owner_is_read_only_if_job_would_be_suspended() -> None:
    lookups = FakeLookups(objects={})
    answer = await mutate_job(
        a_job(owner=owned_by("group")), lookups=lookups, external_frameworks=(GROUP_KIND,)
    )
    assert answer.patch is None
    assert lookups.object_requests == []
