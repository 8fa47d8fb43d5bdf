"""The controller of the ProvisioningRequest check: gathers the inputs of a decision and executes its plan."""

from admitq.controllers.context import Context
from admitq.controllers.indexes import BY_OWNER, owner_index_value
from admitq.controllers.plan import ActionPlan, Create, execute_plan, plan_of, status_patch
from admitq.controllers.provisioning.requests import PROVISIONING_REQUESTS
from admitq.controllers.provisioning.steps import (
    CONCERN,
    ProvisioningCase,
    decide_provisioning,
    next_creation,
    report_failed_creation,
)
from admitq.controllers.stale_stores import STALE_STORE_RETRY_SECONDS
from admitq.core.model import Instant
from admitq.integrations.ownership import is_controlled_by
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import Kinds
from admitq.runtime.resources import POD_TEMPLATES
from admitq.runtime.store import Key
from admitq.workloads.admission_check_reports import listed_checks
from admitq_api.conditions import ConditionType, Reason, with_condition
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

ACTIVE = "The admission check is active"
CONFIG_KIND = "ProvisioningRequestConfig"


def config_name(check: JsonObject, names: Names) -> str:
    """Return the ProvisioningRequestConfig that an AdmissionCheck names; empty if it names none."""
    parameters = value_at(check, ("spec", "parameters"), {})
    is_config = (parameters.get("apiGroup"), parameters.get("kind")) == (names.group, CONFIG_KIND)
    return parameters.get("name", "") if is_config else ""


def is_ours(check: JsonObject, names: Names) -> bool:
    """Whether an AdmissionCheck names this controller."""
    return value_at(check, ("spec", "controllerName")) == names.provisioning_controller


# --- checks ---------------------------------------------------------------------------------------


def report_check_activity(
    check: JsonObject, config: JsonObject | None, names: Names, kinds: Kinds, now: Instant
) -> ActionPlan:
    """Return the plan that sets the condition Active of an AdmissionCheck: whether its config exists."""
    name = config_name(check, names)
    configs = kinds.provisioning_request_configs
    if not name:
        problem = f"spec.parameters: name a {CONFIG_KIND} of the API group {names.group}"
    elif config is None:
        problem = f'{configs} "{name}" not found'
    else:
        problem = ""
    conditions = with_condition(
        value_at(check, ("status", "conditions"), []),
        type=ConditionType.ACTIVE,
        status=not problem,
        reason=Reason.BAD_PARAMETERS_REF if problem else Reason.ACTIVE,
        message=problem or ACTIVE,
        now=now,
        observed_generation=value_at(check, ("metadata", "generation")),
    )
    if conditions == value_at(check, ("status", "conditions"), []):
        return plan_of()
    patch = {"status": {"conditions": conditions}}
    return plan_of(status_patch(kinds.admission_checks, check, patch, CONCERN))


# --- Workloads ------------------------------------------------------------------------------------


class ProvisioningController:
    """Reconciles AdmissionChecks, and the ProvisioningRequests of Workloads."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile an AdmissionCheck (a key without namespace) or the requests of a Workload.

        Returns after how many seconds to reconcile again.
        """
        return await (self._work_on(key) if key.namespace else self._check(key.name))

    async def _check(self, name: str) -> float | None:
        ctx, kinds = self._ctx, self._ctx.kinds
        check = ctx.stores.of(kinds.admission_checks).get("", name)
        if check is None or not is_ours(check, ctx.names):
            return None
        config = ctx.stores.of(kinds.provisioning_request_configs).get("", config_name(check, ctx.names))
        return await execute_plan(ctx, report_check_activity(check, config, ctx.names, kinds, ctx.clock()))

    async def _work_on(self, key: Key) -> float | None:
        workload = self._ctx.stores.of(self._ctx.kinds.workloads).get(key.namespace, key.name)
        if workload is None:
            return None
        case = self._case(key, workload)
        if not case.configs and not case.requests and not case.templates:
            return None
        decided = decide_provisioning(case)
        try:
            return await execute_plan(self._ctx, decided)
        except ApiError as error:
            created = next((action for action in decided.actions if isinstance(action, Create)), None)
            if created is None or error.is_transient:
                raise
            if error.is_already_exists:
                # The object belongs to this controller and is not in the store yet, or it does not and the
                # store will show it.
                return STALE_STORE_RETRY_SECONDS
            name = created.obj["metadata"]["name"]
            check, _ = next_creation(case)
            return await execute_plan(
                self._ctx, report_failed_creation(case, check, created.resource, name, error.message)
            )

    def _case(self, key: Key, workload: JsonObject) -> ProvisioningCase:
        ctx, kinds, stores = self._ctx, self._ctx.kinds, self._ctx.stores
        requests, templates = stores.of(PROVISIONING_REQUESTS), stores.of(POD_TEMPLATES)
        owner = owner_index_value(ctx.names.group, "Workload", key.namespace, key.name)
        return ProvisioningCase(
            workload=workload,
            configs=self._configs(workload),
            requests=_controlled(requests.by_index(BY_OWNER, owner), workload),
            templates=_controlled(templates.by_index(BY_OWNER, owner), workload),
            names=ctx.names,
            kinds=kinds,
            request_named=lambda name: requests.get(key.namespace, name),
            template_named=lambda name: templates.get(key.namespace, name),
            flavors=lambda name: stores.of(kinds.resource_flavors).get("", name),
            cleans_up=ctx.settings.clean_up_provisioning_requests,
            now=ctx.clock(),
        )

    def _configs(self, workload: JsonObject) -> dict[str, JsonObject | None]:
        ctx, kinds, stores = self._ctx, self._ctx.kinds, self._ctx.stores
        configs: dict[str, JsonObject | None] = {}
        for listed in listed_checks(workload):
            check = stores.of(kinds.admission_checks).get("", listed["name"])
            if check is not None and is_ours(check, ctx.names):
                name = config_name(check, ctx.names)
                configs[listed["name"]] = stores.of(kinds.provisioning_request_configs).get("", name)
        return configs


def _controlled(objects: tuple[JsonObject, ...], workload: JsonObject) -> tuple[JsonObject, ...]:
    return tuple(obj for obj in objects if is_controlled_by(obj, workload))
