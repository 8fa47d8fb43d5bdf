"""Which objects a job's controller creates for it, and which only say so."""

from typing import Any

import pytest

from admitq.integrations.kinds.jobset import JOBSET


def template(cpu: Any = 1, **spec: Any) -> Any:
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec}}


def job_of(cpu: Any = 1, parallelism: Any = 2, completions: Any = 2, **spec: Any) -> Any:
    return {"parallelism": parallelism, "completions": completions, "template": template(cpu, **spec)}


def a_jobset(replicas: int = 2) -> Any:
    entry = {"name": "workers", "replicas": replicas, "template": {"spec": job_of()}}
    return {"metadata": {"name": "js"}, "spec": {"replicatedJobs": [entry]}}


@pytest.mark.parametrize(
    ("name", "spec", "made"),
    [
        pytest.param("js-workers-0", job_of(), True, id="first"),
        pytest.param("js-workers-1", job_of("1000m"), True, id="last, another spelling"),
        pytest.param("js-workers-1", job_of(parallelism=1), True, id="fewer pods"),
        pytest.param("js-workers-2", job_of(), False, id="ordinal beyond the replicas"),
        pytest.param("js-workers-00", job_of(), False, id="ordinal with a leading zero"),
        pytest.param("js-others-0", job_of(), False, id="name of no replicated job"),
        pytest.param("mine", job_of(), False, id="another name"),
        pytest.param("js-workers-0", job_of(parallelism=5, completions=5), False, id="more pods"),
        pytest.param("js-workers-0", job_of(2), False, id="bigger requests"),
        pytest.param("js-workers-0", job_of(overhead={"cpu": 1}), False, id="overhead"),
        pytest.param(
            "js-workers-0",
            job_of(initContainers=[{"name": "i", "resources": {"limits": {"cpu": 9}}}]),
            False,
            id="init container with limits alone",
        ),
        pytest.param(
            "js-workers-0", job_of(resources={"requests": {"cpu": 9}}), False, id="pod-level requests"
        ),
        pytest.param(
            "js-workers-0",
            job_of(resourceClaims=[{"name": "g", "resourceClaimName": "g"}]),
            False,
            id="claim",
        ),
    ],
)
def test_jobset_makes_jobs_that_agree_with_a_replicated_job(name: str, spec: Any, made: bool) -> None:
    assert JOBSET.makes(a_jobset(), {"metadata": {"name": name}, "spec": spec}) is made
