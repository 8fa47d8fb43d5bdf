"""The job controller and the Workload controller do not undo each other's writes forever."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from admitq.controllers.job import steps
from admitq.controllers.job.case import JobCase, Lookups
from admitq.controllers.plan import ActionPlan, Delete, Patch, RemoveFinalizer
from admitq.controllers.workload.case import WorkloadInputs
from admitq.controllers.workload.steps import decide_workload
from admitq.integrations.kinds.job import JOB
from admitq_api.conditions import SECOND
from tests.unit.controllers.builders import (
    KINDS,
    NAMES,
    apply_patch,
    cluster_queue,
    instant,
    job,
    local_queue,
    settings_with,
)
from tests.unit.controllers.workload_states import QUEUE_INPUTS, draw_workload

NOW = instant(310)
FLAVORS = {"f": {"spec": {"nodeLabels": {"pool": "spot"}}}}
LOOKUPS = Lookups(FLAVORS.get, {}.get, {}.get, list, {}.get)


def draw_job(data: st.DataObject, of: dict[str, Any]) -> dict[str, Any]:
    """Draw the job of a Workload with the same admission gates and execution limit."""
    status: dict[str, Any] = {"active": data.draw(st.sampled_from([0, 3]))}
    labels = {NAMES.queue_name: data.draw(st.sampled_from(["lq", "other"]))}
    if (limit := of["spec"].get("maximumExecutionTimeSeconds")) is not None:
        labels[NAMES.max_exec_time] = str(limit)
    annotations = {**of["metadata"].get("annotations", {})}
    if data.draw(st.booleans()):
        annotations[NAMES.stopping] = "true"
    return job({"suspend": data.draw(st.booleans())}, status, labels=labels, annotations=annotations)


@given(st.data())
def test_job_and_workload_controllers_settle_from_any_state(data: st.DataObject) -> None:
    obj = draw_workload(data)
    owner = draw_job(data, obj)
    on_hold = data.draw(st.booleans())
    settings = settings_with(
        detailed_reasons=data.draw(st.booleans()),
        explicit_pending=data.draw(st.booleans()),
        after_deactivated=data.draw(st.sampled_from([None, 3600 * SECOND])),
    )
    queue_inputs: dict[str, Any] = {
        "local_queue": local_queue(),
        "cluster_queue": cluster_queue(),
        "cluster_queue_name": "cq",
        "cluster_queue_active": True,
        **data.draw(st.sampled_from(QUEUE_INPUTS)),
    }
    inputs = WorkloadInputs(names=NAMES, kinds=KINDS, settings=settings, **queue_inputs)

    def of_workload() -> ActionPlan:
        return decide_workload(obj, inputs, NOW)

    def of_job() -> ActionPlan:
        integration = replace(JOB, lifecycle=replace(JOB.lifecycle, is_on_hold=lambda _: on_hold))
        return steps.decide_job(JobCase(integration, NAMES, KINDS, settings, NOW, owner, (obj,), LOOKUPS))

    idle_turns = 0
    for turn in range(60):
        plan = (of_workload, of_job)[turn % 2]()
        writes = [action for action in plan.actions if isinstance(action, Patch | Delete | RemoveFinalizer)]
        if any(not isinstance(write, Patch) for write in writes):
            return
        for write in writes:
            assert isinstance(write, Patch)
            for step in write.steps:
                if write.resource == KINDS.workloads:
                    obj = apply_patch(
                        obj, {key: part for key, part in step.patch.items() if key != "metadata"}
                    )
                else:
                    owner = apply_patch(owner, step.patch)
        if owner["spec"].get("suspend"):
            # The Job controller of Kubernetes deletes the pods.
            owner = apply_patch(owner, {"status": {"active": 0}})
        idle_turns = 0 if writes else idle_turns + 1
        if idle_turns == 2:
            return
    raise AssertionError(f"the controllers do not settle: {obj['status']}, {owner['spec']}")
