"""The admission status of a Workload is written by server-side apply, or by merge patch to remove fields."""

from typing import Any, cast

import pytest

from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import kinds_of
from admitq.workloads.admission_status import (
    ADMISSION_CONDITIONS,
    apply_configuration,
    changes_only_admission_status,
    write_admission_status,
)
from admitq_api.labels import names_for

NAMES = names_for()
WORKLOADS = kinds_of(NAMES).workloads
ADMISSION = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1}]}
CHECKS = [{"name": "check", "state": "Ready", "lastTransitionTime": "2026-03-01T10:00:00Z", "message": ""}]


def condition(kind: str, status: str = "False") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": "x"}


def workload(**status: Any) -> dict[str, Any]:
    metadata = {"name": "w", "namespace": "team", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}
    return {"metadata": metadata, "spec": {"queueName": "lq"}, "status": status}


def patch(**status: Any) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "7"}, "status": status}


def test_a2_configuration_has_version_that_patch_was_made_from() -> None:
    configuration = apply_configuration(WORKLOADS, workload(), patch(conditions=[], admission=ADMISSION))
    assert configuration == {
        "apiVersion": f"{NAMES.group}/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "team", "resourceVersion": "7"},
        "status": {"conditions": [], "admission": ADMISSION},
    }


def test_a2_configuration_contains_unchanged_admission_status() -> None:
    before = {
        "admissionChecks": CHECKS,
        "requeueState": {"count": 2},
        "schedulingStats": {"evictions": []},
        "accumulatedPastExecutionTimeSeconds": 0,
        "clusterName": "worker",
        "preemptionGates": [{"name": "gate", "position": "Open"}],
    }
    reserved = [condition("QuotaReserved", "True")]
    status = apply_configuration(
        WORKLOADS, workload(**before), patch(conditions=reserved, admission=ADMISSION)
    )["status"]
    assert status == {"conditions": reserved, "admission": ADMISSION, **before}


def test_a2_configuration_leaves_out_fields_of_other_managers() -> None:
    written = [condition(kind) for kind in ("QuotaReserved", "Finished", "example.com/Own")]
    before = {"reclaimablePods": [{"name": "main", "count": 1}], "unknown": 1}
    status = apply_configuration(WORKLOADS, workload(**before), patch(conditions=written))["status"]
    assert status == {"conditions": written[:1]}


def test_a2_configuration_contains_all_admission_conditions() -> None:
    stored = [condition(str(kind), "True") for kind in sorted(ADMISSION_CONDITIONS)]
    status = apply_configuration(WORKLOADS, workload(conditions=stored), patch(admission=ADMISSION))["status"]
    assert status["conditions"] == stored


def test_a2_configuration_leaves_out_fields_that_patch_removes() -> None:
    requests = [{"name": "main", "resources": {"cpu": "1"}}]
    status = apply_configuration(
        WORKLOADS, workload(resourceRequests=requests), patch(resourceRequests=None)
    )["status"]
    assert "resourceRequests" not in status


def test_a2_configuration_merges_partly_changed_fields() -> None:
    before = {"requeueState": {"count": 2, "requeueAt": "2026-03-01T10:00:00Z"}}
    status = apply_configuration(WORKLOADS, workload(**before), patch(requeueState={"requeueAt": None}))[
        "status"
    ]
    assert status["requeueState"] == {"count": 2}


EVICTED, FINISHED = condition("Evicted", "True"), condition("Finished", "True")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"conditions": [FINISHED, EVICTED]}, True, id="condition of admission"),
        pytest.param({"conditions": [FINISHED], "requeueState": None}, True, id="field of admission"),
        pytest.param({"conditions": [EVICTED]}, False, id="other condition removed"),
        pytest.param({"conditions": [{**FINISHED, "reason": "Other"}]}, False, id="other condition changed"),
        pytest.param({"reclaimablePods": []}, False, id="other field"),
    ],
)
def test_a2_change_is_admission_status_if_nothing_else_changes(
    change: dict[str, Any], expected: bool
) -> None:
    stored = workload(conditions=[FINISHED], requeueState={"count": 1})
    assert changes_only_admission_status(stored, patch(**change)) is expected


