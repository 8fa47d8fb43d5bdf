"""The setting that rejects increases of running jobs, for every job kind."""

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


def list_increase_errors(raised: Raise, old: Any, new: Any, **settings: Any) -> list[str]:
    errors = validate_update(old, new, "team", raised.kind, policy(**settings), FakeLookups())
    return [error.message for error in errors if error.message.startswith("Forbidden: pod")]


def test_every_job_kind_has_increases_of_pods_and_of_requests() -> None:
    for kind in KINDS:
        messages = [raised.says for raised in RAISES if raised.framework == kind.framework]
        assert any(" requests " in message for message in messages), kind.framework
        assert any(" request more " in message for message in messages), kind.framework


@pytest.mark.parametrize("raised", RAISES, ids=lambda raised: f"{raised.framework} {raised.path}")
def test_increase_of_every_kind_is_rejected_only_if_configured(raised: Raise) -> None:
    old = running(raised)
    new = raised.of(old)
    [message] = list_increase_errors(raised, old, new, **REJECTS)
    assert message == f"Forbidden: {raised.says}; suspend the job first, or create another one"
    assert list_increase_errors(raised, old, new) == []
    assert list_increase_errors(raised, new, old, **REJECTS) == []
    suspended = raised.kind.with_suspend(new, True)
    assert list_increase_errors(raised, old, suspended, **REJECTS) == []


@pytest.mark.parametrize("raised", ELASTIC, ids=lambda raised: raised.framework)
def test_increase_of_elastic_job_is_accepted(raised: Raise) -> None:
    old = running(raised, **{NAMES.elastic_job: "true"})
    assert list_increase_errors(raised, old, raised.of(old), **REJECTS) == []
