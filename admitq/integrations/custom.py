"""Kinds of jobs made of what the configuration says of them, and of nothing else.

All that such a kind can do follows from the record that is made here, as it does for kinds that have code.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from admitq.integrations.base import (
    Delegation,
    Finished,
    Integration,
    JobLifecycle,
    KindOwnership,
    OwnerKind,
    PodSetTemplate,
    PodTemplates,
    Scaling,
    never,
)
from admitq.integrations.job_fields import condition, count_pods
from admitq.integrations.list_paths import elements, of_element
from admitq.integrations.pod_templates import pod_template
from admitq.integrations.registry import enabled, registered
from admitq_api.configuration import Configuration, ConfigurationError
from admitq_api.configuration.custom_kinds import CustomKind, CustomPodSet, FinishedSign, Sign
from admitq_api.feature_gates import FeatureGates
from admitq_api.json_objects import (
    FieldPath,
    JsonObject,
    as_int,
    as_list,
    as_text,
    text_at,
    value_at,
    with_value,
)
from admitq_api.labels import GROUPS, Names
from admitq_api.path_notation import EACH, NAME, steps


def integration(given: CustomKind) -> Integration:
    """The record of a kind."""
    kind = _CustomJobs(given)
    return Integration(
        framework=given.framework,
        group=given.group,
        version=given.version,
        kind=given.kind,
        plural=given.plural,
        pod_sets=kind.pod_sets,
        finished=kind.finished,
        is_active=_any_of(given.active),
        pods_ready=_any_of(given.ready),
        templates=PodTemplates(
            pod_sets_field=", ".join(one.template for one in given.pod_sets),
            priority_class=kind.priority_class if given.priority_class else never,
        ),
        lifecycle=JobLifecycle(
            is_on_hold=_any_of(given.on_hold),
            suspend_path=steps(given.suspend),
        ),
        scaling=Scaling(
            with_counts=kind.with_counts if any(one.min_count for one in given.pod_sets) else None,
            reclaimable=kind.reclaimable if any(one.reclaimable for one in given.pod_sets) else never,
        ),
        ownership=KindOwnership(creates=frozenset(map(_created, given.creates)) or None),
        delegation=Delegation(
            managed_by_path=steps(given.managed_by) if given.managed_by else None,
            own_controller=given.controller,
        ),
    )


def configured(configuration: Configuration) -> tuple[Integration, ...]:
    """The records of all kinds that a configuration file tells of.

    Raises:
        ConfigurationError: one of them is there already, or is one of our own.
    """
    external = map(OwnerKind.named, configuration.integrations.external_frameworks)
    return integrations(configuration.integrations.custom, registered(), external)


def configured_kinds(
    configuration: Configuration, gates: FeatureGates
) -> tuple[tuple[Integration, ...], tuple[Integration, ...]]:
    """Return the kinds of jobs that are enabled, and all kinds that there are.

    Raises:
        ConfigurationError: a kind of the configuration is there already, or is one of our own.
    """
    custom = configured(configuration)
    return (*enabled(configuration.integrations.frameworks, gates), *custom), (*registered(), *custom)


def integrations(
    given: Sequence[CustomKind], known: Iterable[Integration], external: Iterable[OwnerKind] = ()
) -> tuple[Integration, ...]:
    """The records of all kinds that the configuration tells of.

    Args:
        given: ``integrations.custom``.
        known: the kinds that there are already.
        external: those that somebody else queues.

    Raises:
        ConfigurationError: a kind is there already, or is one of our own.
    """
    taken = {
        key: f"{one.kind} of {one.group or 'the core API'}, which admitq knows: remove it, "
        f"and name {one.framework} in integrations.frameworks"
        for one in known
        for key in _keys(one.group, one.kind, one.plural)
    }
    for owner in external:
        taken[owner.group, owner.kind] = (
            f"{owner.kind} of {owner.group}, which integrations.externalFrameworks lists: remove one"
        )
    problems: list[str] = []
    for index, one in enumerate(given):
        place = f"integrations.custom[{index}]"
        keys = _keys(one.group, one.kind, one.plural)
        if one.group in GROUPS:
            problems.append(f"{place}.group: {one.group!r} has no jobs: write the group of a kind of jobs")
        elif clash := next((taken[key] for key in keys if key in taken), None):
            problems.append(f"{place}: is {clash}")
        for key in keys:
            taken.setdefault(key, f"{one.kind} of {one.group}, like {place}: remove one")
    if problems:
        raise ConfigurationError(problems)
    return tuple(map(integration, given))


def _keys(group: str, kind: str, plural: str) -> tuple[tuple[str, str], ...]:
    """What no two kinds may have in common, whatever their versions; kinds begin with a capital letter.

    Paths of webhooks have hyphens for the dots of groups.
    """
    return (group, kind), (group, plural), (group.replace(".", "-"), kind.lower())


def _created(name: str) -> tuple[str, str]:
    kind, _, group = name.partition(".")
    return group, kind


# --- what shows how a job stands --------------------------------------------------------------------


def _any_of(signs: Sequence[Sign]) -> Callable[[JsonObject], bool]:
    return lambda job: any(_holds(sign, job) for sign in signs)


def _holds(sign: Sign, job: JsonObject) -> bool:
    if sign.field is None:
        found = condition(job, sign.condition)
        return found is not None and _is_one_of(found.get("status"), sign.values or ("True",))
    values = _values(job, steps(sign.field))
    if sign.at_least is not None:
        least = value_at(job, steps(sign.at_least))
        return _is_number(least) and any(_is_number(value) and value >= least for value in values)
    return any(_is_one_of(value, sign.values) if sign.values else _is_something(value) for value in values)


def _values(job: Any, path: FieldPath) -> Iterator[Any]:
    """What stands at the path, of each element of a list where it leads through one."""
    if EACH not in path:
        yield value_at(job, path)
        return
    place = path.index(EACH)
    for item in as_list(value_at(job, path[:place])):
        yield value_at(item, path[place + 1 :])


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_one_of(value: Any, values: Iterable[Any]) -> bool:
    # True is 1 for Python, and is not for whoever writes a job.
    return any(type(value) is type(one) and value == one for one in values)


def _is_something(value: Any) -> bool:
    return value > 0 if _is_number(value) else value is True or bool(as_text(value))


# --- pods -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pods:
    """One podset of a job, and which of the kind's it is."""

    of: CustomPodSet
    name: str
    """As the job writes it; names of podsets are in lower case."""
    template: FieldPath
    count: FieldPath | None
    number: int
    least: int | None

    @property
    def pod_set(self) -> str:
        """Its name in Workloads."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class _CustomJobs:
    """The functions of a kind."""

    given: CustomKind

    def _pods(self, job: JsonObject) -> list[_Pods]:
        found: list[_Pods] = []
        for one in self.given.pod_sets:
            for index in elements(job, steps(one.template)):
                template = _at(one.template, index)
                if not isinstance(value_at(job, template[:-1]), Mapping):
                    continue
                count = None if one.count is None else _at(one.count, index)
                number = one.default_count if count is None else value_at(job, count)
                least = None if one.min_count is None else as_int(value_at(job, _at(one.min_count, index)))
                found.append(
                    _Pods(
                        of=one,
                        name=one.name or text_at(job, _at(one.name_path or "", index)),
                        template=template,
                        count=count,
                        number=count_pods(number, one.default_count),
                        least=least if least and least > 0 else None,
                    )
                )
        return found

    def pod_sets(self, job: JsonObject, _names: Names) -> list[PodSetTemplate]:
        """As the paths lead to them; the last that states a minimum may run with fewer pods."""
        pods = self._pods(job)
        flexible = next((one for one in reversed(pods) if one.least is not None), None)
        return [
            PodSetTemplate(
                one.pod_set,
                one.number,
                one.template,
                min(one.least, one.number) or None if one is flexible and one.least is not None else None,
                # Definitions that others wrote may let anything pass as a template.
                pod_template(value_at(job, one.template)),
            )
            for one in pods
        ]

    def with_counts(self, job: JsonObject, counts: Mapping[str, int], _names: Names) -> JsonObject:
        """The job with other numbers of pods, where it states them."""
        changed = job
        for one in self._pods(job):
            if one.count is not None and one.of.min_count is not None and one.pod_set in counts:
                changed = with_value(changed, one.count, counts[one.pod_set])
        return changed

    def reclaimable(self, job: JsonObject) -> Mapping[str, int]:
        """As the paths say, and never more pods than there are."""
        found: dict[str, int] = {}
        for one in self._pods(job):
            if one.of.reclaimable is not None:
                path = tuple(one.name if step == NAME else step for step in steps(one.of.reclaimable))
                found[one.pod_set] = min(one.number, count_pods(value_at(job, path), 0))
        return {name: count for name, count in found.items() if count > 0}

    def finished(self, job: JsonObject) -> Finished | None:
        """As the first sign says that holds."""
        sign = next((one for one in self.given.finished if _holds(one, job)), None)
        return None if sign is None else Finished(sign.success, _message(sign, job))

    def priority_class(self, job: JsonObject) -> str | None:
        """The class that the job names."""
        return text_at(job, steps(self.given.priority_class or "")) or None


def _message(sign: FinishedSign, job: JsonObject) -> str:
    if sign.message is not None:
        return text_at(job, steps(sign.message))
    return as_text((condition(job, sign.condition) or {}).get("message"))


def _at(path: str, index: int | None) -> FieldPath:
    return of_element(steps(path), index)
