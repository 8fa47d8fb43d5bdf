"""The audit log shows which calls were refused and which permissions are unused."""

import json

from admitq_api.labels import COMPAT_GROUP, DEFAULT_GROUP, GROUPS
from localcluster.access import AllowedVerb, calls, foreign, permissions, refused, unused

RULES = [
    {"apiGroups": ["batch"], "resources": ["jobs", "jobs/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["one"]},
]


def audit_line(
    resource: str, verb: str, group: str = "", subresource: str = "", decision: str = "allow"
) -> str:
    object_reference = {"resource": resource, "apiGroup": group, "subresource": subresource, "name": "x"}
    return json.dumps(
        {
            "verb": verb,
            "user": {"username": "manager"},
            "objectRef": object_reference,
            "annotations": {"authorization.k8s.io/decision": decision},
        }
    )


def test_rules_are_split_into_single_permissions() -> None:
    assert permissions(RULES) == {
        AllowedVerb("batch", "jobs", "patch"),
        AllowedVerb("batch", "jobs/status", "patch"),
        AllowedVerb("", "secrets", "get"),
    }


def test_repeated_refused_call_is_reported_once() -> None:
    audited_calls = list(calls([audit_line("pods", "list", decision="forbid")] * 3))
    assert refused(audited_calls) == ["manager: list pods x"]


def test_call_denied_by_admission_policy_is_reported_as_refused() -> None:
    event = json.loads(audit_line("pods", "patch"))
    event["annotations"]["validation.policy.admission.k8s.io/validation_failure"] = "[]"
    assert refused(calls([json.dumps(event)])) == ["manager: patch pods x"]


def test_call_that_names_the_other_group_is_reported() -> None:
    uris = [
        "/apis/batch/v1/namespaces/a/jobs/b?fieldManager=admitq-job-controller",
        "/apis/batch/v1/namespaces/a/jobs/b?fieldManager=kueue-job-controller",
        "/apis/kueue.x-k8s.io/v1beta2/workloads",
        "/api/v1/pods?labelSelector=admitq.dev%2Fmanaged%3Dtrue",
    ]
    audited_calls = list(
        calls(json.dumps({**json.loads(audit_line("jobs", "patch")), "requestURI": uri}) for uri in uris)
    )
    reported = {
        group: [text.partition("jobs ")[2] for text in foreign(audited_calls, group)] for group in GROUPS
    }
    assert reported == {
        DEFAULT_GROUP: sorted(uris[1:3]),
        COMPAT_GROUP: ["/api/v1/pods?labelSelector=admitq.dev/managed=true", uris[0]],
    }


def test_permission_is_used_only_by_allowed_call_with_same_verb_and_resource() -> None:
    audited_calls = list(
        calls(
            [
                audit_line("jobs", "patch", "batch"),
                audit_line("jobs", "patch", "batch", "status", decision="forbid"),
                audit_line("secrets", "list"),
            ]
        )
    )
    assert unused(permissions(RULES), audited_calls) == ["get secrets", "patch jobs/status.batch"]


def test_calls_without_resource_are_ignored() -> None:
    assert list(calls([json.dumps({"verb": "get", "requestURI": "/readyz", "user": {}})])) == []
