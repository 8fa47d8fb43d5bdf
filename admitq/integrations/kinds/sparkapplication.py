"""``sparkoperator.k8s.io/v1beta2`` SparkApplication: a driver, and the executors that it requests.

If any field but the suspension changes, the operator deletes the running pods and starts again. So a start, a
stop or an edit takes effect in every state of the application. Between the states running and suspended there
are states in which the operator deletes its pods.
"""

from typing import Final

from admitq.integrations.base import (
    ChildDifference,
    ElasticityCheck,
    Integration,
    JobOutcome,
    KindOwnership,
    KindWebhook,
    PodSetTemplate,
    PodTemplates,
    RuleContext,
)
from admitq.integrations.children import is_pod_within
from admitq.integrations.families import managed_job_rules
from admitq.integrations.families.spark_pods import (
    COMMON_NODE_SELECTOR,
    CONF,
    DRIVER,
    DYNAMIC_ALLOCATION,
    EXECUTOR,
    Role,
    allocates_dynamically,
    compute_template,
    count_executors,
    has_common_node_selector,
    supports_node_selector_by_role,
    with_role_template,
)
from admitq_api.feature_gates import Gate
from admitq_api.field_errors import ErrorPath, FieldError
from admitq_api.json_objects import JsonObject, as_int, object_at, text_at, text_fields_at, value_at
from admitq_api.labels import Names

ROLES: Final = {role.name: role for role in (DRIVER, EXECUTOR)}

ACTIVE_STATES: Final = frozenset(
    {
        "SUBMITTED",
        "RUNNING",
        "SUCCEEDING",
        "FAILING",
        "PENDING_RERUN",
        "INVALIDATING",
        "SUSPENDING",
        "RESUMING",
        "UNKNOWN",
    }
)
"""The states in which pods may exist."""


def _get_state(app: JsonObject) -> str:
    return text_at(app, ("status", "applicationState", "state"))


def list_pod_sets(app: JsonObject, _names: Names) -> list[PodSetTemplate]:
    """Return the podsets of the driver and of the initial executors."""
    counts = {DRIVER.name: 1, EXECUTOR.name: count_executors(app)}
    return [
        PodSetTemplate(
            name,
            counts[name],
            role.path,
            template=compute_template(app, role),
            own_annotations_path=(*role.path, "annotations"),
        )
        for name, role in ROLES.items()
    ]


def with_template(
    app: JsonObject, pod_set: PodSetTemplate, template: JsonObject, _names: Names
) -> JsonObject:
    """Return the application with a template written to the fields of the role."""
    role = ROLES.get(pod_set.name)
    return app if role is None else with_role_template(app, role, template)


def find_outcome(app: JsonObject) -> JobOutcome | None:
    """Return the outcome by the application's state. A failed submission that is retried is not the end."""
    state, message = _get_state(app), text_at(app, ("status", "applicationState", "errorMessage"))
    if state == "COMPLETED":
        return JobOutcome(True, message or "SparkApplication completed")
    if state == "FAILED" or (state == "SUBMISSION_FAILED" and not _will_be_resubmitted(app)):
        return JobOutcome(False, message or "SparkApplication failed")
    return None


def _will_be_resubmitted(app: JsonObject) -> bool:
    policy = object_at(app, ("spec", "restartPolicy"))
    if policy.get("type") == "OnFailure":
        attempts = as_int(value_at(app, ("status", "submissionAttempts")))
        return attempts <= as_int(policy.get("onSubmissionFailureRetries"), -1)
    return policy.get("type") == "Always"


def are_pods_ready(app: JsonObject) -> bool:
    """Whether the driver runs, and all executors run or have completed."""
    states = object_at(app, ("status", "executorState")).values()
    settled = sum(state in ("RUNNING", "COMPLETED") for state in states)
    return _get_state(app) == "RUNNING" and settled >= count_executors(app)


def compare_child(app: JsonObject, pod: JsonObject, _is_elastic: ElasticityCheck) -> ChildDifference | None:
    """Return how a pod differs from the driver: in its name, or in the requests that Spark derives."""
    configured = text_fields_at(app, CONF).get("spark.kubernetes.driver.pod.name")
    default = f"{text_at(app, ('metadata', 'name'))}-driver"
    name = text_at(app, (*DRIVER.path, "podName")) or configured or default
    if text_at(pod, ("metadata", "name")) != name:
        return ChildDifference.IDENTITY
    return _compare_requests(app, pod, DRIVER)


def compare_grandchild(
    app: JsonObject, pod: JsonObject, _is_elastic: ElasticityCheck
) -> ChildDifference | None:
    """Return how the requests of a pod differ from those of the executors, which the driver creates."""
    return _compare_requests(app, pod, EXECUTOR)


def _compare_requests(app: JsonObject, pod: JsonObject, role: Role) -> ChildDifference | None:
    return None if is_pod_within(pod, compute_template(app, role)) else ChildDifference.REQUESTS


def _find_errors(app: JsonObject, _context: RuleContext) -> list[FieldError]:
    """Return the errors of fields by which pods would be unknown before they run."""
    errors: list[FieldError] = []
    mode = value_at(app, ("spec", "mode"))
    if mode not in (None, "cluster"):
        errors.append(FieldError.not_supported("spec.mode", mode, ["cluster"]))
    if allocates_dynamically(app):
        declared = value_at(app, (*DYNAMIC_ALLOCATION, "enabled")) is True
        path = ErrorPath().at(*DYNAMIC_ALLOCATION, "enabled")
        if not declared:
            path = ErrorPath().at(*CONF).key("spark.dynamicAllocation.enabled")
        errors.append(
            FieldError.forbidden(
                path, "only elastic jobs can change their size", "set spec.executor.instances"
            )
        )
    if has_common_node_selector(app) and not supports_node_selector_by_role(app):
        errors.append(
            FieldError.forbidden(
                ErrorPath().at(*COMMON_NODE_SELECTOR),
                "cannot be used before Spark 3.3",
                "set spec.driver.nodeSelector and spec.executor.nodeSelector",
            )
        )
    return errors


SPARK_APPLICATION: Final = Integration(
    framework="sparkoperator.k8s.io/sparkapplication",
    gate=Gate.SPARK_APPLICATION_INTEGRATION,
    group="sparkoperator.k8s.io",
    version="v1beta2",
    kind="SparkApplication",
    plural="sparkapplications",
    list_pod_sets=list_pod_sets,
    find_outcome=find_outcome,
    is_active=lambda app: _get_state(app) in ACTIVE_STATES,
    are_pods_ready=are_pods_ready,
    templates=PodTemplates(with_template=with_template),
    ownership=KindOwnership(
        created_kinds=frozenset({("", "Pod")}),
        compare_child=compare_child,
        compare_grandchild=compare_grandchild,
    ),
    webhook=KindWebhook(
        validate_create=managed_job_rules.check_new_jobs(_find_errors),
        checks_templates_only_if_managed=True,
        should_validate_update=managed_job_rules.should_validate_update,
        validate_update=managed_job_rules.check_updated_jobs(_find_errors),
    ),
)
