import os
import re
import time
from dataclasses import replace
from typing import Any

import orjson
import pytest

from admitq_api.conditions import find_condition
from admitq_api.json_objects import apply_merge_patch
from benchmarks import writes
from benchmarks.writes import (
    VARIANTS,
    Effort,
    Sample,
    Variant,
    WritesFailed,
    cpu_seconds,
    read_total_allocation,
    summarize,
    table,
)
from benchmarks.writes_definitions import (
    CHANGES,
    TODAY,
    TWO_VERSIONS,
    count_rules,
    create_definition,
    resource_of,
)
from benchmarks.writes_requests import (
    CHANGES as CHANGES_OF_STATUS,
)
from benchmarks.writes_requests import (
    REPORT,
    RESERVATION,
    WRITES,
    new_workload,
    pod_template,
)


def template_of(variant: str) -> dict[str, Any]:
    schema = create_definition(variant)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema["properties"]["spec"]["properties"]["podSets"]["items"]["properties"]["template"]


def test_definition_of_variant_is_served_under_group_of_its_resource():
    for variant in (*CHANGES, TWO_VERSIONS):
        definition, resource = create_definition(variant), resource_of(variant)
        assert definition["metadata"]["name"] == f"workloads.{definition['spec']['group']}"
        assert definition["spec"]["group"] == resource.group
        assert resource.version in [version["name"] for version in definition["spec"]["versions"]]


def test_definition_of_every_variant_differs_from_shipped_one():
    today = create_definition(TODAY)["spec"]
    for variant in (*CHANGES, TWO_VERSIONS):
        changed = {**create_definition(variant)["spec"], "group": today["group"]}
        assert (changed == today) == (variant == TODAY), variant


@pytest.mark.parametrize(
    ("variant", "removed"),
    [("no-rules", 19), ("no-rules-of-object", 6), ("no-rules-of-spec", 3), ("no-rules-of-status", 10)],
)
def test_definition_without_rules_lacks_only_rules_of_that_part(variant: str, removed: int):
    assert count_rules(create_definition(TODAY)) - count_rules(create_definition(variant)) == removed


def test_divided_template_keeps_schema_and_open_template_has_none():
    assert template_of("divided-template") | {"x-kubernetes-map-type": "atomic"} == template_of(TODAY)
    assert "x-kubernetes-map-type" not in template_of("divided-template")
    assert "properties" not in template_of("open-template")


def test_closed_template_keeps_no_unknown_fields():
    assert b"preserve-unknown-fields" in orjson.dumps(template_of(TODAY))
    assert b"preserve-unknown-fields" not in orjson.dumps(template_of("closed-template"))


@pytest.mark.parametrize("kib", [1, 5, 50])
def test_pod_template_has_requested_size(kib: int):
    assert kib <= len(orjson.dumps(pod_template(kib))) / 1024 < kib + 0.1


def test_changes_of_round_report_reserve_and_release_in_every_round():
    obj = new_workload(resource_of(TODAY), "w", 1)
    obj["metadata"]["resourceVersion"] = "1"
    seen: list[tuple[str, str]] = []
    for number in range(2):
        for change in CHANGES_OF_STATUS.values():
            patch = change(obj, number)
            assert patch is not None
            obj = apply_merge_patch(obj, patch)
            reserved = find_condition(obj["status"]["conditions"], "QuotaReserved")
            assert reserved is not None
            seen.append((reserved["status"], reserved["message"]))
            assert ("admission" in obj["status"]) == (reserved["status"] == "True")
    assert [status for status, _ in seen] == ["False", "True", "False"] * 2
    assert seen[0] != seen[3]


class RecordingClient:
    """Records the status that a write would leave, in place of the API server."""

    def __init__(self, stored: dict[str, Any]) -> None:
        self.stored = stored
        self.version: str | None = None

    async def apply(self, _: Any, obj: dict[str, Any], **__: Any) -> dict[str, Any]:
        return self._store(obj["metadata"]["resourceVersion"], obj["status"])

    async def merge_patch(self, _: Any, __: str, patch: dict[str, Any], *___: Any, **____: Any) -> Any:
        written = apply_merge_patch(self.stored["status"], patch["status"])
        return self._store(patch["metadata"]["resourceVersion"], written)

    async def json_patch(self, _: Any, __: str, operations: list[Any], *___: Any, **____: Any) -> Any:
        test, add = operations
        assert (test["op"], test["path"], add["path"]) == ("test", "/metadata/resourceVersion", "/status")
        return self._store(test["value"], add["value"])

    async def replace(self, _: Any, obj: dict[str, Any], *__: Any, **___: Any) -> dict[str, Any]:
        return self._store(obj["metadata"]["resourceVersion"], obj["status"])

    def _store(self, version: str, status: dict[str, Any]) -> dict[str, Any]:
        self.version = version
        return {**self.stored, "status": status}


