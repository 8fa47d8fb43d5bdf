"""The part of a Workload's status that belongs to its admission, as a server-side apply."""

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


def test_a2_configuration_is_of_the_version_that_the_patch_was_made_from() -> None:
    found = apply_configuration(WORKLOADS, workload(), patch(conditions=[], admission=ADMISSION))
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
    status = apply_configuration(
        WORKLOADS, workload(**before), patch(conditions=reserved, admission=ADMISSION)
    )["status"]
    assert status == {"conditions": reserved, "admission": ADMISSION, **before}


def test_a2_configuration_leaves_out_what_other_managers_own() -> None:
    written = [condition(kind) for kind in ("QuotaReserved", "Finished", "example.com/Mine")]
    before = {"reclaimablePods": [{"name": "main", "count": 1}], "unknown": 1}
    status = apply_configuration(WORKLOADS, workload(**before), patch(conditions=written))["status"]
    assert status == {"conditions": written[:1]}


def test_a2_configuration_contains_every_condition_that_the_manager_may_have_applied() -> None:
    stored = [condition(str(kind), "True") for kind in sorted(ADMISSION_CONDITIONS)]
    status = apply_configuration(WORKLOADS, workload(conditions=stored), patch(admission=ADMISSION))["status"]
    assert status["conditions"] == stored


def test_a2_configuration_leaves_out_what_the_patch_removes() -> None:
    requests = [{"name": "main", "resources": {"cpu": "1"}}]
    status = apply_configuration(
        WORKLOADS, workload(resourceRequests=requests), patch(resourceRequests=None)
    )["status"]
    assert "resourceRequests" not in status


def test_a2_configuration_merges_fields_that_the_patch_changes_in_part() -> None:
    before = {"requeueState": {"count": 2, "requeueAt": "2026-03-01T10:00:00Z"}}
    status = apply_configuration(WORKLOADS, workload(**before), patch(requeueState={"requeueAt": None}))[
        "status"
    ]
    assert status["requeueState"] == {"count": 2}


EVICTED, FINISHED = condition("Evicted", "True"), condition("Finished", "True")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"conditions": [FINISHED, EVICTED]}, True, id="a condition of the admission"),
        pytest.param({"conditions": [FINISHED], "requeueState": None}, True, id="a field of the admission"),
        pytest.param({"conditions": [EVICTED]}, False, id="another condition is removed"),
        pytest.param({"conditions": [{**FINISHED, "reason": "Other"}]}, False, id="another condition"),
        pytest.param({"reclaimablePods": []}, False, id="another field"),
    ],
)
def test_a2_change_belongs_to_the_admission_if_it_changes_nothing_else(
    change: dict[str, Any], expected: bool
) -> None:
    stored = workload(conditions=[FINISHED], requeueState={"count": 1})
    assert changes_only_admission_status(stored, patch(**change)) is expected


class Server:
    """Answers an apply with a status or a refusal, and keeps how each write was sent."""

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

    def _answer(self, way: str, body: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        assert options["field_manager"] == "admitq-admission"
        assert options["subresource"] == "status"
        self.calls.append((way, body["metadata"]["resourceVersion"]))
        return {"metadata": {"resourceVersion": "8"}, "status": body["status"]}


async def written_to(
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


STATED: dict[str, Any] = {"conditions": [condition("QuotaReserved", "True")], "admission": ADMISSION}
RELEASE = patch(conditions=[condition("QuotaReserved")], admission=None)
PART_IS_LEFT = ApiError(422, "Invalid", "status.conditions[0].lastTransitionTime: Required value")


@pytest.mark.parametrize(
    ("server", "merge_patches", "sent"),
    [
        pytest.param(Server(), False, [("apply", "7")], id="applied"),
        pytest.param(Server(), True, [("merge", "7")], id="gate WorkloadRequestUseMergePatch"),
        pytest.param(
            Server(applied=STATED),
            False,
            [("apply", "7"), ("merge", "8")],
            id="another manager owns what has to go",
        ),
        pytest.param(
            Server(refusal=PART_IS_LEFT),
            False,
            [("apply", "7"), ("merge", "7")],
            id="another manager owns a part of what has to go",
        ),
    ],
)
async def test_a2_write_is_applied_and_merged_where_other_managers_own_what_it_removes(
    server: Server, merge_patches: bool, sent: list[tuple[str, str]]
) -> None:
    written = await written_to(server, workload(**STATED), RELEASE, merge_patches=merge_patches)
    assert server.calls == sent
    assert written["status"]["conditions"] == [condition("QuotaReserved")]
    assert written["status"].get("admission") is None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"conditions": [EVICTED], "requeueState": None}, id="a field"),
        pytest.param({"conditions": [EVICTED], "requeueState": {"requeueAt": None}}, id="a part of a field"),
        pytest.param({"conditions": []}, id="a condition"),
    ],
)
async def test_a2_conditions_and_fields_are_removed_in_one_write(change: dict[str, Any]) -> None:
    server = Server()
    stored = workload(conditions=[EVICTED], requeueState={"count": 1, "requeueAt": "x"})
    await written_to(server, stored, patch(**change))
    assert server.calls == [("merge", "7")]


async def test_a2_parts_of_a_former_admission_are_removed_in_the_write_that_states_another() -> None:
    server = Server()
    wider = {"cpu": "f", "memory": "f"}
    leftover = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1, "flavors": wider}]}
    stored = workload(conditions=[condition("QuotaReserved")], admission=leftover)
    written = await written_to(server, stored, patch(**STATED))
    assert server.calls == [("merge", "7")]
    assert written["status"]["admission"] == ADMISSION


async def test_a2_count_of_evictions_that_grows_is_applied() -> None:
    server = Server()
    once, twice = ({"evictions": [{"reason": "Preempted", "count": count}]} for count in (1, 2))
    await written_to(server, workload(schedulingStats=once), patch(schedulingStats=twice))
    assert server.calls == [("apply", "7")]


async def test_a2_condition_of_another_program_under_the_same_manager_is_restored() -> None:
    theirs = condition("example.com/Theirs", "True")
    server = Server(applied=STATED)
    written = await written_to(
        server,
        workload(conditions=[theirs]),
        patch(conditions=[theirs, *STATED["conditions"]], admission=ADMISSION),
    )
    assert server.calls == [("apply", "7"), ("merge", "8")]
    assert written["status"] == {"conditions": [theirs, *STATED["conditions"]]}


async def test_a2_apply_that_is_refused_for_another_reason_is_not_merged() -> None:
    server = Server(refusal=ApiError(409, "Conflict", "the object has been modified"))
    with pytest.raises(ApiError):
        await written_to(server, workload(**STATED), RELEASE)
    assert server.calls == [("apply", "7")]
