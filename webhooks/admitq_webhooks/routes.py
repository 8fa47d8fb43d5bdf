"""The paths and handlers of all admission webhooks, and the rules of the webhook configurations."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from admitq.integrations.base import Integration
from admitq.process.unexpected_errors import LOG_ONLY, ErrorPart, UnexpectedErrors
from admitq.serving.http import JSON, Handler, HttpRequest, HttpResponse, text
from admitq_api.feature_gates import Gate
from admitq_api.field_errors import FieldError, select_new_errors
from admitq_api.json_objects import value_at, with_value
from admitq_api.labels import Names
from admitq_webhooks import mark_reviews, owner_reviews, resize_reviews
from admitq_webhooks.ancestors import AncestryUnknown
from admitq_webhooks.lookups import ClusterLookups, LookupFailed
from admitq_webhooks.match_conditions import match_conditions
from admitq_webhooks.mutate import jobs as mutate_jobs
from admitq_webhooks.mutate import kinds as mutate_kinds
from admitq_webhooks.policy import Policy
from admitq_webhooks.references import resolve_references
from admitq_webhooks.review import (
    AdmissionRequest,
    Allowed,
    Failed,
    InvalidReview,
    Rejected,
    Verdict,
    encode_rejection,
    encode_verdict,
    parse_review,
)
from admitq_webhooks.validate import cluster_queue, cohort, resource_flavor, workload
from admitq_webhooks.validate import jobs as validate_jobs
from admitq_webhooks.validate.syntax import is_being_deleted

REVIEW_SECONDS: Final = 5.0
"""Longest time for a verdict. The API server waits for 10 s, so it gets an error with a reason in time."""

Verb = Literal["mutate", "validate"]
Review = Callable[[AdmissionRequest], Awaitable[Verdict]]
PodCheck = Callable[[AdmissionRequest, Policy, ClusterLookups], Awaitable[list[FieldError]]]
ReviewObserver = Callable[[str, bool, float], None]
"""Called after each review with its path, whether the object was allowed, and the seconds of the review."""

SCALE: Final = "scale"
"""The subresource by which ``kubectl scale`` and autoscalers change the number of replicas."""

RESIZE: Final = "resize"
"""The subresource by which the requests of running pods change in place."""

CREATE: Final = ("CREATE",)
CREATE_UPDATE: Final = ("CREATE", "UPDATE")


@dataclass(frozen=True, slots=True)
class WebhookRoute:
    """One webhook: its kind, its rules and its path.

    Attributes:
        verb: mutate or validate.
        group: the API group of the kind; empty for the core group.
        version: the API version of the kind.
        kind: the kind of the objects.
        resources: plural names, with the reviewed subresources.
        operations: the reviewed operations.
        frameworks: the webhook applies if one of these is enabled; empty if it always applies.
        is_for_jobs: whether the objects are jobs or pods of users, to which the namespace selector of managed
            jobs applies.
        aspect: the reviewed part of the kind; empty for the whole object.
    """

    verb: Verb
    group: str
    version: str
    kind: str
    resources: tuple[str, ...]
    operations: tuple[str, ...]
    frameworks: tuple[str, ...] = ()
    is_for_jobs: bool = False
    aspect: str = ""

    def is_for(self, request: AdmissionRequest) -> bool:
        """Whether the webhook is for the kind of a request, or for its Scale."""
        if request.subresource == SCALE and f"{self.resources[0]}/{SCALE}" in self.resources:
            return (request.group, request.kind) == ("autoscaling", "Scale")
        return (request.group, request.version, request.kind) == (self.group, self.version, self.kind)

    def path(self, names: Names) -> str:
        """Return the path of the webhook."""
        path = names.webhook_path(self.verb, self.group, self.version, self.kind)
        return f"{path}-{self.aspect}" if self.aspect else path

    def to_dict(self, names: Names) -> dict[str, Any]:
        """Return the entry of the webhook configuration, without the address of the server.

        ``namespaceSelector`` is ``jobs`` for the selector of managed jobs, or ``core`` for no selector.
        """
        return {
            "name": f"{self.verb[0]}{self.kind.lower()}{self.aspect}.{names.group}",
            "path": self.path(names),
            "namespaceSelector": "jobs" if self.is_for_jobs else "core",
            "frameworks": list(self.frameworks),
            "failurePolicy": "Fail",
            "timeoutSeconds": 10,
            "sideEffects": "None",
            "matchPolicy": "Equivalent",
            "matchConditions": list(
                match_conditions(self.group, self.kind, self.operations, names, self.aspect)
            ),
            "rule": {
                "apiGroups": [self.group],
                "apiVersions": [self.version],
                "operations": list(self.operations),
                "resources": list(self.resources),
            },
        }


_OWN_KINDS: Final[tuple[tuple[Verb, str, tuple[str, ...], tuple[str, ...]], ...]] = (
    ("mutate", "ClusterQueue", ("clusterqueues",), CREATE),
    ("mutate", "ResourceFlavor", ("resourceflavors",), CREATE),
    ("mutate", "Workload", ("workloads",), CREATE),
    ("validate", "ClusterQueue", ("clusterqueues",), CREATE_UPDATE),
    ("validate", "Cohort", ("cohorts",), CREATE_UPDATE),
    ("validate", "ResourceFlavor", ("resourceflavors",), CREATE_UPDATE),
    ("validate", "Workload", ("workloads", "workloads/status"), CREATE_UPDATE),
)


_RESIZE_ROUTE: Final = WebhookRoute(
    "validate", "", "v1", "Pod", (f"pods/{RESIZE}",), ("UPDATE",), is_for_jobs=True, aspect=RESIZE
)
"""The same rule applies to resizes of pods of every kind of job."""

_MARK_ROUTE: Final = WebhookRoute(
    "validate", "", "v1", "Pod", ("pods", "pods/status"), ("UPDATE",), is_for_jobs=True, aspect="marks"
)
"""The marks of pods of every kind of job are protected, whether or not plain pods are queued."""


def webhook_routes(names: Names, integrations: Iterable[Integration]) -> tuple[WebhookRoute, ...]:
    """Return the webhooks of admitq's kinds and of these kinds of jobs."""
    own = tuple(
        WebhookRoute(verb, names.group, names.version, kind, resources, operations)
        for verb, kind, resources, operations in _OWN_KINDS
    )
    kinds = tuple(integrations)

    def job_route(verb: Verb, integration: Integration) -> WebhookRoute:
        operations = CREATE if verb == "mutate" and not integration.webhook.mutates_updates else CREATE_UPDATE
        frameworks = (
            integration.framework,
            *(
                other.framework
                for other in kinds
                if integration.framework in other.ownership.implied_frameworks
            ),
        )
        is_scale_reviewed = verb == "validate" and integration.webhook.scale_field is not None
        resources = (
            (integration.plural, f"{integration.plural}/{SCALE}")
            if is_scale_reviewed
            else (integration.plural,)
        )
        return WebhookRoute(
            verb,
            integration.group,
            integration.version,
            integration.kind,
            resources,
            operations,
            frameworks,
            is_for_jobs=True,
        )

    verbs: tuple[Verb, ...] = ("mutate", "validate")
    return (*own, *(job_route(verb, kind) for verb in verbs for kind in kinds), _RESIZE_ROUTE, _MARK_ROUTE)


