"""The setting by which the webhook rejects what a running job of any kind asks for beyond its admission."""

from typing import Any

import pytest

from admitq_webhooks.validate.jobs import validate_update
from tests.unit.integrations.raises import ELASTIC, KINDS, RAISES, Raise, job_of
from tests.unit.webhooks.support import NAMES, QUEUE, FakeLookups, policy

REJECTS: dict[str, Any] = {"rejects_increases": True}


def running(raised: Raise, **annotations: str) -> dict[str, Any]:
    job = raised.kind.with_suspend(job_of(raised.kind), False)
    metadata = {**job["metadata"], "labels": {QUEUE: "q"}, "annotations": annotations}
    return {**job, "metadata": metadata}


def said(raised: Raise, old: Any, new: Any, **ours: Any) -> list[str]:
    found = validate_update(old, new, "team", raised.kind, policy(**ours), FakeLookups())
    return [one.message for one in found if one.message.startswith("Forbidden: pod")]


def test_every_kind_of_jobs_has_raises_of_its_pods_and_of_their_requests() -> None:
    for kind in KINDS:
        says = [one.says for one in RAISES if one.framework == kind.framework]
        assert any(" asks for " in one for one in says), kind.framework
        assert any(" ask for more " in one for one in says), kind.framework


@pytest.mark.parametrize("raised", RAISES, ids=lambda one: f"{one.framework} {one.path}")
def test_raise_of_a_running_job_is_rejected_only_where_configured(raised: Raise) -> None:
    old = running(raised)
    new = raised.of(old)
    [message] = said(raised, old, new, **REJECTS)
    assert message == f"Forbidden: {raised.says}; suspend the job first, or create another one"
    assert said(raised, old, new) == []
    assert said(raised, new, old, **REJECTS) == []
    suspended = raised.kind.with_suspend(new, True)
    assert said(raised, old, suspended, **REJECTS) == []


@pytest.mark.parametrize("raised", ELASTIC, ids=lambda one: one.framework)
def test_raise_of_an_elastic_job_is_not_rejected(raised: Raise) -> None:
    old = running(raised, **{NAMES.elastic_job: "true"})
    assert said(raised, old, raised.of(old), **REJECTS) == []
