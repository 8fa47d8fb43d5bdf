"""The case files of job kinds.

``kinds/README.md`` describes the case files.
"""

import copy
import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from admitq.controllers.indexes import resource_of
from admitq.integrations.base import Integration
from admitq.integrations.registry import load_integrations
from admitq.runtime.resources import Resource
from admitq_api.json_objects import FieldPath, value_at
from admitq_api.labels import DEFAULT_GROUP
from localcluster import crds
from localcluster.folders import REPOSITORY
from tests.unit.integrations.examples import custom_kinds

KINDS = (*load_integrations(), *custom_kinds())
"""Every kind with a case file."""

FOLDER = Path(__file__).parent / "kinds"
EVERY_KIND = FOLDER / "every-kind.yaml"

NULL = "<null>"

_STEP = re.compile(r"([^.\[\]]+)|\[([^\]]+)\]")
_OUR_GROUP = re.compile(rf"(?<![\w.]){re.escape(DEFAULT_GROUP)}(?=/)")
_YAML_BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


# --- paths ------------------------------------------------------------------------------------------


def path_of(text: str) -> FieldPath:
    """Parse a path such as ``spec.jobs[0].labels[example.com/a]``."""
    return tuple(
        int(inside) if inside.isdigit() else inside or plain for plain, inside in _STEP.findall(text)
    )


def with_changes(obj: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the object with these values, by path; null removes a field, ``NULL`` writes null."""
    result = copy.deepcopy(obj)
    for text, value in copy.deepcopy(dict(changes)).items():
        *outer, last = path_of(text)
        place: Any = result
        for step in outer:
            if isinstance(step, str) and place.get(step) is None:
                place[step] = {}
            place = place[step]
        if value is None:
            place.pop(last, None)
        elif value == NULL:
            place[last] = None
        elif isinstance(last, int) and last == len(place):
            place.append(value)
        else:
            place[last] = value
    return result


def differences(obj: dict[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """The differences of an object from expected values, by path; null stands for a missing field."""
    found = {text: value_at(obj, path_of(text)) for text in wanted}
    return [
        f"{text} is {found[text]!r}, not {wanted[text]!r}" for text in wanted if found[text] != wanted[text]
    ]


# --- what the YAML says -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PodSetCase:
    """An expected podset, and the places in the job for the fields that an admission injects."""

    name: str
    count: int
    template: str | None = None
    """The path of the pod template; a kind without one has ``places``."""
    places: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Paths of ``nodeSelector``, ``tolerations``, ``labels`` and ``annotations``."""

    def place(self, what: str) -> FieldPath | None:
        """The path of an injected field; None if the kind has no such field."""
        if what in self.places:
            return path_of(self.places[what])
        if self.template is None:
            return None
        part = "metadata" if what in {"labels", "annotations"} else "spec"
        return (*path_of(self.template), part, what)


@dataclass(frozen=True, kw_only=True)
class Step:
    """Writes of the kind's controller that bring a job towards a phase, in this order."""

    child: bool = False
    """Whether the controller creates the child of the case, unless it exists."""
    change: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    status: dict[str, Any] | None = None
    pods: Mapping[str, Any] | None = None
    until: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A change of a queued job, and the expected podsets of its Workload."""

    change: Mapping[str, Any]
    podSets: Mapping[str, int]  # noqa: N815 as in the YAML


@dataclass(frozen=True, kw_only=True)
class Partial:
    """A job that is admitted with fewer pods than it requests."""

    given: Mapping[str, Any]
    quota: Mapping[str, Any]
    counts: Mapping[str, int]
    started: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Child:
    """A child that a job of the kind creates, which is not queued."""

    manifest: dict[str, Any]
    integration: Integration
    name: str = "child"
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """Fields that the controller writes differently from the manifest of the child, by path."""
    forgeries: Mapping[str, Mapping[str, Any]] = dataclasses.field(
        default_factory=dict[str, Mapping[str, Any]]
    )
    """Changes that make the child one that the controller would not create."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule of validation, with an invalid and a valid request."""

    rule: str
    refused: Mapping[str, Any]
    field: str
    message: str
    accepted: Mapping[str, Any]
    when: str = "creation"
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """Defaults of a new job of the kind."""

    rule: str
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    becomes: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class KindCase:
    """The cases of one kind."""

    integration: Integration
    manifest: dict[str, Any]
    podSets: tuple[PodSetCase, ...]  # noqa: N815 as in the YAML
    play: Mapping[str, tuple[Step, ...]]
    """The steps of the kind's controller that bring a job into a phase."""
    suspended: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"spec.suspend": True})
    started: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"spec.suspend": False})
    restored: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    resources: tuple[str, ...] = ("cpu", "memory")
    reclaimable: Mapping[str, int] | None = None
    messages: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    edit: Edit | None = None
    partial: Partial | None = None
    child: Child | None = None
    pod: str | None = None
    podLabels: Mapping[str, str] = dataclasses.field(  # noqa: N815 as in the YAML
        default_factory=dict[str, str]
    )
    validation: tuple[Rule, ...] = ()
    mutation: tuple[Mutation, ...] = ()
    cannot: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    objects: tuple[dict[str, Any], ...] = ()

    def __str__(self) -> str:
        return self.integration.framework

    @property
    def has_real_pods(self) -> bool:
        """Whether the kind's real controller runs and creates pods."""
        return any(step.until for step in self.play["running"])

    @property
    def resource(self) -> Resource:
        """The kind as a resource."""
        return resource_of(self.integration)

    @property
    def definitions(self) -> list[str]:
        """The CRDs of the kind, of objects that it needs, and of its children."""
        kinds = [self.integration, *([self.child.integration] if self.child else [])]
        wanted = [f"{one.plural}.{one.group}" for one in kinds]
        wanted += [
            f"{one.plural}.{one.kind.group}" for kind in kinds for one in kind.templates.referenced_kinds
        ]
        return [name for name in wanted if name in {*crds.NAMES, *crds.OWN_NAMES}]

    def queue(self, group: str) -> str:
        """The LocalQueue that the manifest names."""
        return value_at(self.manifest, ("metadata", "labels", f"{group}/queue-name"), "")


