"""The steps of a decision about the ProvisioningRequests of one Workload, and their order (pure).

The first step that returns a plan ends the decision. Its writes lead to the next decision. The source of
every rule is semantics, ProvisioningRequest check.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from admitq.controllers.plan import (
    NO_ACTIONS,
    Action,
    ActionPlan,
    Create,
    Delete,
    Patch,
    RecordEvent,
    plan_of,
    status_patch,
)
from admitq.controllers.provisioning.check_results import (
    INACTIVE,
    NOT_NEEDED,
    CheckRequest,
    check_statement,
    is_next_attempt_due,
    retries_of,
)
from admitq.controllers.provisioning.requests import (
    PROVISIONING_REQUESTS,
    RequestedPodSet,
    attempt_of,
    controller_reference,
    is_in_sync,
    pod_sets_needing_nodes,
    pod_template,
    provisioning_request,
    request_name,
    requested_pod_sets,
    template_name,
)
from admitq.controllers.stale_stores import STALE_STORE_RETRY_SECONDS
from admitq.core.model import CheckState, Instant
from admitq.integrations.base import PatchStep
from admitq.integrations.ownership import is_controlled_by
from admitq.runtime.kinds import Kinds
from admitq.runtime.resources import POD_TEMPLATES, Resource
from admitq.workloads.admission_check_reports import (
    AdmissionCheckReport,
    find_check,
    listed_checks,
    update_check,
)
from admitq.workloads.template_injection import FlavorLookup, FlavorMissing, InjectionConflict
from admitq.workloads.transitions import StatusTransition, is_active, is_condition_true, is_reserved
from admitq_api.conditions import ConditionType
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import PROVISIONING, Names

CONCERN: Final = PROVISIONING

REFUSED_RETRY_SECONDS: Final = 10.0
"""When to retry a write that the API server rejected."""


@dataclass(frozen=True)
class ProvisioningCase:
    """A Workload, its ProvisioningRequests, and the time.

    ``configs`` has the config of each check of this controller, by the name of the check; None if the
    config does not exist. ``requests`` and ``templates`` are those that the Workload controls.
    """

    workload: JsonObject
    configs: dict[str, JsonObject | None]
    requests: tuple[JsonObject, ...]
    templates: tuple[JsonObject, ...]
    names: Names
    kinds: Kinds
    request_named: Callable[[str], JsonObject | None]
    template_named: Callable[[str], JsonObject | None]
    """Find an object by name in the namespace of the Workload, whatever controls it."""
    flavors: FlavorLookup
    cleans_up: bool
    """Whether requests of evicted workloads are deleted."""
    now: Instant

    @property
    def name(self) -> str:
        """The name of the Workload."""
        return self.workload["metadata"]["name"]

    @cached_property
    def checks(self) -> list[JsonObject]:
        """The checks of the Workload that name this controller and have a config."""
        return [check for check in listed_checks(self.workload) if self.configs.get(check["name"])]

    @cached_property
    def requests_by_check(self) -> dict[str, CheckRequest]:
        """By check, the latest request that equals what the config requests."""
        requests: dict[str, CheckRequest] = {}
        for check in self.checks:
            name, config = check["name"], self.configs[check["name"]] or {}
            if not pod_sets_needing_nodes(self.workload, config):
                continue
            for request in self.requests:
                attempt = self._attempt(request, check)
                if attempt is None or (name in requests and requests[name].attempt > attempt):
                    continue
                if is_in_sync(request, self.workload, config, self.names):
                    requests[name] = CheckRequest(self.workload, check, config, request, attempt)
        return requests

    def _attempt(self, request: JsonObject, check: JsonObject) -> int | None:
        if "deletionTimestamp" in request["metadata"]:
            return None
        return attempt_of(request["metadata"]["name"], self.name, check["name"], retries_of(check) + 1)

    def state(self, statements: Iterable[AdmissionCheckReport]) -> ActionPlan | None:
        """Return the plan that writes check states and reports new ones; None if nothing changes."""
        before = listed_checks(self.workload)
        checks: list[JsonObject] = list(before)
        events: list[RecordEvent] = []
        for stated in statements:
            old = find_check(checks, stated.name) or {}
            checks = list(update_check(checks, stated, self.now))
            if old.get("state") != stated.state:
                note = (
                    f"Admission check {stated.name} updated state from {old.get('state')} to {stated.state}"
                )
                note += f" with message: {stated.message}" if stated.message else ""
                events.append(RecordEvent(self.workload, "Normal", "AdmissionCheckUpdated", note))
        transition = StatusTransition(self.workload, self.now)
        transition.status["admissionChecks"] = checks
        write = status_patch(self.kinds.workloads, self.workload, transition.patch(), CONCERN)
        return None if write is None else plan_of(write, *events)


def decide_provisioning(case: ProvisioningCase) -> ActionPlan:
    """Return the plan of the first step that has something to do."""
    for step in STEPS:
        decided = step(case)
        if decided is not None:
            return decided
    return NO_ACTIONS


def _deletions(resource: Resource, objects: Iterable[JsonObject]) -> tuple[Action, ...]:
    return tuple(Delete(resource, obj) for obj in objects if "deletionTimestamp" not in obj["metadata"])


def _clean_up_ended(case: ProvisioningCase) -> ActionPlan | None:
    """Delete the requests of a finished Workload; those of an evicted one only if so configured.

    The checks of a deactivated Workload are not updated. The eviction records their states. Templates that no
    request has taken over are deleted, because the next reservation would use them.
    """
    finished = is_condition_true(case.workload, ConditionType.FINISHED)
    evicted = is_condition_true(case.workload, ConditionType.EVICTED)
    if finished or evicted:
        requests = case.requests if finished or case.cleans_up else ()
        return plan_of(
            *_deletions(PROVISIONING_REQUESTS, requests), *_deletions(POD_TEMPLATES, case.templates)
        )
    stays = is_active(case.workload) and "deletionTimestamp" not in case.workload["metadata"]
    return None if is_reserved(case.workload) and stays else NO_ACTIONS


def _delete_unwanted_requests(case: ProvisioningCase) -> ActionPlan | None:
    """Keep only the latest request of each check that matches its config; delete all others."""
    wanted_names = {
        check_request.request["metadata"]["name"] for check_request in case.requests_by_check.values()
    }
    unwanted = [request for request in case.requests if request["metadata"]["name"] not in wanted_names]
    deletions = _deletions(PROVISIONING_REQUESTS, unwanted)
    return plan_of(*deletions) if deletions else None


def _check_statements(case: ProvisioningCase) -> Iterable[AdmissionCheckReport]:
    for check in listed_checks(case.workload):
        name, state = check["name"], check.get("state")
        if name not in case.configs:
            continue
        config = case.configs[name]
        if config is None:
            # A check in state Ready stays Ready until an eviction.
            if state != CheckState.READY:
                yield AdmissionCheckReport(name, CheckState.PENDING, INACTIVE)
        elif not pod_sets_needing_nodes(case.workload, config):
            if state != CheckState.READY:
                yield AdmissionCheckReport(name, CheckState.READY, NOT_NEEDED)
        elif name in case.requests_by_check and (stated := check_statement(case.requests_by_check[name])):
            yield stated


def _update_checks(case: ProvisioningCase) -> ActionPlan | None:
    """Set the states of checks from their requests."""
    return case.state(_check_statements(case))


def _hand_over_templates(case: ProvisioningCase) -> ActionPlan | None:
    """Make each template owned by its request, so that it is deleted with the request."""
    mine = {template["metadata"]["name"]: template for template in case.templates}
    patches: list[Patch] = []
    for check_request in case.requests_by_check.values():
        owner = controller_reference(check_request.request, PROVISIONING_REQUESTS)
        for pod_set in value_at(check_request.request, ("spec", "podSets"), []):
            template = mine.get(value_at(pod_set, ("podTemplateRef", "name"), ""))
            if template is not None and "deletionTimestamp" not in template["metadata"]:
                step = PatchStep({"metadata": {"ownerReferences": [owner]}})
                patches.append(Patch(POD_TEMPLATES, template, (step,), CONCERN))
    return plan_of(*patches) if patches else None


def _attempt_due(case: ProvisioningCase, check: JsonObject) -> int | None:
    """Return the number of the attempt to make for a check; None if none is due."""
    if check.get("state") != CheckState.PENDING:
        return None
    check_request = case.requests_by_check.get(check["name"])
    if check_request is None:
        return retries_of(check) + 1
    return check_request.attempt + 1 if is_next_attempt_due(check_request) else None


def _create_requests(case: ProvisioningCase) -> ActionPlan | None:
    """Request nodes from the autoscaler, with one request for each check."""
    return next_creation(case)[1]


def next_creation(case: ProvisioningCase) -> tuple[str, ActionPlan]:
    """Return the check for which an object must be created, and the plan that creates it."""
    requeue_after: float | None = None
    for check in case.checks:
        config = case.configs[check["name"]] or {}
        attempt = _attempt_due(case, check)
        if attempt is None or not pod_sets_needing_nodes(case.workload, config):
            continue
        decided = _create_request(case, check, config, request_name(case.name, check["name"], attempt))
        if decided.actions:
            return check["name"], decided
        requeue_after = decided.requeue_after or requeue_after
    return "", ActionPlan(requeue_after=requeue_after)


def _create_request(case: ProvisioningCase, check: JsonObject, config: JsonObject, name: str) -> ActionPlan:
    """Return the plan that creates the next object of a request: its templates, then the request."""
    if (existing := case.request_named(name)) is not None:
        if is_controlled_by(existing, case.workload) or _is_deleting(existing):
            # An earlier request of this name is still being deleted. The watch shows when it is gone.
            return NO_ACTIONS
        return report_failed_creation(
            case, check["name"], PROVISIONING_REQUESTS, name, _name_conflict(PROVISIONING_REQUESTS, name)
        )
    try:
        pod_sets = requested_pod_sets(case.workload, config, case.flavors)
    except (InjectionConflict, FlavorMissing) as problem:
        return report_failed_creation(case, check["name"], PROVISIONING_REQUESTS, name, str(problem))
    for pod_set in pod_sets:
        if (decided := _create_template(case, check, name, pod_set)) is not None:
            return decided
    request = provisioning_request(name, pod_sets, case.workload, config, case.names)
    return plan_of(
        Create(PROVISIONING_REQUESTS, request, CONCERN),
        RecordEvent(
            case.workload,
            "Normal",
            "ProvisioningRequestCreated",
            f'Created ProvisioningRequest: "{name}"',
        ),
    )


def _create_template(
    case: ProvisioningCase, check: JsonObject, request: str, pod_set: RequestedPodSet
) -> ActionPlan | None:
    """Return the plan that leads to a template; None if the template exists."""
    name = template_name(request, pod_set.name)
    existing = case.template_named(name)
    if existing is None:
        template = pod_template(request, pod_set, case.workload, case.names)
        return plan_of(Create(POD_TEMPLATES, template, CONCERN))
    if _is_deleting(existing):
        return ActionPlan(requeue_after=STALE_STORE_RETRY_SECONDS)
    if is_controlled_by(existing, case.workload):
        return None
    if value_at(existing, ("metadata", "labels", case.names.managed)) == "true":
        # It belongs to an earlier request of the same name, and would be deleted with it.
        return plan_of(Delete(POD_TEMPLATES, existing), requeue_after=STALE_STORE_RETRY_SECONDS)
    return report_failed_creation(
        case, check["name"], POD_TEMPLATES, name, _name_conflict(POD_TEMPLATES, name)
    )


def _is_deleting(obj: JsonObject) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def _name_conflict(resource: Resource, name: str) -> str:
    return f'{resource} "{name}" already exists'


def report_failed_creation(
    case: ProvisioningCase, check: str, resource: Resource, name: str, error: str
) -> ActionPlan:
    """Report that an object cannot be created, in an event and in the check. The controller retries later."""
    message = f'Error creating {resource.kind} "{name}": {error}'
    tell = RecordEvent(case.workload, "Warning", "FailedCreate", message)
    stated = case.state([AdmissionCheckReport(check, CheckState.PENDING, message)])
    actions = (tell,) if stated is None else (*stated.actions, tell)
    return plan_of(*actions, requeue_after=REFUSED_RETRY_SECONDS)


STEPS: Final[tuple[Callable[[ProvisioningCase], ActionPlan | None], ...]] = (
    _clean_up_ended,
    _delete_unwanted_requests,
    _update_checks,
    _hand_over_templates,
    _create_requests,
)
"""The steps, in the order of evaluation."""