def webhook_rules(names: Names, integrations: Iterable[Integration]) -> dict[str, list[dict[str, Any]]]:
    """Return the entries of the webhook configurations, under ``mutating`` and ``validating``."""
    every = webhook_routes(names, integrations)
    return {
        "mutating": [route.to_dict(names) for route in every if route.verb == "mutate"],
        "validating": [route.to_dict(names) for route in every if route.verb == "validate"],
    }


def review_handlers(
    policy: Policy,
    lookups: ClusterLookups,
    registered: Iterable[Integration],
    *,
    observe: ReviewObserver | None = None,
    errors: UnexpectedErrors = LOG_ONLY,
) -> dict[str, Handler]:
    """Return the handler of each path.

    Args:
        policy: what is managed, and which kinds of jobs are enabled.
        lookups: lookups.
        registered: all kinds of jobs. The handlers of disabled kinds allow every object, in case a webhook
            configuration names such a kind.
        observe: called after each review.
        errors: reports unexpected exceptions. The API server gets an answer with status 500, and rejects the
            request, whatever the failure policy of the webhook is.
    """
    names, gates = policy.names, policy.gates
    registered = tuple(registered)
    enabled_kinds = {kind.gvk: kind for kind in policy.integrations}

    async def add_finalizer(request: AdmissionRequest) -> Verdict:
        return Allowed(mutate_kinds.add_finalizer(request.obj, names))

    async def mutate_workload(request: AdmissionRequest) -> Verdict:
        return Allowed(mutate_kinds.mutate_workload(request.obj, names, gates))

    async def validate_cluster_queue(request: AdmissionRequest) -> Verdict:
        if request.operation == "CREATE":
            return _verdict(cluster_queue.validate_create(request.obj, gates))
        return _verdict(cluster_queue.validate_update(request.old, request.obj, gates))

    async def validate_cohort(request: AdmissionRequest) -> Verdict:
        return _verdict(_new_unless_deleted(request, cohort.validate))

    async def validate_flavor(request: AdmissionRequest) -> Verdict:
        return _verdict(_new_unless_deleted(request, resource_flavor.validate))

    async def validate_workload(request: AdmissionRequest) -> Verdict:
        if request.operation == "CREATE":
            return _verdict(workload.validate_create(request.obj, names, gates))
        return _verdict(workload.validate_update(request.old, request.obj, names, gates))

    reviews: dict[tuple[Verb, str], Review] = {
        ("mutate", "ClusterQueue"): add_finalizer,
        ("mutate", "ResourceFlavor"): add_finalizer,
        ("mutate", "Workload"): mutate_workload,
        ("validate", "ClusterQueue"): validate_cluster_queue,
        ("validate", "Cohort"): validate_cohort,
        ("validate", "ResourceFlavor"): validate_flavor,
        ("validate", "Workload"): validate_workload,
    }
    handlers: dict[str, Handler] = {}
    for webhook in webhook_routes(names, registered):
        if webhook is _RESIZE_ROUTE:
            review = _pod_review(resize_reviews.review_resize, policy, lookups)
        elif webhook is _MARK_ROUTE:
            review = _pod_review(mark_reviews.review_pod_marks, policy, lookups)
        elif webhook.is_for_jobs:
            integration = enabled_kinds.get((webhook.group, webhook.version, webhook.kind))
            review = (
                _allow if integration is None else _job_review(webhook.verb, integration, policy, lookups)
            )
        else:
            review = reviews[webhook.verb, webhook.kind]
        handlers[webhook.path(names)] = _handler(webhook, review, observe, errors)
    return handlers


