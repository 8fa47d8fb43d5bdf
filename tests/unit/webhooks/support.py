"""In-memory lookups, and functions that send reviews to webhooks."""

import base64
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonpatch
import orjson
from cel import evaluate

from admitq.core.model import LabelSelector
from admitq.integrations.base import Integration
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.pod import POD
from admitq.serving.access_reviews import Access
from admitq.serving.authorization import User
from admitq.serving.http import Handler, HttpRequest
from admitq_api.feature_gates import FeatureGates
from admitq_api.labels import names_for
from admitq_webhooks.lookups import LookupFailed
from admitq_webhooks.policy import Policy
from admitq_webhooks.routes import review_handlers, webhook_routes

NAMES = names_for()
OPERATOR = User("operator", "", (), ())
"""A user that may update every status, as controllers may for their kind."""
QUEUE = NAMES.queue_name
PRIORITY = NAMES.priority_class


@dataclass
class FakeLookups:
    """In-memory lookups; tests set the fields."""

    local_queues: set[tuple[str, str]] = field(default_factory=set)
    priority_classes: set[str] = field(default_factory=set)
    namespaces: dict[str, dict[str, str]] = field(default_factory=lambda: {"team": {}, "other": {}})
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    controllers: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    unavailable: bool = False
    object_requests: list[str] = field(default_factory=list)
    permitted: set[tuple[str, str, str]] = field(default_factory=set)
    """Allowed accesses: user, access as text, namespace."""
    plurals: dict[str, str] = field(default_factory=dict)
    accesses: list[tuple[str, str, str]] = field(default_factory=list)

    def has_local_queue(self, namespace: str, name: str) -> bool:
        return (namespace, name) in self.local_queues

    def has_priority_class(self, name: str) -> bool:
        return name in self.priority_classes

    def admission_check_controllers(self, namespace: str, queue: str) -> frozenset[str]:
        return frozenset(self.controllers.get((namespace, queue), ()))

    async def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        if self.unavailable:
            raise LookupFailed("the API server does not answer")
        return self.namespaces.get(name)

    async def get_object(
        self, group: str, version: str, kind: str, namespace: str, name: str
    ) -> Mapping[str, Any] | None:
        if self.unavailable:
            raise LookupFailed("the API server does not answer")
        self.object_requests.append(f"{group}/{version} {kind} {namespace}/{name}")
        return self.objects.get(f"{kind}/{name}", self.objects.get(name))

    async def is_allowed(self, user: User, access: Access) -> bool:
        if self.unavailable:
            raise LookupFailed("the API server does not answer")
        self.accesses.append((user.name, str(access), access.namespace))
        return user == OPERATOR or self.accesses[-1] in self.permitted

    async def plural(self, group: str, version: str, kind: str) -> str | None:
        if self.unavailable:
            raise LookupFailed("the API server does not answer")
        return self.plurals.get(kind)


def policy(**changes: Any) -> Policy:
    settings: dict[str, Any] = {
        "names": NAMES,
        "integrations": (JOB,),
        "own_namespace": "admitq-system",
        "namespace_selector": LabelSelector(),
        **changes,
        "gates": FeatureGates.from_mapping(changes.get("gates", {})),
    }
    return Policy(**settings)


def a_job(
    *,
    labels: Mapping[str, Any] | None = None,
    annotations: Mapping[str, Any] | None = None,
    suspend: bool | None = None,
    template_annotations: Mapping[str, Any] | None = None,
    template_labels: Mapping[str, Any] | None = None,
    template_spec: Mapping[str, Any] | None = None,
    owner: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "work", "namespace": "team", "uid": "job-uid"}
    if labels is not None:
        metadata["labels"] = dict(labels)
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    if owner is not None:
        metadata["ownerReferences"] = [{"controller": True, **owner}]
    template: dict[str, Any] = {"metadata": {}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    if template_annotations is not None:
        template["metadata"]["annotations"] = dict(template_annotations)
    if template_labels is not None:
        template["metadata"]["labels"] = dict(template_labels)
    if template_spec is not None:
        template["spec"] = dict(template_spec)
    job_spec: dict[str, Any] = {"parallelism": 4, "completions": 4, "template": template, **spec}
    if suspend is not None:
        job_spec["suspend"] = suspend
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job_spec}


