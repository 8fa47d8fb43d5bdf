"""The part of a Workload's status that belongs to its admission, as a server-side apply."""

from typing import Any, cast

import pytest

from admitq.admission_status import CONDITIONS, configuration, removes_admission, write
from admitq.runtime.client import Client
from admitq.runtime.kinds import kinds_of
from admitq_api.labels import names_for

Object = dict[str, Any]

NAMES = names_for()
WORKLOADS = kinds_of(NAMES).workloads
ADMISSION = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1}]}
CHECKS = [{"name": "check", "state": "Ready", "lastTransitionTime": "2026-03-01T10:00:00Z", "message": ""}]


def condition(kind: str, status: str = "False") -> Object:
    return {"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": "x"}


def workload(**status: Any) -> Object:
    metadata = {"name": "w", "namespace": "team", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}
    return {"metadata": metadata, "spec": {"queueName": "lq"}, "status": status}


def patch(**status: Any) -> Object:
    return {"metadata": {"resourceVersion": "7"}, "status": status}


def test_a2_configuration_is_of_the_version_that_the_patch_was_made_from() -> None:
    found = configuration(WORKLOADS, workload(), patch(conditions=[], admission=ADMISSION))
    assert found == {
        "apiVersion": f"{NAMES.group}/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "team", "resourceVersion": "7"},
        "status": {"conditions": [], "admission": ADMISSION},
    }


def test_a2_configuration_contains_admission_status_that_stays() -> None:
    before = {
        "admissionChecks": CHECKS,
        "requeueState": {"count": 2},
        "schedulingStats": {"evictions": []},
        "accumulatedPastExecutionTimeSeconds": 0,
        "clusterName": "worker",
        "preemptionGates": [{"name": "gate", "position": "Open"}],
    }
    reserved = [condition("QuotaReserved", "True")]
    status = configuration(WORKLOADS, workload(**before), patch(conditions=reserved, admission=ADMISSION))[
        "status"
    ]
    assert status == {"conditions": reserved, "admission": ADMISSION, **before}


def test_a2_configuration_leaves_out_what_other_managers_own() -> None:
    written = [condition(kind) for kind in ("QuotaReserved", "Finished", "example.com/Mine")]
    before = {"reclaimablePods": [{"name": "main", "count": 1}], "unknown": 1}
    status = configuration(WORKLOADS, workload(**before), patch(conditions=written))["status"]
    assert status == {"conditions": written[:1]}


def test_a2_configuration_contains_every_condition_that_the_manager_may_have_applied() -> None:
    stored = [condition(str(kind), "True") for kind in sorted(CONDITIONS)]
    status = configuration(WORKLOADS, workload(conditions=stored), patch(admission=ADMISSION))["status"]
    assert status["conditions"] == stored


def test_a2_configuration_leaves_out_what_the_patch_removes() -> None:
    requests = [{"name": "main", "resources": {"cpu": "1"}}]
    status = configuration(WORKLOADS, workload(resourceRequests=requests), patch(resourceRequests=None))[
        "status"
    ]
    assert "resourceRequests" not in status


class Sent:
    """Keeps how a write was sent."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    async def merge_patch(self, _resource: Any, name: str, body: Object, **options: Any) -> Object:
        self.calls.append(("merge", options))
        return {"name": name, **body}

    async def apply(self, _resource: Any, body: Object, **options: Any) -> Object:
        self.calls.append(("apply", options))
        return body


RESERVES, RELEASES = patch(conditions=[], admission=ADMISSION), patch(conditions=[], admission=None)


@pytest.mark.parametrize(
    ("change", "merge_patches", "sent"),
    [
        pytest.param(RESERVES, False, "apply", id="reservation"),
        pytest.param(patch(conditions=[]), False, "apply", id="admission of a reservation"),
        pytest.param(RELEASES, False, "merge", id="an admission of any owner is removed"),
        pytest.param(RESERVES, True, "merge", id="gate WorkloadRequestUseMergePatch"),
    ],
)
async def test_a2_write_is_applied_unless_it_removes_the_admission_or_the_gate_is_on(
    change: Object, merge_patches: bool, sent: str
) -> None:
    client = Sent()
    await write(
        cast("Client", client),
        WORKLOADS,
        workload(admission=ADMISSION),
        change,
        field_manager="admitq-admission",
        merge_patches=merge_patches,
    )
    [(way, options)] = client.calls
    assert way == sent
    assert options["field_manager"] == "admitq-admission"
    assert options["subresource"] == "status"
    assert removes_admission(change) is (change is RELEASES)
