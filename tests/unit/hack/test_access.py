"""The audit log tells what was refused and what is granted in vain."""

import json

from admitq_api.labels import COMPAT_GROUP, DEFAULT_GROUP, GROUPS
from localcluster.access import Permission, calls, foreign, permissions, refused, unused

RULES = [
    {"apiGroups": ["batch"], "resources": ["jobs", "jobs/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["one"]},
]


def line(resource: str, verb: str, group: str = "", subresource: str = "", decision: str = "allow") -> str:
    about = {"resource": resource, "apiGroup": group, "subresource": subresource, "name": "x"}
    return json.dumps(
        {
            "verb": verb,
            "user": {"username": "manager"},
            "objectRef": about,
            "annotations": {"authorization.k8s.io/decision": decision},
        }
    )


def test_rules_are_taken_apart_into_single_permissions() -> None:
    assert permissions(RULES) == {
        Permission("batch", "jobs", "patch"),
        Permission("batch", "jobs/status", "patch"),
        Permission("", "secrets", "get"),
    }


def test_repeated_refused_call_is_reported_once() -> None:
    made = list(calls([line("pods", "list", decision="forbid")] * 3))
    assert refused(made) == ["manager: list pods x"]


def test_denial_of_an_admission_policy_is_reported_as_refused() -> None:
    event = json.loads(line("pods", "patch"))
    event["annotations"]["validation.policy.admission.k8s.io/validation_failure"] = "[]"
    assert refused(calls([json.dumps(event)])) == ["manager: patch pods x"]


def test_call_that_names_the_other_group_is_reported() -> None:
    asked = [
        "/apis/batch/v1/namespaces/a/jobs/b?fieldManager=admitq-job-controller",
        "/apis/batch/v1/namespaces/a/jobs/b?fieldManager=kueue-job-controller",
        "/apis/kueue.x-k8s.io/v1beta2/workloads",
        "/api/v1/pods?labelSelector=admitq.dev%2Fmanaged%3Dtrue",
    ]
    made = list(calls(json.dumps({**json.loads(line("jobs", "patch")), "requestURI": uri}) for uri in asked))
    told = {group: [text.partition("jobs ")[2] for text in foreign(made, group)] for group in GROUPS}
    assert told == {
        DEFAULT_GROUP: sorted(asked[1:3]),
        COMPAT_GROUP: ["/api/v1/pods?labelSelector=admitq.dev/managed=true", asked[0]],
    }


def test_a_permission_counts_as_used_only_by_an_allowed_call_of_exactly_it() -> None:
    made = list(
        calls(
            [
                line("jobs", "patch", "batch"),
                line("jobs", "patch", "batch", "status", decision="forbid"),
                line("secrets", "list"),
            ]
        )
    )
    assert unused(permissions(RULES), made) == ["get secrets", "patch jobs/status.batch"]


def test_calls_about_no_resource_are_left_out() -> None:
    assert list(calls([json.dumps({"verb": "get", "requestURI": "/readyz", "user": {}})])) == []