@dataclass(frozen=True)
class Answer:
    """Decoded response of a webhook."""

    status: int
    body: dict[str, Any]
    before: dict[str, Any]

    @property
    def response(self) -> dict[str, Any]:
        return self.body["response"]

    @property
    def allowed(self) -> bool:
        return self.response["allowed"]

    @property
    def message(self) -> str:
        return self.response["status"]["message"]

    @property
    def patch(self) -> list[dict[str, Any]] | None:
        encoded = self.response.get("patch")
        return None if encoded is None else orjson.loads(base64.b64decode(encoded))

    @property
    def after(self) -> dict[str, Any]:
        return jsonpatch.apply_patch(self.before, self.patch or [])


def review(
    obj: Any,
    old: Any = None,
    *,
    gvk: tuple[str, str, str] = ("batch", "v1", "Job"),
    namespace: str = "team",
    operation: str | None = None,
    **request: Any,
) -> dict[str, Any]:
    group, version, kind = gvk
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "the-uid",
            "kind": {"group": group, "version": version, "kind": kind},
            "namespace": namespace,
            "operation": operation or ("CREATE" if old is None else "UPDATE"),
            "object": obj,
            "oldObject": old,
            **request,
        },
    }


def handlers(
    lookups: FakeLookups | None = None, registered: tuple[Integration, ...] = (JOB,), **changes: Any
) -> dict[str, Handler]:
    return review_handlers(policy(**changes), lookups or FakeLookups(), registered)


async def post(handler: Handler, path: str, body: Any) -> tuple[int, bytes]:
    encoded = body if isinstance(body, bytes) else orjson.dumps(body)
    response = await handler(HttpRequest("POST", path, body=encoded))
    return response.status, response.body


async def call_webhook(
    path: str,
    obj: Any,
    old: Any = None,
    *,
    lookups: FakeLookups | None = None,
    gvk: tuple[str, str, str] = ("batch", "v1", "Job"),
    namespace: str = "team",
    request: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Answer:
    handler = handlers(lookups, **changes)[path]
    sent = review(obj, old, gvk=gvk, namespace=namespace, **(request or {}))
    status, body = await post(handler, path, sent)
    answer = Answer(status, orjson.loads(body), obj)
    if "response" in answer.body and (answer.patch or not answer.allowed):
        assert is_called(path, sent["request"]), "the API server does not call the webhook for this request"
    return answer


@functools.cache
def _conditions_by_path() -> dict[str, tuple[str, ...]]:
    routes = webhook_routes(NAMES, (JOB, POD))
    return {
        route.path(NAMES): tuple(each["expression"] for each in route.to_dict(NAMES)["matchConditions"])
        for route in routes
    }


def is_called(path: str, request: Mapping[str, Any]) -> bool:
    """Whether the API server calls the webhook with this path, by its match conditions."""
    context = {
        "object": request["object"],
        "oldObject": request["oldObject"],
        "request": {key: request[key] for key in ("operation", "subResource") if key in request},
    }
    return all(evaluate(expression, context) is True for expression in _conditions_by_path().get(path, ()))


BY_OPERATOR = {"userInfo": {"username": OPERATOR.name}}
"""User info of a review that the operator sends."""


async def mutate_job(obj: Any, **options: Any) -> Answer:
    return await call_webhook("/mutate-batch-v1-job", obj, **options)


async def validate_job(obj: Any, old: Any = None, **options: Any) -> Answer:
    return await call_webhook("/validate-batch-v1-job", obj, old, **options)


async def call_own_webhook(verb: str, kind: str, obj: Any, old: Any = None, **options: Any) -> Answer:
    gvk = (NAMES.group, NAMES.version, kind)
    path = f"/{verb}-admitq-dev-v1beta2-{kind.lower()}"
    return await call_webhook(path, obj, old, gvk=gvk, namespace="", **options)
