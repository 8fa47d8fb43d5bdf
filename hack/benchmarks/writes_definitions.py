"""Variants of the CustomResourceDefinition of Workloads, each with one part changed.

Every variant has its own API group, so that one API server serves all variants at once.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Final, cast

from admitq.runtime.resources import Resource
from admitq_api.crds import create_crds
from admitq_api.labels import COMPAT_GROUP, DEFAULT_GROUP, names_for

Schema = dict[str, Any]

TODAY: Final = "today"
_RULES: Final = "x-kubernetes-validations"
_OPEN: Final = "x-kubernetes-preserve-unknown-fields"
_GROUP_SUFFIX: Final = "bench.example.com"


def _shipped(group: str = DEFAULT_GROUP) -> Schema:
    """Return the shipped CustomResourceDefinition of Workloads."""
    name = names_for(group).crd_name("workloads")
    return deepcopy(next(crd for crd in create_crds(group) if crd["metadata"]["name"] == name))


def _objects(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Schema]]:
    """Yield each schema within a schema, with the path of its field."""
    if not isinstance(schema, dict):
        return
    fields = cast("Schema", schema)
    yield path, fields
    for name, field in fields.get("properties", {}).items():
        yield from _objects(field, (*path, name))
    for keyword in ("items", "additionalProperties"):
        yield from _objects(fields.get(keyword), (*path, "[]"))


def _root(crd: Schema) -> Schema:
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def _pod_set(crd: Schema) -> Schema:
    return _root(crd)["properties"]["spec"]["properties"]["podSets"]["items"]


def remove_rules(crd: Schema, *, within: tuple[str, ...] = (), only_own: bool = False) -> None:
    """Remove the CEL rules at a path and below.

    Args:
        crd: the definition to change.
        within: the path of the field.
        only_own: keep the rules of the fields below.
    """
    for path, schema in _objects(_root(crd)):
        if path == within or (not only_own and path[: len(within)] == within):
            schema.pop(_RULES, None)


def evaluate_conditions_first(crd: Schema) -> None:
    """Let the CEL rules of the object evaluate conditions before they compare fields of the spec."""
    for rule in _root(crd)[_RULES]:
        compared, separator, conditions = rule["rule"].rpartition(" || !")
        rule["rule"] = f"!{conditions} || ({compared})" if separator else rule["rule"]


def count_rules(crd: Mapping[str, Any]) -> int:
    """Return the number of CEL rules of a definition."""
    return sum(len(schema.get(_RULES, ())) for _, schema in _objects(_root(dict(crd))))


def open_template(crd: Schema) -> None:
    """Replace the schema of pod templates by an object with unknown fields, still one field for managers."""
    template = {"type": "object", _OPEN: True, "x-kubernetes-map-type": "atomic"}
    _pod_set(crd)["properties"]["template"] = template


def divide_template(crd: Schema) -> None:
    """Let field managers own single fields of the pod template."""
    _pod_set(crd)["properties"]["template"].pop("x-kubernetes-map-type")


def make_pod_sets_atomic(crd: Schema) -> None:
    """Make the list of pod sets one field for field managers. Its schema stays."""
    pod_sets = _root(crd)["properties"]["spec"]["properties"]["podSets"]
    pod_sets["x-kubernetes-list-type"] = "atomic"
    pod_sets.pop("x-kubernetes-list-map-keys")


def divide_status(crd: Schema) -> None:
    """Let field managers own single fields of conditions and of the admission."""
    status = _root(crd)["properties"]["status"]["properties"]
    for schema in (status["conditions"]["items"], status["admission"]):
        schema.pop("x-kubernetes-map-type")


def close_template(crd: Schema) -> None:
    """Remove unknown fields of pod templates instead of keeping them."""
    for _, schema in _objects(_pod_set(crd)["properties"]["template"]):
        schema.pop(_OPEN, None)


def remove_patterns(crd: Schema) -> None:
    """Remove all patterns and formats of texts."""
    for _, schema in _objects(_root(crd)):
        schema.pop("pattern", None)
        schema.pop("format", None)


def remove_columns(crd: Schema) -> None:
    """Remove the columns of `kubectl get` and the selectable fields."""
    crd["spec"]["versions"][0].pop("additionalPrinterColumns")
    crd["spec"]["versions"][0].pop("selectableFields")


def _open_template_without_rules(crd: Schema) -> None:
    open_template(crd)
    remove_rules(crd)


def _open_and_divided_template(crd: Schema) -> None:
    open_template(crd)
    divide_template(crd)


def _single_fields_and_conditions_first(crd: Schema) -> None:
    divide_template(crd)
    divide_status(crd)
    evaluate_conditions_first(crd)


def _unchanged(_: Schema) -> None:
    """Leave the definition as it is."""


CHANGES: Final[Mapping[str, Callable[[Schema], None]]] = {
    TODAY: _unchanged,
    "open-template": open_template,
    "divided-template": divide_template,
    "atomic-pod-sets": make_pod_sets_atomic,
    "divided-status": divide_status,
    "single-fields-conditions-first": _single_fields_and_conditions_first,
    "open-divided-template": _open_and_divided_template,
    "closed-template": close_template,
    "conditions-first": evaluate_conditions_first,
    "no-rules": remove_rules,
    "no-rules-of-object": lambda crd: remove_rules(crd, only_own=True),
    "no-rules-of-spec": lambda crd: remove_rules(crd, within=("spec",)),
    "no-rules-of-status": lambda crd: remove_rules(crd, within=("status",)),
    "open-template-no-rules": _open_template_without_rules,
    "no-patterns": remove_patterns,
    "no-columns": remove_columns,
}
"""The change of the shipped definition, by the name of the variant."""

TWO_VERSIONS: Final = "two-versions"
"""The variant with v1beta1 beside v1beta2, and a conversion webhook. The benchmark uses only v1beta2."""

VARIANTS: Final = (*CHANGES, TWO_VERSIONS)


def create_definition(variant: str) -> Schema:
    """Return the CustomResourceDefinition of a variant, under the group of the variant."""
    crd = _shipped(COMPAT_GROUP if variant == TWO_VERSIONS else DEFAULT_GROUP)
    CHANGES.get(variant, _unchanged)(crd)
    group = f"{variant}.{_GROUP_SUFFIX}"
    crd["metadata"]["name"] = f"workloads.{group}"
    crd["spec"]["group"] = group
    # The names of the variants would otherwise collide in `kubectl`.
    for names in ("shortNames", "categories"):
        crd["spec"]["names"].pop(names, None)
    return crd


def resource_of(variant: str) -> Resource:
    """Return the resource of the Workloads of a variant."""
    version = names_for(DEFAULT_GROUP).version
    return Resource(f"{variant}.{_GROUP_SUFFIX}", version, "workloads", "Workload", namespaced=True)
