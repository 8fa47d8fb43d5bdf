"""Increases of a job's requests beyond its granted requests."""

from typing import Any

import pytest

from admitq.workloads.request_increases import RequestIncrease, find_request_increases


def pod_set(name: str = "main", count: int = 1, *, spec: Any = None, **requests: str) -> dict[str, Any]:
    """Return a podset of a Workload."""
    container = {"name": "c", "image": "i", "resources": {"requests": requests}}
    return {"name": name, "count": count, "template": {"spec": {"containers": [container], **(spec or {})}}}


INIT = {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "3"}}}]}


@pytest.mark.parametrize(
    ("requested", "granted", "expected"),
    [
        ([pod_set(count=50)], [pod_set(count=1)], [RequestIncrease("main", 50, 1, "")]),
        ([pod_set(count=1)], [pod_set(count=50)], []),
        ([pod_set(cpu="1")], [pod_set(cpu="1000m")], []),
        ([pod_set(cpu="2")], [pod_set(cpu="1")], [RequestIncrease("main", 1, 1, "cpu")]),
        ([pod_set(cpu="1")], [pod_set(cpu="2")], []),
        ([pod_set(cpu="1", memory="1")], [pod_set(cpu="1")], [RequestIncrease("main", 1, 1, "memory")]),
        ([pod_set(cpu="1", spec=INIT)], [pod_set(cpu="1")], [RequestIncrease("main", 1, 1, "cpu")]),
        (
            [pod_set(cpu="1", spec={"overhead": {"cpu": "1"}})],
            [pod_set(cpu="1")],
            [RequestIncrease("main", 1, 1, "cpu")],
        ),
        ([pod_set(count=2, cpu="2")], [pod_set(count=1, cpu="1")], [RequestIncrease("main", 2, 1, "cpu")]),
        ([pod_set("a"), pod_set("b", 3)], [pod_set("a")], [RequestIncrease("b", 3, 0, "")]),
        ([pod_set("a")], [pod_set("a"), pod_set("b", 3)], []),
        ([pod_set("b", 2), pod_set("a", 1)], [pod_set("a", 1), pod_set("b", 2)], []),
    ],
)
def test_request_increases_are_more_pods_or_larger_requests(
    requested: list[dict[str, Any]], granted: list[dict[str, Any]], expected: list[RequestIncrease]
) -> None:
    assert find_request_increases(requested, granted) == expected


@pytest.mark.parametrize(
    ("increase", "text"),
    [
        (RequestIncrease("main", 50, 1, "cpu"), "podset main requests 50 pods, 1 admitted"),
        (RequestIncrease("a", 1, 1, "cpu"), "pods of podset a request more cpu than was admitted"),
    ],
    ids=["count", "resource"],
)
def test_increase_is_printed_with_requested_and_admitted_amounts(
    increase: RequestIncrease, text: str
) -> None:
    assert str(increase) == text


def test_additional_pods_of_increase_are_never_negative() -> None:
    assert RequestIncrease("main", 50, 1, "").additional_pods == 49
    assert RequestIncrease("main", 1, 50, "cpu").additional_pods == 0
