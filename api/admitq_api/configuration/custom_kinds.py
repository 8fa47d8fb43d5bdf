"""Job kinds that are defined in the configuration file. The docstrings are their reference."""

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from admitq_api.configuration.fields import Count, DnsLabel, Section, Subdomain, reject_duplicates
from admitq_api.path_notation import EACH_ELEMENT, POD_SET_NAME, parse_path
from admitq_api.syntax import check_dns_subdomain


def _check_path(value: str) -> str:
    parsed = parse_path(value)
    if EACH_ELEMENT in parsed or POD_SET_NAME in parsed:
        raise ValueError(
            f"{value!r} leads to more than one place: write a path without {EACH_ELEMENT} and {POD_SET_NAME}"
        )
    return value


def _check_element_path(value: str) -> str:
    parsed = parse_path(value)
    if parsed.count(EACH_ELEMENT) > 1 or POD_SET_NAME in parsed:
        raise ValueError(f"{value!r} leads too far: write {EACH_ELEMENT} once at most, and no {POD_SET_NAME}")
    return value


def _check_path_by_name(value: str) -> str:
    if EACH_ELEMENT in parse_path(value):
        raise ValueError(
            f"{value!r} leads to more than one place: write {POD_SET_NAME} for the name of the podset"
        )
    return value


def _check_created_kind(value: str) -> str:
    kind, dot, group = value.partition(".")
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", kind) or (dot and check_dns_subdomain(group)):
        raise ValueError(f"{value!r} is not a kind: write Kind.group, like Job.batch, or Pod")
    return value


KindName = Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]{0,61}$")]
FieldPath = Annotated[str, AfterValidator(_check_path)]
EachPath = Annotated[str, AfterValidator(_check_element_path)]
PathByName = Annotated[str, AfterValidator(_check_path_by_name)]
Value = str | int | bool


class StatusSign(Section):
    """A sign of the state of a job: exactly one of a condition and a field."""

    condition: str = ""
    """The type of a condition in `status.conditions`."""

    field: EachPath | None = None
    """The path of a field. If it contains `[]`, one matching element is sufficient."""

    values: tuple[Value, ...] = ()
    """The values of the condition's status, or of the field, that match. By default, the status `"True"` of a
    condition matches, and any number above 0, true, or non-empty string of a field."""

    at_least: FieldPath | None = None
    """The path of a number. The field matches if it is a number at least as large."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (not self.condition) == (self.field is None):
            raise ValueError("set exactly one of condition and field")
        if self.at_least is not None and (self.values or self.field is None):
            raise ValueError("atLeast goes with field and without values: remove one")
        return self


class OutcomeSign(StatusSign):
    """A sign that a job has ended."""

    success: bool
    """Whether the job succeeded."""

    message: FieldPath | None = None
    """The path of a message. The default is the message of the condition."""


class CustomPodSet(Section):
    """A podset. If the paths contain `[]`, each element of the list is a podset."""

    name: DnsLabel | None = None
    """The name of the podset."""

    name_path: EachPath | None = None
    """The path of the name of the podset, if the job contains it."""

    template: EachPath
    """The path of the pod template. If its parent object is absent, the job does not have this podset."""

    count: EachPath | None = None
    """The path of the number of pods."""

    default_count: Count = 1
    """The number of pods if the job does not state it."""

    min_count: EachPath | None = None
    """The path of the minimum number of pods for partial admission. If several podsets have one, only that of
    the last podset applies."""

    reclaimable: PathByName | None = None
    """The path of the number of pods that have ended and need no replacement. `{name}` in the path stands for
    the name of the podset."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.name is None) == (self.name_path is None):
            raise ValueError("set exactly one of name and namePath")
        if self.min_count is not None and self.count is None:
            raise ValueError("minCount needs count, which is written where there is room for fewer pods")
        around = _get_list_path(self.template)
        if around is not None and self.name_path is None:
            raise ValueError(
                f"name: the podsets of {self.template} would all be called so; set namePath instead"
            )
        for field, path in (
            ("namePath", self.name_path),
            ("count", self.count),
            ("minCount", self.min_count),
        ):
            if path is not None and _get_list_path(path) not in (
                {None, around} if field == "count" else {around}
            ):
                raise ValueError(
                    f"{field}: {path!r} must have {EACH_ELEMENT} where template has: {self.template}"
                )
        if self.min_count is not None and self.count is not None and _get_list_path(self.count) != around:
            raise ValueError(
                f"count: {self.count!r} must have {EACH_ELEMENT} where template has: {self.template}"
            )
        return self


def _get_list_path(path: str) -> tuple[str, ...] | None:
    """Return the path of the list with the elements of a path; None if it contains no list."""
    parsed = parse_path(path)
    return parsed[: parsed.index(EACH_ELEMENT)] if EACH_ELEMENT in parsed else None


class CustomKind(Section):
    """A job kind without code in admitq. All listed kinds are enabled."""

    group: Subdomain
    """The API group."""

    version: DnsLabel
    """The API version that admitq reads and writes."""

    kind: KindName
    """The kind."""

    plural: DnsLabel
    """The plural name of the resource, as in `kubectl get`."""

    suspend: FieldPath = "spec.suspend"
    """The path of the field that suspends the job while it is true."""

    pod_sets: Annotated[tuple[CustomPodSet, ...], Field(min_length=1)]
    """The podsets."""

    finished: Annotated[tuple[OutcomeSign, ...], Field(min_length=1)]
    """The signs that a job has ended. The first sign that matches determines its result."""

    active: Annotated[tuple[StatusSign, ...], Field(min_length=1)]
    """The signs that pods of the job may exist. One match is sufficient. A stopped job keeps its quota while
    a sign matches."""

    ready: Annotated[tuple[StatusSign, ...], Field(min_length=1)]
    """The signs that all pods are ready. One match is sufficient."""

    on_hold: tuple[StatusSign, ...] = ()
    """The signs that the job currently needs no quota. One match is sufficient."""

    priority_class: FieldPath | None = None
    """The path of the name of a PriorityClass outside the pod templates."""

    managed_by: FieldPath | None = None
    """The path of the name of the controller that runs the job."""

    controller: str = ""
    """The value at this path for the kind's own controller."""

    creates: Annotated[
        tuple[Annotated[str, AfterValidator(_check_created_kind)], ...], AfterValidator(reject_duplicates)
    ] = ()
    """The kinds of objects that the kind's controller creates, such as `Pod` or `Job.batch`. By default any
    kind is accepted. An object of another kind that names such a job as its owner is queued separately."""

    @property
    def framework(self) -> str:
        """The name of the kind in lists of frameworks."""
        return f"{self.group}/{self.kind.lower()}"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.managed_by is None) == bool(self.controller):
            raise ValueError("managedBy and controller go together: set both or none")
        names = [pod_set.name for pod_set in self.pod_sets if pod_set.name is not None]
        try:
            reject_duplicates(tuple(names))
        except ValueError as error:
            raise ValueError(f"podSets: {error}") from None
        return self