def _job_review(verb: Verb, integration: Integration, policy: Policy, lookups: ClusterLookups) -> Review:
    skips_deleted = policy.gates.is_enabled(Gate.SKIP_ANCESTOR_CHECK_FOR_DELETED_WORKLOADS)

    async def review(request: AdmissionRequest) -> Verdict:
        namespace = request.namespace
        if policy.is_namespace_excluded(namespace):
            return Allowed()
        # The stored object counts, too: an update must not make a managed job unmanaged.
        states = (request.obj, request.old) if verb == "validate" and request.old else (request.obj,)
        if not any(integration.may_manage(state, policy.names) for state in states):
            return Allowed()
        held_by_parent = any(integration.ownership.is_held_by_parent(state, policy.names) for state in states)
        if not held_by_parent and not policy.manages_namespace(
            namespace, await lookups.namespace_labels(namespace)
        ):
            return Allowed()
        if verb == "mutate":
            if skips_deleted and is_being_deleted(request.old):
                # The owner may not exist any more. This must not prevent the removal of finalizers.
                return Allowed()
            before = request.old or None
            changed = await mutate_jobs.mutate_job(
                request.obj, namespace, integration, policy, lookups, before, request.user
            )
            return Allowed(changed, owner_reviews.controller_warnings(request.obj, changed, integration))
        if request.subresource == SCALE:
            scaled = await _expand_scale(request, integration, lookups)
            if scaled is None:
                return Allowed()
            request = scaled
        new = await resolve_references(request.obj, namespace, integration, lookups)
        if request.operation == "CREATE":
            errors = validate_jobs.validate_create(new, integration, policy)
            errors += await owner_reviews.review_kept_child(request, integration, policy, lookups)
            warnings = await validate_jobs.member_warnings(new, namespace, integration, policy, lookups)
            return Rejected(tuple(errors)) if errors else Allowed(warnings=warnings)
        old = await resolve_references(request.old, namespace, integration, lookups)
        rejected = await mark_reviews.review_marks(request, old, new, integration, policy, lookups)
        rejected += await owner_reviews.review_controller_reference(request, integration, policy, lookups)
        rejected += await owner_reviews.review_increase(request, old, new, integration, policy, lookups)
        if rejected:
            return Rejected(tuple(rejected))
        names, list_workloads = policy.names, integration.webhook.list_deciding_workloads
        deciding: Mapping[str, Any] | None = None
        for name in () if list_workloads is None else list_workloads(old, new, policy.kind_rules(new)):
            deciding = deciding or await lookups.get_object(
                names.group, names.version, "Workload", namespace, name
            )
        return _verdict(
            validate_jobs.validate_update(old, new, namespace, integration, policy, lookups, deciding)
        )

    return review


