"""Read the files of a run: the scenario, its manifests, and the configuration."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Final, cast

import orjson
from pydantic import ValidationError

from admitq.manifests.documents import Document, InputError, Place, Problem, read_file
from admitq.simulator.problems import problems_of
from admitq.simulator.schema import KIND, Repeat, Scenario
from admitq_api.labels import DEFAULT_GROUP, GROUPS, Names, names_for

_CONFIGURATION: Final = "Configuration"
_COUNTER: Final = re.compile(r"\$\{([^}]*)\}")


@dataclass(slots=True, eq=False)
class Files:
    """The documents of a run."""

    names: Names
    scenario: Scenario
    document: Document
    """The ``spec`` of the scenario."""
    name: str
    folder: Path
    """The folder of the scenario; its paths are relative to it."""
    manifests: list[Document] = field(default_factory=list[Document])
    configuration: Document | None = None
    changed: list[Document] = field(default_factory=list[Document])
    """Manifests that replace those of the same name, or are added."""


def has_scenario(path: Path) -> bool:
    """Return whether a file contains a scenario.

    Raises:
        InputError: the file is invalid.
    """
    return any(document.value.get("kind") == KIND for document in read_file(path, str(path)))


def read_files(paths: Sequence[Path], changed: Sequence[Path] = ()) -> Files:
    """Read the given files, and the files of manifests of the scenario.

    Args:
        paths: the files; one of them contains the scenario.
        changed: files without a scenario. Their objects replace those of the same name.

    Raises:
        InputError: a file is invalid; the problems have file, line and field.
    """
    documents = [(path, document) for path in paths for document in read_file(path, str(path))]
    scenarios = [(path, document) for path, document in documents if document.value.get("kind") == KIND]
    if not scenarios:
        shown = str(paths[0]) if paths else ""
        remedy = f"no document of kind {KIND} in any of the files: add one, which defines the workloads"
        raise InputError([Problem(Place(shown), "", remedy)])
    if len(scenarios) > 1:
        first = scenarios[0][1].place()
        raise scenarios[1][1].error(("kind",), f"there is a {KIND} already, at {first}: keep one")
    path, document = scenarios[0]
    names = _scenario_names(document)
    scenario, spec = _scenario(document)
    files = Files(names, scenario, spec, _name(document, path), path.parent)
    for _, manifest in documents:
        _sort_in(files, manifest)
    for index, name in enumerate(scenario.manifests):
        inner = files.folder / name
        if not inner.exists():
            raise spec.error(("manifests", index), f"{inner} does not exist")
        for manifest in read_file(inner, str(inner)):
            if manifest.value.get("kind") == KIND:
                raise manifest.error(("kind",), f"a {KIND} cannot be a manifest of another Scenario")
            _sort_in(files, manifest)
    files.manifests.extend(_repeated(spec, scenario.repeat))
    files.names = _manifest_names(files)
    for path in changed:
        _sort_in_changed(files, read_file(path, str(path)))
    return files


def read_files_beside(cluster: Files, paths: Sequence[Path], changed: Sequence[Path] = ()) -> Files:
    """Read the given files for a run that begins with the objects of a cluster.

    Args:
        cluster: the objects and the configuration of the cluster, with the scenario of a run without files.
        paths: files. At most one contains a scenario. Their objects replace those of the same name.
        changed: files without a scenario. Their objects replace those of the same name in cluster and files.

    Raises:
        InputError: a file is invalid; the problems have file, line and field.
    """
    if any(has_scenario(path) for path in paths):
        files = read_files(paths)
        files.changed = files.manifests
    else:
        files = replace(cluster, changed=[*cluster.changed])
        for path in paths:
            _sort_in_changed(files, read_file(path, str(path)))
    for path in changed:
        _sort_in_changed(files, read_file(path, str(path)))
    files.names, files.manifests = cluster.names, cluster.manifests
    files.configuration = files.configuration or cluster.configuration
    return files


def _sort_in(files: Files, document: Document) -> None:
    if _is_configuration(document):
        if files.configuration is not None:
            first = files.configuration.place()
            raise document.error(("kind",), f"there is a {_CONFIGURATION} already, at {first}: keep one")
        files.configuration = document
    elif document.value.get("kind") != KIND:
        files.manifests.append(document)


def _sort_in_changed(files: Files, documents: Sequence[Document]) -> None:
    configurations = [document for document in documents if _is_configuration(document)]
    files.configuration = configurations[-1] if configurations else files.configuration
    files.changed.extend(document for document in documents if not _is_configuration(document))


def _is_configuration(document: Document) -> bool:
    api_version = str(document.value.get("apiVersion", ""))
    return document.value.get("kind") == _CONFIGURATION and api_version.startswith("config.")


def _scenario_names(scenario: Document) -> Names:
    """Return the names of the API group that the scenario is written for."""
    api_version = scenario.value.get("apiVersion")
    for group in GROUPS:
        names = names_for(group)
        if api_version == names.simulation_api_version:
            return names
    raise scenario.error(("apiVersion",), f"write {names_for(DEFAULT_GROUP).simulation_api_version}")


def _manifest_names(files: Files) -> Names:
    """Return the names of the API group of the manifests. It can differ from that of the scenario."""
    for document in files.manifests:
        group = str(document.value.get("apiVersion", "")).rpartition("/")[0]
        if group in GROUPS:
            return names_for(group)
    return files.names


def _name(document: Document, path: Path) -> str:
    metadata: Any = document.value.get("metadata")
    name = cast("Mapping[str, Any]", metadata).get("name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) and name else path.stem


def _scenario(document: Document) -> tuple[Scenario, Document]:
    for key in document.value:
        if key not in {"apiVersion", "kind", "metadata", "spec"}:
            raise document.error((key,), "unknown field: fields of the scenario belong under spec")
    spec: Any = document.value.get("spec")
    if not isinstance(spec, Mapping):
        raise document.error(("spec",), "is required")
    inner = document.within(("spec",), cast("Mapping[str, Any]", spec))
    try:
        return Scenario.model_validate_json(orjson.dumps(spec)), inner
    except ValidationError as error:
        raise InputError(problems_of(error, inner, Scenario)) from None


# --- repetition -----------------------------------------------------------------------------------


def _repeated(spec: Document, repeats: Sequence[Repeat]) -> Iterator[Document]:
    for number, repeat in enumerate(repeats):
        parts = [
            spec.within(("repeat", number, "objects", index), value)
            for index, value in enumerate(repeat.objects)
        ]
        for counts in product(*(range(count) for count in repeat.over.values())):
            counters = dict(zip(repeat.over, map(str, counts), strict=True))
            for part in parts:
                yield Document(part.file, _written(part.value, counters, part), part.node, part.base)


def _written(value: Any, counters: Mapping[str, str], part: Document) -> Any:
    """Return a value with the counters replaced in its strings."""
    if isinstance(value, str):
        return _COUNTER.sub(lambda match: _counter(match[1], counters, part), value)
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {key: _written(inner, counters, part) for key, inner in fields.items()}
    if isinstance(value, list):
        return [_written(inner, counters, part) for inner in cast("list[Any]", value)]
    return value


def _counter(name: str, counters: Mapping[str, str], part: Document) -> str:
    if name not in counters:
        raise part.error((), f"${{{name}}} is not a counter of this repetition: use {', '.join(counters)}")
    return counters[name]
