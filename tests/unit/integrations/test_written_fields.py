"""When the manager starts and stops jobs of any kind, it writes only the fields of the table."""

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
from admitq.workloads.template_injection import _INJECTED_PATHS as RESTORED  # pyright: ignore[reportPrivateUsage]
from admitq_api.json_objects import apply_merge_patch, create_merge_patch, with_value
from tests.unit.integrations.examples import examples_of
from tests.unit.integrations.test_every_kind import NAMES, injected

WRITTEN_KINDS = [kind for kind in BUILT_IN_KINDS if kind.serving is None]


def other_changes(before: Any, after: Any, fields: WritableFields) -> list[str]:
    """Return the changed fields that the table does not list, as paths in the format of the policy."""
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
        case ListItems(fields):
            pairs = zip(before, after, strict=True)
            return [change for old, new in pairs for change in other_changes(old, new, fields)]
        case MapValues(fields):
            return other_changes(before, after, dict.fromkeys(before, fields))
        case PrefixedEntries(prefixes):
            keys = {**(before or {}), **(after or {})}
            return other_changes(
                before or {}, after or {}, {key: AnyValue() for key in keys if key.startswith(prefixes)}
            )
        case OptionalTemplate(fields):
            return [] if before is None or after is None else other_changes(before, after, fields)
        case OwnPatches():
            unchanged = _list_foreign_patches(before) == _list_foreign_patches(after)
            return [] if unchanged else ["patches of other managers"]
        case Mapping():
            return other_changes(before or {}, after or {}, value)
    raise TypeError(value)


def _list_foreign_patches(patches: Any) -> list[Any]:
    return [patch for patch in patches or () if patch.get("manager") != NAMES.trainjob_manager]


@pytest.mark.parametrize("kind", WRITTEN_KINDS, ids=[kind.framework for kind in WRITTEN_KINDS])
def test_start_and_stop_change_only_fields_of_the_table(kind: Integration) -> None:
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


def test_image_change_is_outside_the_table() -> None:
    job = next(iter(examples_of("batch/v1", "Job", started=True)))
    image = ("spec", "template", "spec", "containers", 0, "image")
    changed = with_value(job, image, "example.com/evil")
    assert create_merge_patch(job, changed)
    assert other_changes(job["spec"], changed["spec"], SPEC_FIELDS["batch/job"]) == [
        "template.spec.containers"
    ]


def test_table_has_every_kind_that_the_manager_writes() -> None:
    assert SPEC_FIELDS.keys() == {kind.framework for kind in WRITTEN_KINDS}
    patched_status = {kind.framework for kind in BUILT_IN_KINDS if kind.lifecycle.patches_status}
    assert STATUS_FIELDS.keys() == patched_status


def test_injected_fields_of_the_table_are_those_restored_in_podsets() -> None:
    assert INJECTED_SPEC_FIELDS.keys() == {path[-1] for path in RESTORED if path[0] == "spec"}
