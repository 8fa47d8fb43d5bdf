"""Provisioning cases, and the results of decisions about them."""

from dataclasses import replace
from typing import Any

from admitq.controllers.plan import ActionPlan, Patch, RecordEvent
from admitq.controllers.provisioning.requests import request_name, template_name
from admitq.controllers.provisioning.steps import ProvisioningCase, decide_provisioning
from tests.unit.controllers.builders import KINDS, NAMES, apply_patch, condition, instant, timestamp

NAME = "job-j-1-c-1"

FLAVOR: dict[str, Any] = {
    "spec": {"nodeLabels": {"pool": "f"}, "tolerations": [{"key": "pool", "operator": "Exists"}]}
}

FLAVORS = {"f": FLAVOR, "g": {"spec": {"nodeLabels": {"pool": "g"}}}}

EVICTED = condition("Evicted", True, "Preempted")

MINE = {"kind": "Workload", "name": "job-j-1", "uid": "uid-w", "controller": True}


def check(state: str = "Pending", **fields: Any) -> dict[str, Any]:
    return {"name": "c", "state": state, "lastTransitionTime": timestamp(0), "message": "", **fields}


def config(**spec: Any) -> dict[str, Any]:
    return {"spec": {"provisioningClassName": "class", **spec}}


def request(*conditions: dict[str, Any], attempt: int = 1, **fields: Any) -> dict[str, Any]:
    """Return a ProvisioningRequest of the Workload for the check ``c``."""
    name = request_name("job-j-1", "c", attempt)
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "ownerReferences": [MINE]}
    spec = {
        "provisioningClassName": "class",
        "parameters": {},
        "podSets": [{"podTemplateRef": {"name": template_name(name, "main")}, "count": 3}],
        **fields.pop("spec", {}),
    }
    metadata |= fields.pop("metadata", {})
    return {"metadata": metadata, "spec": spec, "status": {"conditions": list(conditions), **fields}}


def case(
    obj: dict[str, Any],
    *requests: dict[str, Any],
    templates: tuple[dict[str, Any], ...] = (),
    foreign: tuple[dict[str, Any], ...] = (),
    config: dict[str, Any] | None = config(),  # noqa: B008 never changed
    **fields: Any,
) -> ProvisioningCase:
    """Return a case; ``foreign`` are requests and templates that other objects control."""
    by_name = {obj["metadata"]["name"]: obj for obj in (*requests, *templates, *foreign)}
    default = ProvisioningCase(
        workload=obj,
        configs={"c": config},
        requests=requests,
        templates=templates,
        names=NAMES,
        kinds=KINDS,
        request_named=by_name.get,
        template_named=by_name.get,
        flavors=FLAVORS.get,
        cleans_up=True,
        now=instant(100),
    )
    return replace(default, **fields)


def actions_of(plan: ActionPlan, kind: type[Any]) -> list[Any]:
    return [action for action in plan.actions if isinstance(action, kind)]


def events_of(plan: ActionPlan) -> list[tuple[str, str, str]]:
    return [(event.type, event.reason, event.note) for event in actions_of(plan, RecordEvent)]


def check_after(case: ProvisioningCase) -> tuple[dict[str, Any], list[str]]:
    """Return the check after the decision, and the notes of its events."""
    plan = decide_provisioning(case)
    result = case.workload
    for patch in actions_of(plan, Patch):
        for step in patch.steps:
            assert step.subresource == "status"
            result = apply_patch(result, {"status": step.patch["status"]})
    [check] = result["status"]["admissionChecks"]
    return check, [event.note for event in actions_of(plan, RecordEvent)]


def request_condition(
    type_: str, status: bool = True, message: str = "m", since: float = 50
) -> dict[str, Any]:
    return condition(type_, status, "R", message, since)


def container(requests: Any = None, limits: Any = None, **fields: Any) -> dict[str, Any]:
    resources = {"requests": requests, "limits": limits}
    return {"name": "c", "resources": {key: value for key, value in resources.items() if value}, **fields}


def pod_set(name: str, *containers: dict[str, Any], count: int = 1, **spec: Any) -> dict[str, Any]:
    return {"name": name, "count": count, "template": {"spec": {"containers": list(containers), **spec}}}


def assigned(*counts: tuple[str, int], flavor: str = "f", **parts: Any) -> dict[str, Any]:
    """Return an admission that assigns a flavor and so many pods to podsets."""
    assignments = [{"name": name, "count": count, "flavors": {"cpu": flavor}} for name, count in counts]
    return {"clusterQueue": "cq", "podSetAssignments": assignments, **parts}


DELETED = {"deletionTimestamp": timestamp(90)}