def _pod_review(check: PodCheck, policy: Policy, lookups: ClusterLookups) -> Review:
    async def review(request: AdmissionRequest) -> Verdict:
        if not policy.manages_namespace(request.namespace, await lookups.namespace_labels(request.namespace)):
            return Allowed()
        return _verdict(await check(request, policy, lookups))

    return review


async def _expand_scale(
    request: AdmissionRequest, integration: Integration, lookups: ClusterLookups
) -> AdmissionRequest | None:
    """Convert a request for a Scale into one for the object itself; None if the object does not exist."""
    path = integration.webhook.scale_field or ()
    name = value_at(request.obj, ("metadata", "name"), "")
    scaled_object = await lookups.get_object(*integration.gvk, request.namespace, name)
    if scaled_object is None:
        return None
    old, new = (
        # A Scale with 0 replicas has no field spec.replicas.
        with_value(scaled_object, path, value_at(scale, ("spec", "replicas"), 0))
        for scale in (request.old, request.obj)
    )
    return replace(request, obj=new, old=old, subresource="")


async def _allow(_: AdmissionRequest) -> Verdict:
    return Allowed()


def _new_unless_deleted(
    request: AdmissionRequest, validate: Callable[[Mapping[str, Any]], list[FieldError]]
) -> list[FieldError]:
    """Return the errors of a new object, or those of a changed object that the stored one does not have."""
    if request.operation == "CREATE":
        return validate(request.obj)
    if is_being_deleted(request.old):
        return []
    return select_new_errors(validate(request.obj), validate(request.old))


def _verdict(errors: list[FieldError]) -> Verdict:
    return Rejected(tuple(errors)) if errors else Allowed()


def _handler(
    webhook: WebhookRoute, review: Review, observe: ReviewObserver | None, errors: UnexpectedErrors
) -> Handler:
    async def handle(request: HttpRequest) -> HttpResponse:
        if request.method != "POST":
            return HttpResponse(405, b"send an AdmissionReview by POST\n", headers={"Allow": "POST"})
        started = time.monotonic()
        try:
            admission_request = parse_review(request.body)
        except InvalidReview as error:
            if not error.uid:
                return text(400, str(error))
            return HttpResponse(200, encode_rejection(error.uid, str(error), 400, "BadRequest"), JSON)
        verdict = await _review(webhook, review, admission_request, errors, request.path)
        if observe is not None:
            observe(request.path, isinstance(verdict, Allowed), time.monotonic() - started)
        try:
            return HttpResponse(200, encode_verdict(admission_request, verdict), JSON)
        except Exception as error:  # noqa: BLE001 the API server must get an answer whatever the object contains
            errors.report(ErrorPart.REVIEW, error, _describe_request(admission_request), request.path)
            return HttpResponse(
                200, encode_rejection(admission_request.uid, "internal error", 500, "InternalError"), JSON
            )

    return handle


def _describe_request(request: AdmissionRequest) -> str:
    """Return kind, namespace and name of the reviewed object, for the log."""
    name = value_at(request.obj, ("metadata", "name"), "")
    return f"{request.kind} {request.namespace}/{name}"


async def _review(
    webhook: WebhookRoute, review: Review, request: AdmissionRequest, errors: UnexpectedErrors, route: str
) -> Verdict:
    if not webhook.is_for(request):
        expected = f"{webhook.group}/{webhook.version} {webhook.kind}"
        return Failed(f"this webhook is for {expected}; correct its configuration", 400, "BadRequest")
    if request.operation not in webhook.operations:
        # Another webhook configuration sent this operation. Changes for creations may be wrong for it.
        return Allowed()
    try:
        async with asyncio.timeout(REVIEW_SECONDS):
            return await review(request)
    except AncestryUnknown as unclear:
        return Rejected((unclear.error,))
    except LookupFailed as error:
        return Failed(f"{error}; try again", 503, "ServiceUnavailable")
    except TimeoutError:
        return Failed("no verdict in time; try again", 504, "Timeout")
    except Exception as error:  # noqa: BLE001 one object must not end the process that reviews all objects
        errors.report(ErrorPart.REVIEW, error, _describe_request(request), route)
        return Failed("internal error; the log of the webhook has the traceback")
