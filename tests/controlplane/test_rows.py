"""Every row of the semantics that a control plane can show has a story, and every story names its rows."""

import yaml

from tests.controlplane.play import FOLDER, Case, cases

STORIES = ("waking", "nominate", "flavors", "preemption", "fair", "settings")

_SECTIONS: dict[str, dict[str, str]] = yaml.safe_load((FOLDER.parent / "rows.yaml").read_text())
ROWS = {f"{section} {row}" for section, rows in _SECTIONS.items() for row in rows}


def stories() -> list[Case]:
    return [case for name in STORIES for case in cases(f"{name}.yaml")]


def test_every_semantics_row_has_a_story() -> None:
    assert sorted(ROWS - {row for case in stories() for row in case.rows}) == []


def test_every_story_names_existing_rows() -> None:
    assert [str(case) for case in stories() if not case.rows or not ROWS.issuperset(case.rows)] == []


def test_story_names_are_unique() -> None:
    names = [case.name for case in stories()]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
