"""Validation of updates by which a running job requests more than was admitted."""

from typing import Any

import pytest

from admitq.integrations.kinds.job import JOB
from admitq_webhooks.validate.jobs import validate_update
from tests.unit.webhooks.job_requests import ELASTIC, managed
from tests.unit.webhooks.support import (
    QUEUE,
    FakeLookups,
    policy,
)


def requesting(cpu: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {}, "spec": {"containers": [container]}}


def running_job(pods: int = 4, cpu: str = "1", **options: Any) -> dict[str, Any]:
    suspended = options.pop("suspend", False)
    return managed(suspend=suspended, parallelism=pods, completions=50, template=requesting(cpu), **options)


REJECTS: dict[str, Any] = {"rejects_increases": True}
MORE_PODS = "spec: Forbidden: podset main requests 5 pods, 4 admitted; suspend the job first"
MORE_CPU = "spec.template: Forbidden: pods of podset main request more cpu than was admitted; suspend the job"


@pytest.mark.parametrize(
    ("old", "new", "settings", "message"),
    [
        pytest.param(running_job(), running_job(5), REJECTS, MORE_PODS, id="more pods"),
        pytest.param(running_job(), running_job(cpu="1100m"), REJECTS, MORE_CPU, id="larger pods"),
        pytest.param(running_job(), running_job(5), {}, "", id="off by default"),
        pytest.param(running_job(), running_job(4, "1000m"), REJECTS, "", id="the same"),
        pytest.param(running_job(), running_job(3, "500m"), REJECTS, "", id="less"),
        pytest.param(running_job(suspend=True), running_job(5, suspend=True), REJECTS, "", id="suspended"),
        pytest.param(
            running_job(), running_job(5, suspend=True), REJECTS, "", id="suspended by the same update"
        ),
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
def test_increase_of_running_job_is_rejected_only_if_configured(
    old: dict[str, Any], new: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    errors = validate_update(old, new, "team", JOB, policy(**settings), FakeLookups())
    starts = [f"{error.path}: {error.message}"[: len(message)] for error in errors]
    assert starts == ([message] if message else [])
