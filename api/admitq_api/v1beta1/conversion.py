"""Convert objects between the two versions.

Fields that the other version cannot express are stored in an annotation. The conversion back restores them,
so that a client that reads and writes an object in v1beta1 loses no fields of v1beta2. All users that can
write the object can write the annotation, and no schema validates it. So the conversion restores only
certain fields of the spec, only with valid values, and only in objects of the right version.
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
"""The maximum size of all keys and values together. The API server rejects larger annotations."""


class ConversionError(Exception):
    """The object cannot be converted. The message names its version and kind."""


def convert(obj: Mapping[str, Any], to: str, names: Names) -> dict[str, Any]:
    """Return an object in another version. The given object is not changed.

    Args:
        obj: an object in either version. It need not be valid.
        to: the wanted version, without the group.
        names: the names of the group.

    Raises:
        ConversionError: the kind is not one of admitq's kinds, or one of the versions is not served.
    """
    api_version, kind = obj.get("apiVersion"), obj.get("kind")
    of_kind = list_differences(names).get(kind) if isinstance(kind, str) else None
    versions = {f"{names.group}/{version}": version for version in (names.version, names.older_version)}
    if (
        of_kind is None
        or not isinstance(api_version, str)
        or api_version not in versions
        or to not in versions.values()
    ):
        raise ConversionError(f"{api_version!r} {kind!r} cannot be converted to {names.group}/{to}")
    result = dict(obj)
    if versions[api_version] == to:
        return result
    result["apiVersion"] = f"{names.group}/{to}"
    goes_up = to == names.version
    carried = tuple(change for change in of_kind if _is_in_use(result) or not isinstance(change, NamesOf))
    _restore_fields(result, to, _list_carried_fields(carried, goes_up=goes_up), names)
    aside: list[tuple[Steps, Any]] = []
    for change in of_kind:
        unconverted = list(change.up(result) if goes_up else change.down(result))
        if change in carried:
            aside += unconverted
    if aside:
        _store_in_annotation(result, versions[api_version] or "", aside, names)
    return result


def _is_in_use(obj: dict[str, Any]) -> bool:
    """Whether the conversion is for a request, and not for reading from or writing to storage.

    Stored objects have no resourceVersion: the API server sets it after it has read the object.
    """
    metadata = obj.get("metadata")
    return isinstance(metadata, dict) and bool(cast("dict[str, Any]", metadata).get("resourceVersion"))


def _list_carried_fields(every: tuple[FieldDifference, ...], *, goes_up: bool) -> Mapping[str, ValueCheck]:
    """Return the fields that a conversion restores from the annotation, with checks of their values."""
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
    return isinstance(value, list) and all(isinstance(name, str) for name in cast("list[Any]", value))


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
    """Yield the fields of a version in an annotation; none if it lacks the form of `_store_in_annotation`."""
    try:
        annotation = orjson.loads(text if isinstance(text, str) else b"")
    except orjson.JSONDecodeError:
        return
    match annotation:
        case {"version": str(of), "fields": [*fields]} if of == version:
            for entry in fields:
                match entry:
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
    # With larger annotations, the API server could not return the object, nor any list that contains it.
    if sum(len(str(part).encode()) for pair in annotations.items() for part in pair) <= MAX_ANNOTATION_BYTES:
        _set_annotations(obj, annotations)


def _get_annotations(obj: dict[str, Any]) -> dict[str, Any]:
    metadata = obj.get("metadata")
    annotations = cast("dict[str, Any]", metadata).get("annotations") if isinstance(metadata, dict) else None
    return cast("dict[str, Any]", annotations) if isinstance(annotations, dict) else {}


def _set_annotations(obj: dict[str, Any], annotations: dict[str, Any]) -> None:
    metadata = obj.get("metadata")
    new_metadata = dict(cast("dict[str, Any]", metadata)) if isinstance(metadata, dict) else {}
    new_metadata.pop("annotations", None)
    obj["metadata"] = {**new_metadata, "annotations": annotations} if annotations else new_metadata
