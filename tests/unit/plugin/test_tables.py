"""Tables: alignment, colours, and texts that must not control the terminal."""

import sys

import pytest

from admitq.plugin.tables import has_colors, render_table, safe_text


def test_columns_are_aligned_without_spaces_at_line_ends() -> None:
    rows = [("a", "PENDING", ""), ("long-name", "ADMITTED", "x")]
    assert render_table(("NAME", "STATUS", "Q"), rows, colored=False).splitlines() == [
        "NAME        STATUS     Q",
        "a           PENDING",
        "long-name   ADMITTED   x",
    ]


def test_colors_do_not_change_the_alignment() -> None:
    rows = [("a", "PENDING", "x"), ("b", "ADMITTED", "y")]
    plain = render_table(("NAME", "STATUS", "Q"), rows, colored=False)
    colored = render_table(("NAME", "STATUS", "Q"), rows, colored=True)
    assert "\033[33mPENDING " in colored
    assert colored.replace("\033[33m", "").replace("\033[32m", "").replace("\033[0m", "") == plain


@pytest.mark.parametrize(
    ("is_terminal", "variable", "expected"), [(True, "", True), (True, "1", False), (False, "", False)]
)
def test_colors_need_a_terminal_and_consent(
    monkeypatch: pytest.MonkeyPatch, variable: str, *, is_terminal: bool, expected: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", variable)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    assert has_colors() is expected


def test_text_of_an_object_cannot_control_the_terminal() -> None:
    assert safe_text("a\033[2Jb\nc\u202ed") == "a [2Jb c d"
