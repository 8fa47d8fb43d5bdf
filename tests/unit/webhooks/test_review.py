"""Parsing of AdmissionReviews and encoding of verdicts, also for malformed and random input."""

import base64
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from admitq.serving.authorization import User
from admitq.serving.http import HttpRequest
from admitq_api.field_errors import FieldError
from admitq_webhooks.review import (
    NO_USER,
    Allowed,
    Failed,
    InvalidReview,
    Rejected,
    encode_verdict,
    parse_review,
)
from tests.unit.webhooks.support import NAMES, FakeLookups, a_job, handlers, post, review

JOB_PATH = "/mutate-batch-v1-job"


def request_of(**changes: Any) -> bytes:
    body = review(a_job())
    body["request"] |= changes
    return orjson.dumps(body)


def test_review_is_parsed() -> None:
    request = parse_review(request_of(dryRun=True, subResource="status", oldObject={"a": 1}))
    assert (request.uid, request.operation, request.kind, request.namespace) == (
        "the-uid",
        "CREATE",
        "Job",
        "team",
    )
    assert request.dry_run
    assert request.subresource == "status"
    assert request.obj["metadata"]["name"] == "work"
    assert request.old == {"a": 1}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b"null",
        b"{}",
        b'{"request": {}}',
        b'{"request": {"uid": ""}}',
        b'{"request": {"uid": 7}}',
        b'{"request": {"uid": NaN}}',
        b'{"request": {"uid": "' + b"u" * 129 + b'"}}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        "{'request'}".encode("utf-16"),
        b'{"request": {"uid": "\\ud800"}}',
    ],
)
async def test_body_that_is_no_review_is_answered_with_400(body: bytes) -> None:
    with pytest.raises(InvalidReview):
        parse_review(body)
    status, text = await post(handlers()[JOB_PATH], JOB_PATH, body)
    assert status == 400
    assert text.endswith(b"\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"apiVersion": "admission.k8s.io/v1beta1"}, "admission.k8s.io/v1"),
        ({"kind": "Review"}, "AdmissionReview"),
        ({"request": {"uid": "the-uid", "operation": "PATCH"}}, "request.operation"),
        ({"request": {"uid": "the-uid"}}, "request.operation"),
        ({"request": {"uid": "the-uid", "operation": "CREATE"}}, "request.object"),
        ({"request": {"uid": "the-uid", "operation": "UPDATE", "object": [1]}}, "request.object"),
    ],
)
async def test_malformed_review_is_rejected_with_its_uid(change: dict[str, Any], message: str) -> None:
    status, body = await post(handlers()[JOB_PATH], JOB_PATH, {**review(a_job()), **change})
    response = orjson.loads(body)["response"]
    assert status == 200
    assert response["uid"] == "the-uid"
    assert response["allowed"] is False
    assert response["status"]["code"] == 400
    assert message in response["status"]["message"]


async def test_review_of_other_kind_than_that_of_the_path_is_rejected() -> None:
    body = review(a_job(), gvk=("batch", "v1", "CronJob"))
    _, answered = await post(handlers()[JOB_PATH], JOB_PATH, body)
    response = orjson.loads(answered)["response"]
    assert response["allowed"] is False
    assert "batch/v1 Job" in response["status"]["message"]


async def test_method_other_than_post_is_answered_with_405() -> None:
    response = await handlers()[JOB_PATH](HttpRequest("GET", JOB_PATH))
    assert (response.status, response.headers["Allow"]) == (405, "POST")


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
async def test_delete_and_connect_are_always_allowed(operation: str) -> None:
    kinds = {
        JOB_PATH: ("batch", "v1", "Job"),
        "/validate-batch-v1-job": ("batch", "v1", "Job"),
        "/validate--v1-pod-resize": ("", "v1", "Pod"),
        "/validate--v1-pod-marks": ("", "v1", "Pod"),
    }
    named = {"clusterqueue": "ClusterQueue", "resourceflavor": "ResourceFlavor"}
    for path, handler in handlers(FakeLookups(unavailable=True)).items():
        kind = path.rpartition("-")[2]
        group, version, kind = kinds.get(path, (NAMES.group, "v1beta2", named.get(kind, kind.title())))
        body = review(None, gvk=(group, version, kind), operation=operation)
        _, answered = await post(handler, path, body)
        assert orjson.loads(answered)["response"] == {"uid": "the-uid", "allowed": True}


def encode_and_decode(verdict: Any, **changes: Any) -> dict[str, Any]:
    return orjson.loads(encode_verdict(parse_review(request_of(**changes)), verdict))


