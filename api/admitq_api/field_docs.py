"""What the docstrings below the fields of a model say.

They are read from the source by whoever writes them down: for every model at its import that would be a
seventh of what it takes to start a command.
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
    """The docstring below each field of a model, inherited fields included; by the field's name in Python."""
    outwards = model.__mro__[: model.__mro__.index(BaseModel)]
    return {name: text for base in reversed(outwards) for name, text in _read_own_docs(base)}


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
    """The classes that a module declares."""
    statements = ast.parse(inspect.getsource(sys.modules[module])).body
    return {one.name: one for one in statements if isinstance(one, ast.ClassDef)}
