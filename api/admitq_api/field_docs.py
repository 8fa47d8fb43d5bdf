"""Read the docstrings below the fields of models from their source code.

Only generators read them. To read them at each import would take a seventh of the start time of a command.
"""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


@cache
def read_field_docs(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the docstring below each field of a model, by the name of the field, with inherited fields."""
    bases = model.__mro__[: model.__mro__.index(BaseModel)]
    return {name: text for base in reversed(bases) for name, text in _read_own_docs(base)}


def _read_own_docs(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(_parse_classes(model.__module__)[model.__name__].body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, inspect.cleandoc(text)
            case _:
                pass


@cache
def _parse_classes(module: str) -> Mapping[str, ast.ClassDef]:
    """Return the classes that a module declares."""
    statements = ast.parse(inspect.getsource(sys.modules[module])).body
    return {statement.name: statement for statement in statements if isinstance(statement, ast.ClassDef)}
