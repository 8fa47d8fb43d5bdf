"""Modules stay small: a limit on lines. Classes of the product too: limits on methods and fields."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PRODUCT: Final = ("admitq", "api", "webhooks", "hack")
TESTS: Final = "tests"

MOST_LINES: Final = 600
"""Lines of a module, of the product or of tests."""
MOST_METHODS: Final = 30
"""Methods of a class, of any kind."""
MOST_FIELDS: Final = 20
"""Fields of a class: annotated names in its body, and attributes that its methods assign."""

EXCEPTIONS: Final[Mapping[str, str]] = {
    "api/admitq_api/configuration/root.py Configuration": (
        "the configuration file: its fields are given by the published schema"
    ),
}
"""Classes that may be larger: only records with the fields of a published schema."""


def _assigned(method: ast.AST) -> Iterator[str]:
    """Yield the attributes of ``self`` that a method assigns."""
    for statement in ast.walk(method):
        match statement:
            case ast.Assign(targets=targets):
                pass
            case ast.AnnAssign(target=target):
                targets = [target]
            case _:
                continue
        for target in targets:
            for part in ast.walk(target):
                match part:
                    case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                        yield name
                    case _:
                        pass


def _excess_lines(source: str) -> Iterator[str]:
    """Yield how many lines a module has, if they are too many."""
    lines = source.count("\n")
    if lines > MOST_LINES:
        yield f"{lines} lines of at most {MOST_LINES}"


def _excesses(source: str) -> Iterator[tuple[str, str]]:
    """Yield the classes of a module that are too large, with the excess. An empty name is the module."""
    for excess in _excess_lines(source):
        yield "", excess
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef):
            continue
        methods = [part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
        declared = {
            part.target.id
            for part in node.body
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
        }
        fields = declared.union(*map(_assigned, methods))
        if len(methods) > MOST_METHODS:
            yield node.name, f"{len(methods)} methods of at most {MOST_METHODS}"
        if len(fields) > MOST_FIELDS:
            yield node.name, f"{len(fields)} fields of at most {MOST_FIELDS}"


def _too_large(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Return the excesses of the product's modules and of their classes."""
    excesses: dict[str, list[str]] = {}
    for path in sorted(paths):
        for name, excess in _excesses(path.read_text()):
            excesses.setdefault(f"{path.relative_to(ROOT)} {name}".rstrip(), []).append(excess)
    return excesses


def test_modules_and_classes_are_within_limits() -> None:
    excesses = _too_large(path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py"))
    for path in sorted((ROOT / TESTS).rglob("*.py")):
        for excess in _excess_lines(path.read_text()):
            excesses.setdefault(str(path.relative_to(ROOT)), []).append(excess)
    unexpected = {name: excess for name, excess in excesses.items() if name not in EXCEPTIONS}
    assert unexpected == {}, "split by responsibility"


def test_exceptions_from_limits_are_still_needed() -> None:
    modules = {ROOT / name.partition(" ")[0] for name in EXCEPTIONS}
    assert EXCEPTIONS.keys() - _too_large(modules).keys() == set(), "remove these rows"


MANY_METHODS: Final = "\n".join(f"    def m{number}(self): ..." for number in range(MOST_METHODS + 1))
MANY_FIELDS: Final = "\n".join(f"    f{number}: int" for number in range(MOST_FIELDS + 1))
MANY_ATTRIBUTES: Final = "\n".join(f"        self.f{number} = 0" for number in range(MOST_FIELDS + 1))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("#\n" * MOST_LINES, []),
        ("#\n" * (MOST_LINES + 1), [("", "601 lines of at most 600")]),
        (f"class A:\n{MANY_METHODS}\n", [("A", "31 methods of at most 30")]),
        (f"class A:\n{MANY_FIELDS}\n", [("A", "21 fields of at most 20")]),
        (f"class A:\n    def __init__(self):\n{MANY_ATTRIBUTES}\n", [("A", "21 fields of at most 20")]),
        ("class A:\n    def __init__(self):\n        self.x = self.x = self.y.z = 0\n", []),
    ],
    ids=["short module", "long module", "methods", "declared fields", "assigned fields", "small class"],
)
def test_excess_over_limit_is_found(source: str, expected: list[tuple[str, str]]) -> None:
    assert list(_excesses(source)) == expected
