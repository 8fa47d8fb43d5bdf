"""The texts of failed commands: the error, and what to do."""

import pytest

from admitq.plugin.remedies import CommandError, choose_group, describe_failure
from admitq.runtime.errors import ApiError
from admitq_api.labels import COMPAT_GROUP, DEFAULT_GROUP


@pytest.mark.parametrize(
    ("status", "reason", "remedy"),
    [
        (0, "ConnectionFailed", "Check the cluster of the kubeconfig"),
        (503, "ServiceUnavailable", "Check the cluster of the kubeconfig"),
        (401, "Unauthorized", "select another user with --context"),
        (403, "Forbidden", "Ask an administrator"),
        (404, "NotFound", "kubectl get clusterqueues.example.com lists"),
        (409, "AlreadyExists", "Use another name"),
        (429, "TooManyRequests", "Retry later"),
    ],
)
def test_failure_is_described_with_its_remedy(status: int, reason: str, remedy: str) -> None:
    error = ApiError(status, reason, "the message")
    text = describe_failure(error, server="https://a.example.com", resource="clusterqueues.example.com")
    first, second = text.splitlines()
    assert "the message" in first or "https://a.example.com" in first
    assert remedy in second


@pytest.mark.parametrize(("status", "reason"), [(404, "NotFound"), (409, "Conflict"), (422, "Invalid")])
def test_failure_without_remedy_is_described_by_the_message_of_the_api_server(
    status: int, reason: str
) -> None:
    error = ApiError(status, reason, "the message")
    assert describe_failure(error, server="https://a.example.com") == "the message"


def test_remedy_of_a_missing_object_names_its_namespace() -> None:
    error = ApiError(404, "NotFound", "the message")
    text = describe_failure(error, server="https://a.example.com", resource="localqueues.d", namespace="n")
    assert "kubectl get localqueues.d -n n lists" in text


@pytest.mark.parametrize(
    ("served", "requested", "group"),
    [
        ({DEFAULT_GROUP, "apps"}, None, DEFAULT_GROUP),
        ({COMPAT_GROUP, "apps"}, None, COMPAT_GROUP),
        ({COMPAT_GROUP, DEFAULT_GROUP}, COMPAT_GROUP, COMPAT_GROUP),
        ({COMPAT_GROUP, DEFAULT_GROUP}, DEFAULT_GROUP, DEFAULT_GROUP),
    ],
)
def test_group_is_the_one_that_is_served_or_requested(
    served: set[str], requested: str | None, group: str
) -> None:
    assert choose_group(served, requested) == group


@pytest.mark.parametrize(
    ("served", "requested", "message"),
    [
        (set[str](), None, "Install the chart"),
        ({COMPAT_GROUP, DEFAULT_GROUP}, None, "Select one: --api-group"),
        ({DEFAULT_GROUP}, COMPAT_GROUP, f"Use --api-group {DEFAULT_GROUP}"),
        (set[str](), COMPAT_GROUP, "Install the chart"),
        ({DEFAULT_GROUP}, "example.com", "is not one of"),
    ],
)
def test_group_that_cannot_be_used_is_refused_with_a_remedy(
    served: set[str], requested: str | None, message: str
) -> None:
    with pytest.raises(CommandError, match=message):
        choose_group(served, requested)
