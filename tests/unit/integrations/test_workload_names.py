from typing import Any

import pytest

from admitq.integrations.workload_names import create_workload_name
from admitq_api.syntax import check_dns_subdomain


@pytest.mark.parametrize(
    ("owner", "extra", "name"),
    [
        (("Job", "batch", "name", "uid"), "", "job-name-ef3a1"),
        (("Job", "batch", "my-job", "uid-123"), "", "job-my-job-cd350"),
        (("Job", "batch", "my-job", "uid-123"), "1", "job-my-job-da75e"),
        (("Pod", "", "p1", "uid-9"), "", "pod-p1-5a994"),
    ],
)
def test_workload_name_contains_kind_owner_and_hash_of_identity(owner: Any, extra: Any, name: Any) -> None:
    assert create_workload_name(*owner, extra=extra) == name


def test_recreated_owner_gets_another_workload_name() -> None:
    assert create_workload_name("Job", "batch", "a", "first") != create_workload_name(
        "Job", "batch", "a", "second"
    )


@pytest.mark.parametrize("length", [1, 240, 242, 243, 244, 253])
def test_workload_name_is_valid_for_long_owner_names(length: Any) -> None:
    name = create_workload_name("Job", "batch", "a" * length, "uid")
    assert len(name) <= 253
    assert check_dns_subdomain(name) is None


def test_workload_names_of_long_owner_names_with_same_prefix_differ() -> None:
    first, second = ("a" * 250 + end for end in ("bb", "cc"))
    assert create_workload_name("Job", "batch", first, "uid") != create_workload_name(
        "Job", "batch", second, "uid"
    )


def test_workload_name_truncated_after_a_dot_is_valid() -> None:
    name = create_workload_name("Job", "batch", "a" * 242 + "." + "b" * 10, "uid")
    assert check_dns_subdomain(name) is None


def test_workload_name_can_be_limited_to_length_of_a_label() -> None:
    assert len(create_workload_name("Job", "batch", "a" * 200, "uid", longest=63)) == 63