def test_unchanged_object_gets_no_patch() -> None:
    request = parse_review(request_of())
    assert encode_and_decode(Allowed())["response"] == {"uid": "the-uid", "allowed": True}
    assert orjson.loads(encode_verdict(request, Allowed(request.obj)))["response"] == {
        "uid": "the-uid",
        "allowed": True,
    }


def test_changed_object_gets_json_patch_with_escaped_keys() -> None:
    request = parse_review(request_of())
    changed = {**request.obj, "metadata": {**request.obj["metadata"], "labels": {"a/b~c": "d"}}}
    response = orjson.loads(encode_verdict(request, Allowed(changed)))["response"]
    assert response["patchType"] == "JSONPatch"
    assert orjson.loads(base64.b64decode(response["patch"])) == [
        {"op": "add", "path": "/metadata/labels", "value": {"a/b~c": "d"}}
    ]
    relabelled = {**request.obj, "metadata": {**request.obj["metadata"], "la/be~ls": "d"}}
    response = orjson.loads(encode_verdict(request, Allowed(relabelled)))["response"]
    assert orjson.loads(base64.b64decode(response["patch"]))[0]["path"] == "/metadata/la~1be~0ls"


def test_rejection_lists_every_field() -> None:
    errors = (FieldError.invalid("spec.a", 1, "is odd"), FieldError.required("spec.b[0].c", "set it"))
    response = encode_and_decode(Rejected(errors))["response"]
    assert response["allowed"] is False
    assert response["status"]["code"] == 403
    assert response["status"]["reason"] == "Forbidden"
    assert (
        response["status"]["message"]
        == "[spec.a: Invalid value: 1: is odd, spec.b[0].c: Required value: set it]"
    )
    assert response["status"]["details"]["causes"] == [
        {"reason": "FieldValueInvalid", "field": "spec.a", "message": "Invalid value: 1: is odd"},
        {"reason": "FieldValueRequired", "field": "spec.b[0].c", "message": "Required value: set it"},
    ]


def test_failure_is_encoded_with_its_code_and_reason() -> None:
    response = encode_and_decode(Failed("wait", 503, "ServiceUnavailable"))["response"]
    assert response["status"] == {"code": 503, "reason": "ServiceUnavailable", "message": "wait"}


def test_warning_is_truncated_to_120_characters() -> None:
    response = encode_and_decode(Allowed(warnings=("w" * 500,)))["response"]
    assert response["warnings"] == ["w" * 120]


async def test_review_fails_with_503_while_api_server_is_unavailable() -> None:
    body = review(a_job(labels={NAMES.queue_name: "q"}))
    _, text = await post(handlers(FakeLookups(unavailable=True))[JOB_PATH], JOB_PATH, body)
    response = orjson.loads(text)["response"]
    assert response["allowed"] is False
    assert response["status"]["code"] == 503
    assert "try again" in response["status"]["message"]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["default", "true", "1e30", "-5", "9223372036854775807", "batch/v1", "Job"]),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=6), children, max_size=3)
    ),
    max_leaves=8,
)

FIELD_PATHS = [
    ("metadata",),
    ("metadata", "labels"),
    ("metadata", "labels", NAMES.queue_name),
    ("metadata", "labels", NAMES.max_exec_time),
    ("metadata", "labels", NAMES.prebuilt_workload_name),
    ("metadata", "annotations"),
    ("metadata", "annotations", NAMES.elastic_job),
    ("metadata", "annotations", NAMES.admission_gated_by),
    ("metadata", "annotations", NAMES.job_min_parallelism),
    ("metadata", "annotations", NAMES.priority_boost),
    ("metadata", "ownerReferences"),
    ("metadata", "finalizers"),
    ("metadata", "deletionTimestamp"),
    ("metadata", "namespace"),
    ("spec",),
    ("spec", "suspend"),
    ("spec", "parallelism"),
    ("spec", "completions"),
    ("spec", "template"),
    ("spec", "template", "metadata"),
    ("spec", "template", "metadata", "annotations"),
    ("spec", "template", "metadata", "annotations", NAMES.podset_slice_size),
    ("spec", "template", "metadata", "annotations", NAMES.podset_slice_required_topology_constraints),
    ("spec", "podSets"),
    ("spec", "podSets", 0),
    ("spec", "podSets", 0, "count"),
    ("spec", "podSets", 0, "template"),
    ("spec", "podSets", 0, "template", "spec", "containers"),
    ("spec", "podSets", 0, "topologyRequest"),
    ("spec", "resourceGroups"),
    ("spec", "resourceGroups", 0, "coveredResources"),
    ("spec", "resourceGroups", 0, "flavors"),
    ("spec", "resourceGroups", 0, "flavors", 0, "resources"),
    ("spec", "resourceGroups", 0, "flavors", 0, "resources", 0, "nominalQuota"),
    ("spec", "namespaceSelector"),
    ("spec", "fairSharing"),
    ("spec", "cohortName"),
    ("spec", "preemption"),
    ("spec", "flavorFungibility"),
    ("spec", "admissionChecksStrategy"),
    ("spec", "nodeLabels"),
    ("spec", "nodeTaints"),
    ("spec", "tolerations"),
    ("status",),
    ("status", "conditions"),
    ("status", "admission"),
    ("status", "admission", "podSetAssignments"),
    ("status", "reclaimablePods"),
    ("status", "admissionChecks"),
    ("status", "clusterName"),
]


