"""Stories of admission checks on the real control plane, decided by an example controller outside admitq."""

from typing import Any

import pytest

from admitq.core.model import CheckState
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import JOBS
from admitq.workloads.admission_check_reports import AdmissionCheckReport
from admitq_api.conditions import parse_time
from admitq_api.json_objects import value_at
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.controlplane.conftest import StartCheckController, controller_of
from tests.controlplane.example_check import ChooseState
from tests.controlplane.recording import record_versions, sum_of_series
from tests.controlplane.stage import Stage, condition_of


async def checks(stage: Stage, *names: str) -> None:
    """Create AdmissionChecks of the example controller."""
    for name in names:
        spec = {"controllerName": controller_of(stage)}
        await stage.create(stage.kinds.admission_checks, stage.own(name), {"spec": spec})


def checks_strategy(stage: Stage, *names: str, **on_flavors: list[str]) -> dict[str, Any]:
    """The admission checks strategy of a ClusterQueue; some of its checks apply to some flavors only."""
    listed: list[dict[str, Any]] = [{"name": stage.own(name)} for name in names]
    for name, flavors in on_flavors.items():
        listed.append({"name": stage.own(name), "onFlavors": [stage.own(flavor) for flavor in flavors]})
    return {"admissionChecks": listed}


async def queues(stage: Stage, *names: str) -> None:
    """Create a LocalQueue with a ClusterQueue that has these checks, and the checks."""
    await checks(stage, *names)
    await stage.queues(admissionChecksStrategy=checks_strategy(stage, *names))


async def set_checks(stage: Stage, *names: str) -> None:
    """Set the admission checks of the ClusterQueue."""
    patch = {"spec": {"admissionChecksStrategy": checks_strategy(stage, *names)}}
    await stage.change(stage.kinds.cluster_queues, stage.own("cq"), patch)


async def states(stage: Stage, job: str = "j") -> dict[str, str]:
    """The states of the checks that a Job's Workload lists."""
    listed = value_at(await stage.workload(job), ("status", "admissionChecks"), [])
    suffix = f"-{stage.namespace}"
    return {one["name"].removesuffix(suffix): one["state"] for one in listed}


async def condition(stage: Stage, type_: str) -> tuple[str, str, str]:
    """A condition of the Workload of ``j``, which must exist."""
    found = await stage.condition(type_)
    assert found is not None
    return found


def ready(_: dict[str, Any], check: Any) -> AdmissionCheckReport:
    return AdmissionCheckReport(check["name"], CheckState.READY, "fine")


def undecided(_: dict[str, Any], check: Any) -> None:
    return None


def first_report(first: AdmissionCheckReport) -> ChooseState:
    """Report this state at first, and Ready after an eviction."""

    def judge(workload: dict[str, Any], check: Any) -> AdmissionCheckReport:
        was_evicted = check["message"].startswith("Reset to Pending") or check["state"] == "Ready"
        return AdmissionCheckReport(check["name"], CheckState.READY) if was_evicted else first

    return judge


# --- one check ------------------------------------------------------------------------------------


async def test_workload_is_admitted_when_its_check_is_ready(
    stage: Stage, start_controller: StartCheckController
) -> None:
    await queues(stage, "a")
    start_controller(ready)
    await stage.job()
    await stage.until_running()
    assert await stage.condition("Admitted") == ("True", "Admitted", "The workload is admitted")
    assert await states(stage) == {"a": "Ready"}


async def test_pending_check_holds_quota_and_reports_its_message(
    stage: Stage, start_controller: StartCheckController
) -> None:
    await queues(stage, "a")
    start_controller(
        lambda _, check: AdmissionCheckReport(check["name"], CheckState.PENDING, "nodes in 5 minutes")
    )
    await stage.job()
    await stage.until_event("Job", "j", "UpdatedAdmissionCheck", f"{stage.own('a')}: nodes in 5 minutes")
    assert await stage.condition("Admitted") == (
        "False",
        "UnsatisfiedAdmissionChecks",
        "The workload has not all checks ready",
    )

    async def reserving_and_admitted() -> list[int]:
        status = (await stage.get(stage.kinds.cluster_queues, stage.own("cq")))["status"]
        return [status["reservingWorkloads"], status["admittedWorkloads"]]

    await stage.until(reserving_and_admitted, [1, 0])


