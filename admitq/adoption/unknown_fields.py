"""Fields of stored objects that admitq's CRDs do not have: the API server drops them at the next write."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from admitq.adoption.cluster import Cluster, has_true_condition, object_reference, readable_version
from admitq_api.crds import create_crds
from admitq_api.json_objects import JsonObject

OF_EVERY_OBJECT: Final = frozenset({"apiVersion", "kind", "metadata"})


def find_unknown_fields(cluster: Cluster) -> Iterator[str]:
    """Yield each unknown field or value once, with one object that has it and the number of others."""
    own = {crd["spec"]["names"]["plural"]: _schemas(crd) for crd in create_crds(cluster.names.group)}
    for plural, definition in cluster.definitions.items():
        schema = own.get(plural, {}).get(readable_version(definition) or "")
        if schema is None:
            yield from (f"all of {name}" for name, _ in cluster.each(plural))
            continue
        having: dict[str, list[str]] = {}
        for obj in cluster.objects.get(plural, ()):
            if not has_true_condition(obj, "Finished"):
                fields = {key: value for key, value in obj.items() if key not in OF_EVERY_OBJECT}
                for path in {*find_unknown_paths(schema, fields)}:
                    having.setdefault(path, []).append(object_reference(plural, obj))
        for path, names in sorted(having.items()):
            yield f"{path} of {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def find_unknown_paths(schema: Mapping[str, Any], value: Any, at: str = "") -> Iterator[str]:
    """Yield the paths of fields that a structural schema lacks, and of values that it does not allow."""
    if isinstance(value, Mapping):
        fields: Mapping[str, Any] = schema.get("properties") or {}
        others = schema.get("additionalProperties")
        for name, inner in value.items():
            where = f"{at}.{name}" if at else str(name)
            if name in fields:
                yield from find_unknown_paths(fields[name], inner, where)
            elif isinstance(others, Mapping):
                yield from find_unknown_paths(others, inner, where)
            elif not others and not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield where
    elif isinstance(value, list):
        for inner in value:
            yield from find_unknown_paths(schema.get("items") or {}, inner, f"{at}[]")
    elif (listed := schema.get("enum")) and value not in listed:
        yield f"{at}: {value}"


def _schemas(definition: JsonObject) -> dict[str, Mapping[str, Any]]:
    return {
        version["name"]: version["schema"]["openAPIV3Schema"] for version in definition["spec"]["versions"]
    }
