"""Paths and names of API resources."""

import pytest

from admitq.runtime.resources import JOBS, LEASES, NAMESPACES, PODS, Resource

WORKLOADS = Resource("admitq.dev", "v1beta2", "workloads", "Workload", namespaced=True)


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "subresource", "path"),
    [
        (PODS, None, None, None, "/api/v1/pods"),
        (PODS, "team-a", None, None, "/api/v1/namespaces/team-a/pods"),
        (PODS, "team-a", "p", "status", "/api/v1/namespaces/team-a/pods/p/status"),
        (JOBS, "team-a", "j", None, "/apis/batch/v1/namespaces/team-a/jobs/j"),
        (NAMESPACES, None, "team-a", None, "/api/v1/namespaces/team-a"),
        (WORKLOADS, "a", "b", "status", "/apis/admitq.dev/v1beta2/namespaces/a/workloads/b/status"),
        (LEASES, "a", "b/c", None, "/apis/coordination.k8s.io/v1/namespaces/a/leases/b%2Fc"),
        (
            LEASES,
            "a",
            "../../x?y#z",
            None,
            "/apis/coordination.k8s.io/v1/namespaces/a/leases/..%2F..%2Fx%3Fy%23z",
        ),
    ],
)
def test_names_in_path_are_escaped_into_one_segment(
    resource: Resource, namespace: str | None, name: str | None, subresource: str | None, path: str
):
    assert resource.path(namespace, name, subresource) == path


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "subresource"),
    [
        (PODS, None, "p", None),
        (PODS, "", "p", None),
        (PODS, "team-a", "..", None),
        (PODS, ".", "p", None),
        (PODS, "team-a", "", None),
        (PODS, "team-a", None, "status"),
        (NAMESPACES, "team-a", "x", None),
    ],
)
def test_path_of_invalid_namespace_or_name_raises_error(
    resource: Resource, namespace: str | None, name: str | None, subresource: str | None
):
    with pytest.raises(ValueError, match=r"."):
        resource.path(namespace, name, subresource)


def test_resource_is_named_as_in_the_api():
    assert (PODS.api_version, str(PODS)) == ("v1", "pods")
    assert (JOBS.api_version, str(JOBS)) == ("batch/v1", "jobs.batch")