async def test_workload_is_requeued_at_once_when_retry_check_sets_no_delay(
    stage: Stage, start_controller: StartCheckController
) -> None:
    await queues(stage, "a")
    start_controller(first_report(AdmissionCheckReport(stage.own("a"), CheckState.RETRY, "no nodes")))
    await stage.job()
    await stage.until_running()
    workload = await stage.workload()
    [check] = workload["status"]["admissionChecks"]
    assert (check["state"], check["retryCount"]) == ("Ready", 1)
    assert condition_of(workload, "Requeued") == (
        "True",
        "BackoffFinished",
        "The workload backoff was finished",
    )
    message = f'Evicted due to AdmissionCheck in Retry state: "{stage.own("a")}" (no nodes)'
    assert condition_of(workload, "Evicted") == ("False", "QuotaReserved", f"Previously: {message}")
    name = workload["metadata"]["name"]
    await stage.until_event("Workload", name, "EvictedDueToAdmissionCheck", message)


async def test_workload_is_requeued_after_the_delay_of_its_retry_check(
    stage: Stage, start_controller: StartCheckController
) -> None:
    await queues(stage, "a")
    start_controller(
        first_report(AdmissionCheckReport(stage.own("a"), CheckState.RETRY, requeue_after_seconds=3))
    )
    async with record_versions(stage) as record:
        await stage.job()
        evicted = await eventually(lambda: record.first_version("j", "Requeued", "AdmissionCheck"))
    assert condition_of(evicted, "Requeued") == (
        "False",
        "AdmissionCheck",
        f'Evicted due to AdmissionCheck in Retry state: "{stage.own("a")}"',
    )
    requeue_at = evicted["status"]["requeueState"]["requeueAt"]
    [check] = evicted["status"]["admissionChecks"]
    assert check["message"] == "Reset to Pending after eviction. Previously: Retry"
    assert (check["retryCount"], check["requeueAfterSeconds"]) == (1, 3)
    await stage.until_running()
    workload = await stage.workload()
    reserved = next(
        one["lastTransitionTime"]
        for one in workload["status"]["conditions"]
        if one["type"] == "QuotaReserved"
    )
    assert parse_time(reserved) >= parse_time(requeue_at)
    assert "requeueAt" not in workload["status"].get("requeueState", {})


async def test_running_job_is_restarted_when_its_check_becomes_retry(
    stage: Stage, start_controller: StartCheckController
) -> None:
    await queues(stage, "a")
    answers: dict[str, CheckState] = {"first": CheckState.READY}

    def judge(_: dict[str, Any], check: Any) -> AdmissionCheckReport:
        updates = ({"name": "main", "nodeSelector": {"example.com/n": str(check.get("retryCount", 0))}},)
        state = answers["first"] if not check.get("retryCount") else CheckState.READY
        return AdmissionCheckReport(
            check["name"], state, pod_set_updates=updates if state == CheckState.READY else ()
        )

    controller = start_controller(judge)
    await stage.job()
    await stage.until_running()
    assert (await stage.get(JOBS, "j"))["spec"]["template"]["spec"]["nodeSelector"] == {"example.com/n": "0"}
    answers["first"] = CheckState.RETRY
    controller.requeue_workloads()

    async def suspend_and_node_selector() -> Any:
        job = await stage.get(JOBS, "j")
        return job["spec"]["suspend"], value_at(job, ("spec", "template", "spec", "nodeSelector"))

    await stage.until(suspend_and_node_selector, (False, {"example.com/n": "1"}))


