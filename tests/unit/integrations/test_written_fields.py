"""The manager writes no fields of jobs but those of the table, whatever kind of job it starts and stops."""

from collections.abc import Mapping
from typing import Any

import pytest

from admitq.integrations.base import Integration
from admitq.integrations.registry import BUILT_IN_KINDS
from admitq.integrations.written_fields import (
    INJECTED_SPEC_FIELDS,
    SPEC_FIELDS,
    STATUS_FIELDS,
    AnyValue,
    ListItems,
    MapValues,
    OptionalTemplate,
    OwnPatches,
    PrefixedEntries,
    WritableFields,
    WritableValue,
)
from admitq.workloads.pod_templates import _INJECTED_PATHS as RESTORED  # pyright: ignore[reportPrivateUsage]
from admitq_api.json_objects import apply_merge_patch, create_merge_patch, with_value
from tests.unit.integrations.examples import examples_of
from tests.unit.integrations.test_every_kind import NAMES, injected

WRITTEN = [one for one in BUILT_IN_KINDS if one.serving is None]


def other_changes(before: Any, after: Any, fields: WritableFields) -> list[str]:
    """The changes between two maps that the table does not name, in the words of the policy."""
    keys = {key for key in {**before, **after} if before.get(key) != after.get(key)}
    return [
        f"{key}{'.' if rest else ''}{rest}"
        for key in sorted(keys)
        for rest in _changes(before.get(key), after.get(key), fields.get(key))
    ]


def _changes(before: Any, after: Any, value: WritableValue | None) -> list[str]:
    match value:
        case None:
            return [""]
        case AnyValue():
            return []
        case ListItems(of):
            found = [other_changes(old, new, of) for old, new in zip(before, after, strict=True)]
            return [change for one in found for change in one]
        case MapValues(of):
            return other_changes(before, after, dict.fromkeys(before, of))
        case PrefixedEntries(prefixes):
            keys = {**(before or {}), **(after or {})}
            return other_changes(
                before or {}, after or {}, {key: AnyValue() for key in keys if key.startswith(prefixes)}
            )
        case OptionalTemplate(of):
            return [] if before is None or after is None else other_changes(before, after, of)
        case OwnPatches():
            return [] if _of_others(before) == _of_others(after) else ["patches of others"]
        case Mapping():
            return other_changes(before or {}, after or {}, value)
    raise TypeError(value)


def _of_others(patches: Any) -> list[Any]:
    return [one for one in patches or () if one.get("manager") != NAMES.trainjob_manager]


@pytest.mark.parametrize("kind", WRITTEN, ids=[one.framework for one in WRITTEN])
def test_starting_and_stopping_changes_no_other_fields(kind: Integration) -> None:
    examples = (
        list(examples_of(kind.api_version, kind.kind, started=True)) if kind.composition is None else []
    )
    assert examples or kind.composition
    for job in examples:
        suspended = kind.with_suspend(job, True)
        started = kind.with_suspend(injected(kind, suspended), False)
        for job_before, steps in (
            (suspended, kind.lifecycle.plan_start(suspended, started, NAMES)),
            (started, kind.lifecycle.plan_stop(started, suspended, NAMES)),
        ):
            old = job_before
            for step in steps:
                new = apply_merge_patch(old, step.patch)
                part, table = ("status", STATUS_FIELDS) if step.subresource else ("spec", SPEC_FIELDS)
                assert other_changes(old[part], new[part], table[kind.framework]) == []
                assert set(step.patch) <= {part, "metadata"}
                assert set(step.patch.get("metadata", ())) <= {"annotations"}
                old = new


def test_an_image_is_another_change() -> None:
    job = next(iter(examples_of("batch/v1", "Job", started=True)))
    image = ("spec", "template", "spec", "containers", 0, "image")
    changed = with_value(job, image, "example.com/evil")
    assert create_merge_patch(job, changed)
    assert other_changes(job["spec"], changed["spec"], SPEC_FIELDS["batch/job"]) == [
        "template.spec.containers"
    ]


def test_each_kind_that_is_written_is_in_the_table() -> None:
    assert SPEC_FIELDS.keys() == {one.framework for one in WRITTEN}
    assert STATUS_FIELDS.keys() == {one.framework for one in BUILT_IN_KINDS if one.lifecycle.patches_status}


def test_what_an_admission_injects_into_pods_is_what_podsets_restore() -> None:
    assert INJECTED_SPEC_FIELDS.keys() == {path[-1] for path in RESTORED if path[0] == "spec"}