def create_full_object() -> dict[str, Any]:
    """Return an object with a value in every field that a webhook reads."""
    job = a_job(
        labels={NAMES.queue_name: "q", NAMES.max_exec_time: "5"},
        annotations={NAMES.elastic_job: "true", NAMES.admission_gated_by: "a.example/b"},
        template_annotations={NAMES.podset_required_topology: "rack"},
    )
    job["spec"] |= {
        "podSets": [{"name": "main", "count": 2, "template": job["spec"]["template"]}],
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1"}]}],
            }
        ],
    }
    job["status"] = {
        "conditions": [{"type": "QuotaReserved", "status": "True"}],
        "admission": {"podSetAssignments": [{"name": "main", "count": 2, "resourceUsage": {"cpu": "2"}}]},
        "reclaimablePods": [{"name": "main", "count": 1}],
        "admissionChecks": [{"name": "c", "state": "Ready", "podSetUpdates": [{"name": "main"}]}],
    }
    return job


def set_field(document: Any, path: tuple[str | int, ...], value: Any) -> None:
    for step in path[:-1]:
        try:
            document = document[step]
        except (KeyError, IndexError, TypeError):
            return
    last: Any = path[-1]
    if isinstance(document, dict) or (
        isinstance(document, list) and isinstance(last, int) and last < len(document)
    ):
        document[last] = value


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    changes=st.lists(st.tuples(st.sampled_from(FIELD_PATHS), JSON, st.booleans()), min_size=1, max_size=4),
    operation=st.sampled_from(["CREATE", "UPDATE"]),
)
async def test_any_object_gets_a_verdict_with_its_uid(
    changes: list[tuple[tuple[str | int, ...], Any, bool]], operation: str
) -> None:
    new, old = create_full_object(), create_full_object()
    for path, value, in_old in changes:
        set_field(old if in_old else new, path, value)
    lookups = FakeLookups(local_queues={("team", "default")}, priority_classes={"default"})
    kinds = {"clusterqueue": "ClusterQueue", "resourceflavor": "ResourceFlavor"}
    gates = {"PriorityBoost": True, "ConcurrentAdmission": True}
    for path, handler in handlers(lookups, gates=gates, manage_jobs_without_queue_name=True).items():
        last = path.rpartition("-")[2]
        gvk = (
            ("batch", "v1", "Job")
            if "batch" in path
            else (NAMES.group, "v1beta2", kinds.get(last, last.title()))
        )
        status, body = await post(handler, path, review(new, old, gvk=gvk, operation=operation))
        response = orjson.loads(body)["response"]
        assert status == 200
        assert response["uid"] == "the-uid"
        assert response["allowed"] in (True, False)
        # Code 500 would mean an internal error of the webhook.
        assert response.get("status", {}).get("code") in (None, 400, 403)


@settings(max_examples=100, deadline=None)
@given(st.data())
async def test_corrupted_review_gets_a_valid_response(data: st.DataObject) -> None:
    raw = bytearray(orjson.dumps(review(create_full_object())))
    for _ in range(data.draw(st.integers(1, 6))):
        position = data.draw(st.integers(0, len(raw) - 1))
        raw[position] = data.draw(st.integers(0, 255))
    status, body = await post(handlers()[JOB_PATH], JOB_PATH, bytes(raw))
    assert status in (200, 400)
    if status == 200:
        response = orjson.loads(body)["response"]
        assert response["uid"] == orjson.loads(bytes(raw))["request"]["uid"]
        assert response.get("status", {}).get("code") in (None, 400, 403)


@pytest.mark.parametrize(
    ("info", "user"),
    [
        (
            {"username": "anna", "uid": "u", "groups": ["g"], "extra": {"k": ["v"]}},
            User("anna", "u", ("g",), (("k", ("v",)),)),
        ),
        ({"username": 1, "groups": "g", "extra": {"k": "v"}}, User("", "", (), (("k", ()),))),
        (None, NO_USER),
    ],
)
def test_user_info_of_review_is_parsed_in_any_shape(info: Any, user: User) -> None:
    body = orjson.dumps(review({"kind": "Job"}, userInfo=info))
    assert parse_review(body).user == user
