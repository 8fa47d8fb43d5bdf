"""Evaluate the CEL rules of a schema (``x-kubernetes-validations``) for an object, as the API server does."""

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, cast

from cel import Context, Program
from cel import compile as compile_cel

from admitq.manifests.documents import FieldPath, field_path
from admitq.manifests.structural import FieldProblem, Schema, item_key
from admitq_api.quantity import QuantityError, parse_quantity


def broken_rules(value: Any, schema: Schema, old: Any = None) -> Iterator[FieldProblem]:
    """Return the rules that an object breaks, with their message and field.

    Args:
        value: the object, with its defaults.
        schema: its schema, which the object follows.
        old: the object before the update; None for an object that is created. Rules that compare with the old
            object are evaluated only for fields that the old object has.
    """
    yield from _broken(value, schema, old, ())


def _broken(value: Any, schema: Schema, old: Any, path: FieldPath) -> Iterator[FieldProblem]:
    for rule in schema.get("x-kubernetes-validations", ()):
        program = _compiled(rule["rule"])
        compares = "oldSelf" in program.variables()
        if compares and old is None:
            continue
        try:
            holds = program.execute(_context(value, old if compares else None))
        except (ValueError, TypeError, RuntimeError) as error:
            yield FieldProblem(path, f"{rule['message']} (the rule cannot be evaluated: {error})")
            continue
        if not holds:
            yield FieldProblem((*path, *_relative_path(rule)), rule["message"])
    if isinstance(value, dict):
        properties: Mapping[str, Schema] = schema.get("properties", {})
        other: Schema = schema.get("additionalProperties") or {}
        before = cast("Mapping[str, Any]", old) if isinstance(old, dict) else {}
        for name, inner in cast("dict[str, Any]", value).items():
            yield from _broken(inner, properties.get(name, other), before.get(name), (*path, name))
    elif isinstance(value, list):
        items: Schema = schema.get("items", {})
        # Only items of lists with keys can be matched with their old values.
        keyed = schema.get("x-kubernetes-list-type") == "map" and isinstance(old, list)
        before = {item_key(item, schema): item for item in cast("list[Any]", old)} if keyed else {}
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _broken(item, items, before.get(item_key(item, schema)), (*path, index))


def _relative_path(rule: Mapping[str, str]) -> FieldPath:
    return field_path(rule.get("fieldPath", "").removeprefix("."))


@lru_cache(maxsize=1024)
def _compiled(rule: str) -> Program:
    return compile_cel(rule)


def _context(value: Any, old: Any) -> Context:
    variables = {"self": value} if old is None else {"self": value, "oldSelf": old}
    return Context(variables=variables, functions={**_FUNCTIONS})


# --- the Kubernetes library for quantities -----------------------------------------------------------
#
# The CEL library passes only its own types to functions: a quantity is the text of its exact value.


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except QuantityError:
        return False
    return True


def _quantity(text: str) -> str:
    return str(parse_quantity(text))


def _compare(left: str, right: str) -> int:
    first, second = Fraction(left), Fraction(right)
    return (first > second) - (first < second)


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "isQuantity": _is_quantity,
    "quantity": _quantity,
    "compareTo": _compare,
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
    "isLessThan": lambda left, right: _compare(left, right) < 0,
}
