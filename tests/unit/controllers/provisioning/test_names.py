"""Names of ProvisioningRequests, and the backoff between them."""

import pytest

from admitq.controllers.provisioning.check_results import retry_after_seconds
from admitq.controllers.provisioning.requests import attempt_of, request_name, template_name
from tests.unit.controllers.provisioning.cases import config


@pytest.mark.parametrize("length", [1, 120, 240, 253])
@pytest.mark.parametrize("attempt", [1, 12])
def test_request_name_is_bounded_and_contains_attempt(length: int, attempt: int) -> None:
    owner = "w" * length
    name = request_name(owner, "check", attempt)
    assert len(name) <= 253
    assert attempt_of(name, owner, "check") == attempt
    assert attempt_of(name, owner, "chec") is None
    assert len(template_name(name, "main")) <= 253
    if length > 250:
        assert name[:248] == f"{owner[:247]}-"
        assert len(name) == 253


def test_attempt_is_read_only_from_request_names_of_same_check() -> None:
    assert attempt_of("w-a-1-2", "w", "a") is None
    assert attempt_of("w-a-1-2", "w", "a-1") == 2
    assert attempt_of("w-a-x", "w", "a") is None


def test_request_name_is_not_cut_after_dot() -> None:
    assert ".-" not in request_name(f"{'w' * 246}.{'x' * 20}", "c", 1)


@pytest.mark.parametrize(("retries", "seconds"), [(0, 60), (1, 120), (4, 960), (5, 1800), (10**6, 1800)])
def test_retry_backoff_doubles_up_to_maximum(retries: int, seconds: int) -> None:
    assert retry_after_seconds(config(), retries) == seconds
    strategy = {"backoffBaseSeconds": 1, "backoffMaxSeconds": 3}
    assert retry_after_seconds(config(retryStrategy=strategy), retries) == min(3, 2 ** min(retries, 5))
