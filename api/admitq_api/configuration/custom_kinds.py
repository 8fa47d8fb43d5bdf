"""Kinds of jobs that are told of in the configuration file alone. The docstrings are its reference."""

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from admitq_api.configuration.fields import Count, DnsLabel, Section, Subdomain, reject_duplicates
from admitq_api.path_notation import EACH_ELEMENT, POD_SET_NAME, parse_path
from admitq_api.syntax import check_dns_subdomain


def _check_path(value: str) -> str:
    found = parse_path(value)
    if EACH_ELEMENT in found or POD_SET_NAME in found:
        raise ValueError(
            f"{value!r} leads to more than one place: write a path without {EACH_ELEMENT} and {POD_SET_NAME}"
        )
    return value


def _check_element_path(value: str) -> str:
    found = parse_path(value)
    if found.count(EACH_ELEMENT) > 1 or POD_SET_NAME in found:
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
        raise ValueError(f"{value!r} is no kind: write Kind.group, like Job.batch, or Pod")
    return value


KindName = Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]{0,61}$")]
FieldPath = Annotated[str, AfterValidator(_check_path)]
EachPath = Annotated[str, AfterValidator(_check_element_path)]
PathByName = Annotated[str, AfterValidator(_check_path_by_name)]
Value = str | int | bool


class StatusSign(Section):
    """Something in a job that shows how it stands: exactly one of a condition and a field."""

    condition: str = ""
    """The type of a condition in `status.conditions`."""

    field: EachPath | None = None
    """The path of a field; with `[]`, one of the elements suffices."""

    values: tuple[Value, ...] = ()
    """What the status of the condition, or the field, must be; absent: `"True"` of a condition; any number
    above 0, true, or a text of a field."""

    at_least: FieldPath | None = None
    """The path of the number that the field, which is a number too, must have reached."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (not self.condition) == (self.field is None):
            raise ValueError("set exactly one of condition and field")
        if self.at_least is not None and (self.values or self.field is None):
            raise ValueError("atLeast goes with field and without values: remove one")
        return self


class OutcomeSign(StatusSign):
    """Something in a job that shows that it has ended."""

    success: bool
    """Whether it ended well."""

    message: FieldPath | None = None
    """The path of a text that says more; absent: the message of the condition."""


class CustomPodSet(Section):
    """Pods of one shape, or, if paths have `[]`, those of every element of a list, each a podset."""

    name: DnsLabel | None = None
    """The name of the podset."""

    name_path: EachPath | None = None
    """The path of its name, if that is in the job."""

    template: EachPath
    """The path of the pod template; without the object that it is in there is no such podset."""

    count: EachPath | None = None
    """The path of the number of pods."""

    default_count: Count = 1
    """How many pods there are where the job does not say so."""

    min_count: EachPath | None = None
    """The path of the fewest pods that the job can run with. Where several podsets have one, only that of the
    last of them holds."""

    reclaimable: PathByName | None = None
    """The path of the number of pods that have ended and need no successor; `{name}` in it is the name of the
    podset."""

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
    """The path of the list whose elements a path leads through; None if it leads through none."""
    found = parse_path(path)
    return found[: found.index(EACH_ELEMENT)] if EACH_ELEMENT in found else None


class CustomKind(Section):
    """A kind of job that admitq has no code for. It is switched on by being listed."""

    group: Subdomain
    """The API group."""

    version: DnsLabel
    """The version that is watched and written."""

    kind: KindName
    """The kind."""

    plural: DnsLabel
    """The name of the resource, as in `kubectl get`."""

    suspend: FieldPath = "spec.suspend"
    """The path of the field that is true while the job must not run."""

    pod_sets: Annotated[tuple[CustomPodSet, ...], Field(min_length=1)]
    """The pods."""

    finished: Annotated[tuple[OutcomeSign, ...], Field(min_length=1)]
    """What shows that a job has ended; the first that holds tells how."""

    active: Annotated[tuple[StatusSign, ...], Field(min_length=1)]
    """What shows that pods may still be there; one suffices. A stopped job keeps its quota for so long."""

    ready: Annotated[tuple[StatusSign, ...], Field(min_length=1)]
    """What shows that all pods are ready; one suffices."""

    on_hold: tuple[StatusSign, ...] = ()
    """What shows that the job wants no quota for now; one suffices."""

    priority_class: FieldPath | None = None
    """The path of the name of a PriorityClass, outside of the pod templates."""

    managed_by: FieldPath | None = None
    """The path of the name of the controller that is to run the job."""

    controller: str = ""
    """What stands there for the kind's own controller."""

    creates: Annotated[
        tuple[Annotated[str, AfterValidator(_check_created_kind)], ...], AfterValidator(reject_duplicates)
    ] = ()
    """The kinds that its controller makes, as `Pod` or `Job.batch`; absent: any. An object of another kind
    that claims to be made by such a job waits on its own."""

    @property
    def framework(self) -> str:
        """What the kind is called where kinds are listed."""
        return f"{self.group}/{self.kind.lower()}"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.managed_by is None) == bool(self.controller):
            raise ValueError("managedBy and controller go together: set both or none")
        names = [one.name for one in self.pod_sets if one.name is not None]
        try:
            reject_duplicates(tuple(names))
        except ValueError as error:
            raise ValueError(f"podSets: {error}") from None
        return self