async def test_rejected_check_deactivates_workload_until_it_is_reactivated(
    stage: Stage, start_controller: StartCheckController
) -> None:
    await queues(stage, "a")
    start_controller(first_report(AdmissionCheckReport(stage.own("a"), CheckState.REJECTED, "too big")))
    await stage.job()
    await stage.until_condition("QuotaReserved", "Deactivated")
    workload = await stage.workload()
    message = f'AdmissionCheck in Rejected state: "{stage.own("a")}" (too big)'
    assert workload["spec"]["active"] is False
    assert condition_of(workload, "Evicted") == (
        "True",
        "DeactivatedDueToAdmissionCheck",
        f"The workload is deactivated due to {message}",
    )
    name = workload["metadata"]["name"]
    await stage.until_event("Workload", name, "AdmissionCheckRejected", f"Deactivated due to {message}")
    await stage.change(stage.kinds.workloads, name, {"spec": {"active": True}})
    await stage.until_running()
    [check] = (await stage.workload())["status"]["admissionChecks"]
    assert (check["state"], check.get("retryCount")) == ("Ready", None)


# --- several checks -------------------------------------------------------------------------------


async def test_workload_is_not_admitted_before_all_checks_are_ready(
    stage: Stage, start_controller: StartCheckController
) -> None:
    await queues(stage, "a", "b", "c")
    ready_checks: set[str] = {stage.own("a"), stage.own("c")}
    controller = start_controller(
        lambda obj, check: ready(obj, check) if check["name"] in ready_checks else None
    )
    await stage.job()
    await stage.until(lambda: states(stage), {"a": "Ready", "b": "Pending", "c": "Ready"})
    assert (await condition(stage, "Admitted"))[0] == "False"
    ready_checks.add(stage.own("b"))
    controller.requeue_workloads()
    await stage.until_running()


async def test_workload_is_deactivated_when_checks_are_both_rejected_and_retry(
    stage: Stage, start_controller: StartCheckController
) -> None:
    await queues(stage, "a", "b", "c")

    def judge(_: dict[str, Any], check: Any) -> AdmissionCheckReport:
        retried = check["name"] == stage.own("a")
        message = "why" if check["name"] == stage.own("b") else ""
        return AdmissionCheckReport(
            check["name"], CheckState.RETRY if retried else CheckState.REJECTED, message
        )

    start_controller(judge)
    await stage.job()
    await stage.until_condition("QuotaReserved", "Deactivated")
    b, c = stage.own("b"), stage.own("c")
    assert (await condition(stage, "Evicted"))[1:] == (
        "DeactivatedDueToAdmissionCheck",
        f'The workload is deactivated due to AdmissionChecks in Rejected state: "{b}" (why); "{c}"',
    )
    [retried, *rejected] = (await stage.workload())["status"]["admissionChecks"]
    assert retried["retryCount"] == 1
    assert all("retryCount" not in one for one in rejected)


async def test_check_of_a_flavor_is_listed_only_when_that_flavor_is_assigned(
    stage: Stage, start_controller: StartCheckController
) -> None:
    await checks(stage, "every", "spot", "owned")
    for name in ("s", "o"):
        await stage.flavor(name)
    strategy = checks_strategy(stage, "every", spot=["s"], owned=["o"])
    await stage.cluster_queue(flavors=("s", "o"), cpu=1, admissionChecksStrategy=strategy)
    await stage.local_queue()
    start_controller(undecided)
    for job in ("first", "second", "third"):
        await stage.job(job)
        await stage.until_condition(
            *(
                ("QuotaReserved", "WaitingForQuota")
                if job == "third"
                else ("Admitted", "UnsatisfiedAdmissionChecks")
            ),
            job,
        )
    await stage.until(lambda: states(stage, "first"), {"every": "Pending", "spot": "Pending"})
    await stage.until(lambda: states(stage, "second"), {"every": "Pending", "owned": "Pending"})
    await stage.until(lambda: states(stage, "third"), {"every": "Pending"})


# --- updates of podsets ---------------------------------------------------------------------------


def updating(stage: Stage, updates: dict[str, dict[str, Any]]) -> ChooseState:
    """Report each check as ready, with its update of the podset ``main``."""
    by_name = {stage.own(name): update for name, update in updates.items()}

    def judge(_: dict[str, Any], check: Any) -> AdmissionCheckReport:
        update = {"name": "main", **by_name[check["name"]]}
        return AdmissionCheckReport(check["name"], CheckState.READY, pod_set_updates=(update,))

    return judge