class _Malformed(Exception):
    """A case file has an unknown key, or lacks a required one."""


class _NoManifest(_Malformed):
    """A page does not contain the manifest."""


def _made(cls: Any, given: Mapping[str, Any], where: str) -> Any:
    known = {one.name for one in dataclasses.fields(cls)}
    if unknown := sorted(map(str, set(given).difference(known))):
        raise _Malformed(f"{where}: {', '.join(unknown)} is none of {', '.join(sorted(known))}")
    try:
        return cls(**given)
    except TypeError as error:
        raise _Malformed(f"{where}: {error}") from error


def file_of(integration: Integration) -> Path:
    """The YAML of a kind's cases."""
    return FOLDER / f"{re.sub(r'[/.]', '-', integration.framework)}.yaml"


def kinds_with_cases() -> list[Integration]:
    """The kinds with a YAML file; another test reports kinds without one."""
    return [one for one in KINDS if file_of(one).exists()]


@cache
def default_cases() -> Mapping[str, KindCase]:
    """The cases of all kinds by framework, in the default API group, for the parameters of tests.

    They are shared: a test that changes its case loads it.
    """
    return {one.framework: load(one, DEFAULT_GROUP) for one in kinds_with_cases()}


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def load(integration: Integration, group: str) -> KindCase:
    """The cases of a kind, with labels of an API group."""
    where = file_of(integration).name
    given: dict[str, Any] = yaml.load(
        in_group(file_of(integration).read_text(), group), Loader=yaml.CSafeLoader
    )
    given["manifest"] = _manifest(given["manifest"], integration, group)
    given["podSets"] = tuple(_made(PodSetCase, one, where) for one in given["podSets"])
    given["play"] = {
        name: tuple(_made(Step, one, f"{where}: {name}") for one in _listed(steps))
        for name, steps in given["play"].items()
    }
    for name, cls in (("edit", Edit), ("partial", Partial)):
        if name in given:
            given[name] = _made(cls, given[name], f"{where}: {name}")
    if "child" in given:
        given["child"] = _child(given["child"], group)
    common = [*_common_rules(integration, given["podSets"], group)]
    rules = [*(one for one in common if "becomes" not in one), *given.get("validation", ())]
    given["validation"] = tuple(_made(Rule, one, f"{where}: {one.get('rule')}") for one in rules)
    changes = [*(one for one in common if "becomes" in one), *given.get("mutation", ())]
    given["mutation"] = tuple(_made(Mutation, one, where) for one in changes)
    if isinstance(page := given.get("objects"), str):
        followed = {one.kind for one in integration.templates.referenced_kinds}
        given["objects"] = [one for one in _shown(page, group) if _kind_of(one) in followed]
    for name in ("resources", "objects"):
        if name in given:
            given[name] = tuple(given[name])
    return _made(KindCase, {**given, "integration": integration}, where)


def in_group(text: str, group: str) -> str:
    """A text with its labels changed to an API group."""
    return _OUR_GROUP.sub(group, text)


def _manifest(given: Any, integration: Integration, group: str) -> dict[str, Any]:
    """The given manifest, or the first one of the kind in a page of the documentation."""
    if not isinstance(given, str):
        return given
    for document in _shown(given, group):
        if _kind_of(document) == integration.gvk:
            return document
    raise _NoManifest(f"{given} shows no {integration.kind} of {integration.api_version}")


def _shown(page: str, group: str) -> Iterator[dict[str, Any]]:
    """The manifests of a page of the documentation, in order."""
    for text in _YAML_BLOCK.findall((REPOSITORY / page).read_text()):
        yield from yaml.load_all(in_group(text, group), Loader=yaml.CSafeLoader)


def _kind_of(obj: dict[str, Any]) -> tuple[str, str, str]:
    api_group, _, version = str(obj.get("apiVersion", "")).rpartition("/")
    return (api_group, version, str(obj.get("kind", "")))


def _child(given: Mapping[str, Any], group: str) -> Child:
    for integration in KINDS:
        try:
            manifest = _manifest(given["manifest"], integration, group)
            return _made(Child, {**given, "manifest": manifest, "integration": integration}, "child")
        except _NoManifest:
            continue
    raise _Malformed(f"{given['manifest']} shows no job of any kind")


def _common_rules(
    integration: Integration, pod_sets: tuple[PodSetCase, ...], group: str
) -> Iterator[dict[str, Any]]:
    """The common rules that apply to this kind; those about templates only if it has one."""
    template = pod_sets[0].template if pod_sets else None
    for listed in yaml.load(in_group(EVERY_KIND.read_text(), group), Loader=yaml.CSafeLoader):
        rule = dict(listed)
        kinds, others = rule.pop("kinds", None), rule.pop("not", ())
        if (kinds is not None and integration.framework not in kinds) or integration.framework in others:
            continue
        if "${template}" in str(rule):
            if template is None:
                continue
            rule = _filled(rule, template)
        yield rule


def _filled(value: Any, template: str) -> Any:
    if isinstance(value, Mapping):
        return {_filled(key, template): _filled(one, template) for key, one in value.items()}
    return value.replace("${template}", template) if isinstance(value, str) else value