@pytest.mark.parametrize("form", sorted(WRITES))
async def test_every_form_of_write_leaves_same_status_and_requires_version(form: str):
    resource = resource_of(TODAY)
    obj = new_workload(resource, "w", 1)
    obj["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    report = CHANGES_OF_STATUS[REPORT](obj, 0)
    assert report is not None
    obj = apply_merge_patch(obj, report)
    patch = CHANGES_OF_STATUS[RESERVATION](obj, 0)
    assert patch is not None
    client = RecordingClient(obj)
    written = await WRITES[form](client, resource, obj, patch)  # type: ignore[arg-type]
    assert written["status"] == apply_merge_patch(obj["status"], patch["status"])
    assert client.version == "7"


def test_variants_have_unique_names_and_differ_from_today():
    names = [(variant.part, variant.name) for variant in VARIANTS]
    assert len(set(names)) == len(names)
    plain = [replace(variant, part="", name="") for variant in VARIANTS]
    assert Variant("", "") not in plain
    assert len(set(plain)) == len(plain)
    assert all(variant.definition in (*CHANGES, TWO_VERSIONS) for variant in VARIANTS)
    assert all(variant.write in WRITES for variant in VARIANTS)


def test_effort_with_parts_measures_today_and_variants_of_these_parts():
    chosen = Effort(parts=("size",)).variants()
    assert chosen[0] == Variant(TODAY, TODAY)
    assert {variant.part for variant in chosen[1:]} == {"size"}
    assert len(Effort().variants()) == len(VARIANTS) + 1


def test_summary_has_means_of_cpu_time_and_median_of_latency():
    # A garbage collection made the second round longer.
    today = [Sample(4.0, 1.0, 10.0), Sample(10.0, 2.0, 30.0), Sample(4.0, 1.0, 12.0)]
    variant = [Sample(3.0, 0.5, 9.0), Sample(3.0, 0.5, 20.0), Sample(7.5, 0.8, 8.0)]
    assert summarize(variant, today) == {
        "api_cpu_ms": 4.5,
        "ratio": 0.75,
        "etcd_cpu_ms": 0.6,
        "p50_ms": 9.0,
    }


def test_table_has_row_for_each_variant_and_equal_columns():
    figures = {"api_cpu_ms": 3.456, "ratio": 0.5, "etcd_cpu_ms": 0.71, "p50_ms": 9.04}
    row = {
        "part": "size",
        "name": "big",
        "object_bytes": 12345,
        "allocated_kib": 812,
        "allocated_ratio": 0.957,
        REPORT: figures,
        RESERVATION: {**figures, "ratio": 0.9},
    }
    head, rule, line = table([row]).splitlines()
    assert line == "| size | big | 3.46 | 0.50 | 3.46 | 0.90 | 0.71 | 9.0 | 812 | 0.96 | 12,345 |"
    assert head.count("|") == rule.count("|") == line.count("|")


def test_total_allocation_is_read_from_end_of_heap_profile():
    profile = "heap profile: 1: 2 [3: 4] @ heap/8192\n\n# Alloc = 5\n# TotalAlloc = 678\n# Sys = 9\n"
    assert read_total_allocation(profile) == 678
    with pytest.raises(WritesFailed):
        read_total_allocation("# Alloc = 5\n")


def test_rules_that_evaluate_conditions_first_have_same_parts():
    today, changed = (
        create_definition(variant)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for variant in (TODAY, "conditions-first")
    )
    for rule, other in zip(
        today["x-kubernetes-validations"], changed["x-kubernetes-validations"], strict=True
    ):
        assert other["rule"].startswith("!(")
        assert sorted(re.findall(r"\w+", rule["rule"])) == sorted(re.findall(r"\w+", other["rule"]))


def test_cpu_seconds_of_own_process_is_its_cpu_time():
    before = time.process_time()
    measured = cpu_seconds(os.getpid())
    assert before <= measured <= time.process_time()


async def test_concurrent_work_returns_results_in_order_of_numbers():
    async def double(number: int) -> int:
        return number * 2

    assert await writes.concurrently(double, range(7), at_once=3) == [0, 2, 4, 6, 8, 10, 12]