async def test_pod_set_updates_of_several_checks_are_merged(
    stage: Stage, start_controller: StartCheckController
) -> None:
    await queues(stage, "a", "b")
    first, second = {"key": "one", "operator": "Exists"}, {"key": "two", "operator": "Exists"}
    same = {"example.com/same": "yes"}
    update: dict[str, dict[str, Any]] = {
        "a": {"labels": {"by": "a"}, "nodeSelector": same, "tolerations": [first]},
        "b": {"annotations": {"by": "b"}, "nodeSelector": {**same, "more": "x"}, "tolerations": [second]},
    }
    start_controller(updating(stage, update))
    await stage.job()
    await stage.until_running()
    template = (await stage.get(JOBS, "j"))["spec"]["template"]
    assert template["metadata"]["labels"]["by"] == "a"
    assert template["metadata"]["annotations"]["by"] == "b"
    assert template["spec"]["nodeSelector"] == {**same, "more": "x"}
    assert template["spec"]["tolerations"] == [first, second]


@pytest.mark.parametrize(
    ("updates", "message"),
    [
        (
            {"a": {"nodeSelector": {"k": "1"}}, "b": {"nodeSelector": {"k": "2"}}},
            "nodeSelector of main: k is '1' already and cannot become '2'",
        ),
        (
            {"a": {"annotations": {"k": "1"}}, "b": {"annotations": {"k": "2"}}},
            "annotations of main: k is '1' already and cannot become '2'",
        ),
    ],
)
async def test_job_fails_to_start_when_pod_set_updates_conflict(
    stage: Stage, start_controller: StartCheckController, updates: dict[str, dict[str, Any]], message: str
) -> None:
    await queues(stage, "a", "b")
    start_controller(updating(stage, updates))
    await stage.job()
    await stage.until_condition("Finished", "FailedToStart")
    assert (await condition(stage, "Finished"))[2] == message
    assert (await stage.get(JOBS, "j"))["spec"]["suspend"] is True


async def test_pod_set_updates_of_a_ready_check_are_immutable(
    stage: Stage, start_controller: StartCheckController
) -> None:
    await queues(stage, "a")
    wanted = {"labels": {"v": "1"}}
    controller = start_controller(updating(stage, {"a": wanted}))
    await stage.job()
    await stage.until_running()
    wanted["labels"] = {"v": "2"}
    controller.requeue_workloads()
    workload = await stage.workload()
    [check] = workload["status"]["admissionChecks"]
    changed = {**check, "podSetUpdates": [{"name": "main", "labels": {"v": "3"}}]}
    with pytest.raises(ApiError) as refused:
        await stage.change(
            stage.kinds.workloads,
            workload["metadata"]["name"],
            {"status": {"admissionChecks": [changed]}},
            "status",
        )
    assert "podSetUpdates" in refused.value.message
    [after] = (await stage.workload())["status"]["admissionChecks"]
    assert after["podSetUpdates"] == [{"name": "main", "labels": {"v": "1"}}]


# --- changed ClusterQueues -----------------------------------------------------------------------


async def test_workload_waits_for_check_that_is_added_to_its_cluster_queue(
    stage: Stage, start_controller: StartCheckController
) -> None:
    await queues(stage, "a")
    await checks(stage, "b")
    ready_checks: set[str] = set()
    controller = start_controller(
        lambda obj, check: ready(obj, check) if check["name"] in ready_checks else None
    )
    await stage.job()
    await stage.until(lambda: states(stage), {"a": "Pending"})
    await set_checks(stage, "a", "b")
    await stage.until(lambda: states(stage), {"a": "Pending", "b": "Pending"})
    ready_checks.add(stage.own("a"))
    controller.requeue_workloads()
    await stage.until(lambda: states(stage), {"a": "Ready", "b": "Pending"})
    assert (await condition(stage, "Admitted"))[0] == "False"
    ready_checks.add(stage.own("b"))
    controller.requeue_workloads()
    await stage.until_running()


async def test_workload_is_admitted_when_its_pending_check_is_removed(
    stage: Stage, start_controller: StartCheckController
) -> None:
    await queues(stage, "a", "b")
    start_controller(lambda obj, check: ready(obj, check) if check["name"] == stage.own("a") else None)
    await stage.job()
    await stage.until(lambda: states(stage), {"a": "Ready", "b": "Pending"})
    await set_checks(stage, "a")
    await stage.until_running()
    assert await states(stage) == {"a": "Ready"}


