"""Carries objects from one version to the other and back.

What the other version cannot say goes with the object in an annotation, and back into its place on the way
back: so whoever reads an object in v1beta1 and writes it again loses nothing of what v1beta2 has. Anybody who
may write the object can write the annotation, and no schema is asked about what it holds. So nothing is taken
from it but fields of the spec that are carried this way, with values that they may have; and only into an
object of the version that they are of.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import orjson

from admitq_api.labels import Names
from admitq_api.v1beta1.differences import list_differences
from admitq_api.v1beta1.field_differences import AddedField, FieldDifference, SplitReference, ValueCheck
from admitq_api.v1beta1.field_differences import NameList as NamesOf
from admitq_api.v1beta1.paths import Steps, format_path, restore_field

MAX_ANNOTATION_BYTES: Final = 256 * 1024
"""Bytes of all keys and values together. The API server takes no more, and no object that has more."""


class ConversionError(Exception):
    """There is no such object in both versions; the message says what was given."""


def convert(obj: Mapping[str, Any], to: str, names: Names) -> dict[str, Any]:
    """Return an object in another version. What was given stays as it is.

    Args:
        obj: in either version; it need not be valid.
        to: the version, without the group.
        names: of the group.

    Raises:
        NotConvertible: its kind is none of ours, or one of the versions is not served.
    """
    given, kind = obj.get("apiVersion"), obj.get("kind")
    of_kind = list_differences(names).get(kind) if isinstance(kind, str) else None
    versions = {f"{names.group}/{version}": version for version in (names.version, names.older_version)}
    if of_kind is None or not isinstance(given, str) or given not in versions or to not in versions.values():
        raise ConversionError(f"{given!r} {kind!r} cannot be converted to {names.group}/{to}")
    result = dict(obj)
    if versions[given] == to:
        return result
    result["apiVersion"] = f"{names.group}/{to}"
    goes_up = to == names.version
    carried = tuple(change for change in of_kind if _is_in_use(result) or not isinstance(change, NamesOf))
    _restore_fields(result, to, _list_carried_fields(carried, goes_up=goes_up), names)
    aside: list[tuple[Steps, Any]] = []
    for change in of_kind:
        left = list(change.up(result) if goes_up else change.down(result))
        if change in carried:
            aside += left
    if aside:
        _store_in_annotation(result, versions[given] or "", aside, names)
    return result


def _is_in_use(obj: dict[str, Any]) -> bool:
    """Whether a request works with the object; else it is on its way into storage or out of it.

    What is stored has no resourceVersion: the API server sets it when it has read the object.
    """
    metadata = obj.get("metadata")
    return isinstance(metadata, dict) and bool(cast("dict[str, Any]", metadata).get("resourceVersion"))


def _list_carried_fields(every: tuple[FieldDifference, ...], *, goes_up: bool) -> Mapping[str, ValueCheck]:
    """The fields that come out of the annotation on the way up or down, and what they may be."""
    return {
        f"{at}.{field}": fits
        for change in every
        for at, field, fits in _list_fields_from_annotation(change, goes_up)
    }


def _list_fields_from_annotation(
    change: FieldDifference, goes_up: bool
) -> Iterator[tuple[str, str, ValueCheck]]:
    match change:
        case NamesOf(at, older) if not goes_up:
            yield at, older, _are_names
        case AddedField(at, field, fits) if goes_up:
            yield at, field, fits
        case SplitReference(at, source, name, _, sources, fits) if not goes_up:
            yield at, source, tuple(sources).__contains__
            yield at, name, fits
        case _:
            pass


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in cast("list[Any]", value))


def _restore_fields(
    obj: dict[str, Any], version: str, carried: Mapping[str, ValueCheck], names: Names
) -> None:
    annotations = _get_annotations(obj)
    if names.other_version not in annotations:
        return
    _set_annotations(obj, {key: value for key, value in annotations.items() if key != names.other_version})
    for steps, value in _parse_annotation(annotations[names.other_version], version):
        fits = carried.get(format_path(steps))
        if fits is not None and fits(value):
            restore_field(obj, steps, value)


def _parse_annotation(text: object, version: str) -> Iterator[tuple[Steps, Any]]:
    """What an annotation holds of a version; nothing if it is not of the form that `_set_aside` gives it."""
    try:
        found = orjson.loads(text if isinstance(text, str) else b"")
    except orjson.JSONDecodeError:
        return
    match found:
        case {"version": str(of), "fields": [*fields]} if of == version:
            for one in fields:
                match one:
                    case {"at": [*steps], "value": value}:
                        yield tuple(steps), value
                    case _:
                        pass
        case _:
            pass


def _store_in_annotation(
    obj: dict[str, Any], version: str, aside: list[tuple[Steps, Any]], names: Names
) -> None:
    fields = [{"at": list(steps), "value": value} for steps, value in aside]
    text = orjson.dumps({"version": version, "fields": fields}).decode()
    annotations = {**_get_annotations(obj), names.other_version: text}
    # With more, nobody could read the object in the other version, nor any list that it is in.
    if sum(len(str(part).encode()) for pair in annotations.items() for part in pair) <= MAX_ANNOTATION_BYTES:
        _set_annotations(obj, annotations)


def _get_annotations(obj: dict[str, Any]) -> dict[str, Any]:
    metadata = obj.get("metadata")
    annotations = cast("dict[str, Any]", metadata).get("annotations") if isinstance(metadata, dict) else None
    return cast("dict[str, Any]", annotations) if isinstance(annotations, dict) else {}


def _set_annotations(obj: dict[str, Any], annotations: dict[str, Any]) -> None:
    metadata = obj.get("metadata")
    kept = dict(cast("dict[str, Any]", metadata)) if isinstance(metadata, dict) else {}
    kept.pop("annotations", None)
    obj["metadata"] = {**kept, "annotations": annotations} if annotations else kept
