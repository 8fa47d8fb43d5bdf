"""Only finished Workloads have the label by which a starting manager lists them last."""

from typing import Any

import pytest

from tests.unit.webhooks.support import NAMES, call_own_webhook
from tests.unit.webhooks.test_workloads import a_workload, check, reserved_status

FINISHED = {"conditions": [{"type": "Finished", "status": "True"}]}
NOT_FINISHED = {"conditions": [{"type": "Finished", "status": "False"}]}


def labelled(*, deleted: bool = False, value: str = "true", **parts: Any) -> dict[str, Any]:
    """A Workload with the label."""
    workload = a_workload(**parts)
    metadata = {**workload["metadata"], "labels": {NAMES.finished: value, "team": "a"}}
    return {**workload, "metadata": metadata | ({"deletionTimestamp": "now"} if deleted else {})}


def without_label(workload: dict[str, Any]) -> dict[str, Any]:
    return {**workload, "metadata": {**workload["metadata"], "labels": {"team": "a"}}}


async def test_finished_workload_gets_and_loses_the_label() -> None:
    finished = labelled(status=FINISHED)
    assert (await check(finished, without_label(finished))).allowed
    assert (await check(without_label(finished), finished)).allowed


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(labelled(), id="new"),
        pytest.param(labelled(status=reserved_status()), id="with quota"),
        pytest.param(labelled(status=NOT_FINISHED), id="condition is False"),
        pytest.param(labelled(value="false"), id="other value"),
        pytest.param(labelled(status=reserved_status(), deleted=True), id="being deleted"),
    ],
)
async def test_unfinished_workload_does_not_get_the_label(workload: dict[str, Any]) -> None:
    answer = await check(workload, without_label(workload))
    assert not answer.allowed
    assert answer.message.startswith(f"metadata.labels[{NAMES.finished}]: Forbidden: the workload has not")


async def test_stored_unfinished_workload_with_the_label_may_change_and_lose_it() -> None:
    stored = labelled(status=reserved_status())
    assert (await check({**stored, "spec": {**stored["spec"], "priority": 3}}, stored)).allowed
    assert (await check(without_label(stored), stored)).allowed
    deleted = labelled(status=reserved_status(), deleted=True)
    assert (await check(deleted, deleted)).allowed


async def test_new_workload_loses_the_label_and_is_rejected_with_it() -> None:
    restored = labelled(status=FINISHED)
    answer = await call_own_webhook("mutate", "Workload", restored)
    assert answer.after == without_label(restored)
    assert not (await check(labelled())).allowed