class Server:
    """Answers an apply with a status or a refusal, and keeps the verb and version of each write."""

    def __init__(self, *, applied: dict[str, Any] | None = None, refusal: ApiError | None = None) -> None:
        self.calls: list[tuple[str, str]] = []
        self._applied, self._refusal = applied, refusal

    async def merge_patch(
        self, _resource: Any, _name: str, body: dict[str, Any], **options: Any
    ) -> dict[str, Any]:
        return self._answer("merge", body, options)

    async def apply(self, _resource: Any, body: dict[str, Any], **options: Any) -> dict[str, Any]:
        answer = self._answer("apply", body, options)
        if self._refusal is not None:
            raise self._refusal
        return answer if self._applied is None else {**answer, "status": self._applied}

    def _answer(self, verb: str, body: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        assert options["field_manager"] == "admitq-admission"
        assert options["subresource"] == "status"
        self.calls.append((verb, body["metadata"]["resourceVersion"]))
        return {"metadata": {"resourceVersion": "8"}, "status": body["status"]}


async def write(
    server: Server, stored: dict[str, Any], change: dict[str, Any], *, merge_patches: bool = False
) -> dict[str, Any]:
    return await write_admission_status(
        cast("Client", server),
        WORKLOADS,
        stored,
        change,
        field_manager="admitq-admission",
        merge_patches=merge_patches,
    )


RESERVED_STATUS: dict[str, Any] = {"conditions": [condition("QuotaReserved", "True")], "admission": ADMISSION}
RELEASE = patch(conditions=[condition("QuotaReserved")], admission=None)
MISSING_FIELD = ApiError(422, "Invalid", "status.conditions[0].lastTransitionTime: Required value")


@pytest.mark.parametrize(
    ("server", "merge_patches", "sent"),
    [
        pytest.param(Server(), False, [("apply", "7")], id="applied"),
        pytest.param(Server(), True, [("merge", "7")], id="gate WorkloadRequestUseMergePatch"),
        pytest.param(
            Server(applied=RESERVED_STATUS),
            False,
            [("apply", "7"), ("merge", "8")],
            id="other manager owns removed fields",
        ),
        pytest.param(
            Server(refusal=MISSING_FIELD),
            False,
            [("apply", "7"), ("merge", "7")],
            id="other manager owns part of removed fields",
        ),
    ],
)
async def test_a2_write_is_merged_after_apply_if_other_managers_own_removed_fields(
    server: Server, merge_patches: bool, sent: list[tuple[str, str]]
) -> None:
    written = await write(server, workload(**RESERVED_STATUS), RELEASE, merge_patches=merge_patches)
    assert server.calls == sent
    assert written["status"]["conditions"] == [condition("QuotaReserved")]
    assert written["status"].get("admission") is None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"conditions": [EVICTED], "requeueState": None}, id="field"),
        pytest.param({"conditions": [EVICTED], "requeueState": {"requeueAt": None}}, id="part of field"),
        pytest.param({"conditions": []}, id="condition"),
    ],
)
async def test_a2_conditions_and_fields_are_removed_in_one_merge_patch(change: dict[str, Any]) -> None:
    server = Server()
    stored = workload(conditions=[EVICTED], requeueState={"count": 1, "requeueAt": "x"})
    await write(server, stored, patch(**change))
    assert server.calls == [("merge", "7")]


async def test_a2_parts_of_former_admission_are_removed_with_new_admission() -> None:
    server = Server()
    wider = {"cpu": "f", "memory": "f"}
    leftover = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1, "flavors": wider}]}
    stored = workload(conditions=[condition("QuotaReserved")], admission=leftover)
    written = await write(server, stored, patch(**RESERVED_STATUS))
    assert server.calls == [("merge", "7")]
    assert written["status"]["admission"] == ADMISSION


async def test_a2_increased_eviction_count_is_applied() -> None:
    server = Server()
    first, second = ({"evictions": [{"reason": "Preempted", "count": count}]} for count in (1, 2))
    await write(server, workload(schedulingStats=first), patch(schedulingStats=second))
    assert server.calls == [("apply", "7")]


async def test_a2_condition_of_other_program_with_same_manager_is_restored() -> None:
    other_condition = condition("example.com/Other", "True")
    server = Server(applied=RESERVED_STATUS)
    written = await write(
        server,
        workload(conditions=[other_condition]),
        patch(conditions=[other_condition, *RESERVED_STATUS["conditions"]], admission=ADMISSION),
    )
    assert server.calls == [("apply", "7"), ("merge", "8")]
    assert written["status"] == {"conditions": [other_condition, *RESERVED_STATUS["conditions"]]}


async def test_a2_apply_refused_with_conflict_is_not_merged() -> None:
    server = Server(refusal=ApiError(409, "Conflict", "the object has been modified"))
    with pytest.raises(ApiError):
        await write(server, workload(**RESERVED_STATUS), RELEASE)
    assert server.calls == [("apply", "7")]