async def test_running_job_keeps_running_when_a_check_is_added(
    stage: Stage, start_controller: StartCheckController
) -> None:
    await queues(stage, "a")
    await checks(stage, "b")
    start_controller(lambda obj, check: ready(obj, check) if check["name"] == stage.own("a") else None)
    await stage.job()
    await stage.until_running()
    await set_checks(stage, "a", "b")
    await stage.until(lambda: states(stage), {"a": "Ready", "b": "Pending"})
    assert (await condition(stage, "Admitted"))[0] == "True"
    assert (await stage.get(JOBS, "j"))["spec"]["suspend"] is False


async def test_workload_is_refused_while_its_queue_names_more_checks_than_it_can_list(
    stage: Stage, start_controller: StartCheckController, admitq_running: Installation
) -> None:
    names = [f"c{number}" for number in range(9)]
    await queues(stage, *names)
    await stage.cluster_queue("other")
    await stage.local_queue("other", cluster_queue="other")
    start_controller(ready)
    await stage.job()
    await stage.until_condition("QuotaReserved", "Misconfigured")
    status, _, message = await condition(stage, "QuotaReserved")
    which = f"9 AdmissionChecks of ClusterQueue {stage.own('cq')} apply to every flavor"
    assert (status, message.partition(",")[0]) == ("False", which)
    labels = {"cluster_queue": stage.own("cq"), "underlying_cause": "Misconfigured"}
    await stage.until(
        lambda: sum_of_series(admitq_running, "unadmitted_workloads", **labels), 1, what="the metric"
    )
    await stage.job("unconcerned", queue="other")
    await stage.until_running("unconcerned")
    assert await states(stage) == {}
    await set_checks(stage, *names[:8])
    await stage.until_running()
    assert await states(stage) == dict.fromkeys(names[:8], "Ready")


async def test_reserved_workload_is_released_when_its_queue_names_more_checks_than_it_can_list(
    stage: Stage, start_controller: StartCheckController
) -> None:
    names = [f"c{number}" for number in range(9)]
    await queues(stage, *names[:8])
    await checks(stage, *names[8:])
    start_controller(undecided)
    await stage.job()
    await stage.until(lambda: states(stage), dict.fromkeys(names[:8], "Pending"))
    await stage.until_condition("QuotaReserved", "QuotaReserved")
    await set_checks(stage, *names)
    await stage.until_condition("QuotaReserved", "Misconfigured")
    await set_checks(stage, *names[1:])
    await stage.until(lambda: states(stage), dict.fromkeys(names[1:], "Pending"))
    await stage.until_condition("QuotaReserved", "QuotaReserved")


async def test_check_without_controller_makes_cluster_queue_inactive(
    stage: Stage, start_controller: StartCheckController
) -> None:
    await stage.queues(admissionChecksStrategy=checks_strategy(stage, "a"))

    async def active() -> Any:
        return condition_of(await stage.get(stage.kinds.cluster_queues, stage.own("cq")), "Active")

    def why(problem: str) -> str:
        return f"Can't admit new workloads: references {problem} AdmissionCheck(s): {stage.own('a')}."

    await stage.until(active, ("False", "AdmissionCheckNotFound", why("missing")))
    await checks(stage, "a")
    await stage.until(active, ("False", "AdmissionCheckInactive", why("inactive")))
    await stage.job()
    await stage.until_condition("QuotaReserved", "Suspended")
    start_controller(ready)
    await stage.until(active, ("True", "Ready", "Can admit new workloads"))
    await stage.until_running()
    conditions = [
        {
            "type": "Active",
            "status": "False",
            "reason": "Away",
            "message": "",
            "lastTransitionTime": "2030-01-01T00:00:00Z",
        }
    ]
    patch = {"status": {"conditions": conditions}}
    await stage.change(stage.kinds.admission_checks, stage.own("a"), patch, "status")
    await stage.until(active, ("False", "AdmissionCheckInactive", why("inactive")))
    # An inactive ClusterQueue does not stop running jobs.
    assert (await stage.get(JOBS, "j"))["spec"]["suspend"] is False
