"""Job kinds that are defined in the configuration file, without code.

This module creates their records. admitq treats them like kinds that have code.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from admitq.integrations.base import (
    Delegation,
    Integration,
    JobLifecycle,
    JobOutcome,
    KindOwnership,
    PodSetTemplate,
    PodTemplates,
    Scaling,
    return_none,
)
from admitq.integrations.job_fields import count_pods, find_condition
from admitq.integrations.list_paths import get_element_path, list_element_indexes
from admitq.integrations.pod_templates import clean_pod_template
from admitq.integrations.references import OwnerKind
from admitq.integrations.registry import load_integrations, select_enabled
from admitq_api.configuration import Configuration, ConfigurationError
from admitq_api.configuration.custom_kinds import CustomKind, CustomPodSet, OutcomeSign, StatusSign
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
from admitq_api.path_notation import EACH_ELEMENT, POD_SET_NAME, parse_path


def create_integration(declared: CustomKind) -> Integration:
    """Return the record of a declared kind."""
    kind = _CustomJobs(declared)
    return Integration(
        framework=declared.framework,
        group=declared.group,
        version=declared.version,
        kind=declared.kind,
        plural=declared.plural,
        list_pod_sets=kind.list_pod_sets,
        find_outcome=kind.find_outcome,
        is_active=_match_any(declared.active),
        are_pods_ready=_match_any(declared.ready),
        templates=PodTemplates(
            pod_sets_field=", ".join(pod_set.template for pod_set in declared.pod_sets),
            find_priority_class=kind.find_priority_class if declared.priority_class else return_none,
        ),
        lifecycle=JobLifecycle(
            is_on_hold=_match_any(declared.on_hold),
            suspend_path=parse_path(declared.suspend),
        ),
        scaling=Scaling(
            with_pod_counts=kind.with_pod_counts
            if any(pod_set.min_count for pod_set in declared.pod_sets)
            else None,
            count_reclaimable_pods=kind.count_reclaimable_pods
            if any(pod_set.reclaimable for pod_set in declared.pod_sets)
            else return_none,
        ),
        ownership=KindOwnership(created_kinds=frozenset(map(_parse_created_kind, declared.creates)) or None),
        delegation=Delegation(
            managed_by_path=parse_path(declared.managed_by) if declared.managed_by else None,
            own_controller=declared.controller,
        ),
    )


def load_custom_integrations(configuration: Configuration) -> tuple[Integration, ...]:
    """Return the records of all kinds that a configuration file defines.

    Raises:
        ConfigurationError: a kind exists already, or is one of admitq's API.
    """
    external = map(OwnerKind.parse, configuration.integrations.external_frameworks)
    return create_integrations(configuration.integrations.custom, load_integrations(), external)


def load_enabled_and_all_kinds(
    configuration: Configuration, gates: FeatureGates
) -> tuple[tuple[Integration, ...], tuple[Integration, ...]]:
    """Return the enabled job kinds, and all job kinds.

    Raises:
        ConfigurationError: a kind of the configuration exists already, or is one of admitq's API.
    """
    custom = load_custom_integrations(configuration)
    return (*select_enabled(configuration.integrations.frameworks, gates), *custom), (
        *load_integrations(),
        *custom,
    )


def create_integrations(
    declared: Sequence[CustomKind], known: Iterable[Integration], external: Iterable[OwnerKind] = ()
) -> tuple[Integration, ...]:
    """Return the records of declared kinds.

    Args:
        declared: ``integrations.custom``.
        known: the existing kinds.
        external: kinds that another controller queues.

    Raises:
        ConfigurationError: a kind exists already, or is one of admitq's API.
    """
    conflicts = {
        key: f"{kind.kind} of {kind.group or 'the core API'}, which admitq knows: remove it, "
        f"and name {kind.framework} in integrations.frameworks"
        for kind in known
        for key in _list_identities(kind.group, kind.kind, kind.plural)
    }
    for owner in external:
        conflicts[owner.group, owner.kind] = (
            f"{owner.kind} of {owner.group}, which integrations.externalFrameworks lists: remove one"
        )
    problems: list[str] = []
    for index, kind in enumerate(declared):
        place = f"integrations.custom[{index}]"
        keys = _list_identities(kind.group, kind.kind, kind.plural)
        if kind.group in GROUPS:
            problems.append(f"{place}.group: {kind.group!r} has no jobs: write the group of a kind of jobs")
        elif clash := next((conflicts[key] for key in keys if key in conflicts), None):
            problems.append(f"{place}: is {clash}")
        for key in keys:
            conflicts.setdefault(key, f"{kind.kind} of {kind.group}, like {place}: remove one")
    if problems:
        raise ConfigurationError(problems)
    return tuple(map(create_integration, declared))


def _list_identities(group: str, kind: str, plural: str) -> tuple[tuple[str, str], ...]:
    """Return the identities that must be unique among kinds, whatever their versions.

    Webhook paths contain hyphens instead of the dots of groups. Kinds begin with a capital letter, so that
    the identities do not collide with each other.
    """
    return (group, kind), (group, plural), (group.replace(".", "-"), kind.lower())


def _parse_created_kind(name: str) -> tuple[str, str]:
    kind, _, group = name.partition(".")
    return group, kind


# --- signs of a job's state -------------------------------------------------------------------------


def _match_any(signs: Sequence[StatusSign]) -> Callable[[JsonObject], bool]:
    return lambda job: any(_matches(sign, job) for sign in signs)


def _matches(sign: StatusSign, job: JsonObject) -> bool:
    if sign.field is None:
        condition = find_condition(job, sign.condition)
        return condition is not None and _is_one_of(condition.get("status"), sign.values or ("True",))
    values = _list_values(job, parse_path(sign.field))
    if sign.at_least is not None:
        least = value_at(job, parse_path(sign.at_least))
        return _is_number(least) and any(_is_number(value) and value >= least for value in values)
    return any(_is_one_of(value, sign.values) if sign.values else _is_set(value) for value in values)


def _list_values(job: Any, path: FieldPath) -> Iterator[Any]:
    """Yield the value at a path; one for each element of a list that the path contains."""
    if EACH_ELEMENT not in path:
        yield value_at(job, path)
        return
    place = path.index(EACH_ELEMENT)
    for item in as_list(value_at(job, path[:place])):
        yield value_at(item, path[place + 1 :])


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_one_of(value: Any, values: Iterable[Any]) -> bool:
    # In Python True == 1, but in JSON true and 1 are different values.
    return any(type(value) is type(allowed) and value == allowed for allowed in values)


def _is_set(value: Any) -> bool:
    return value > 0 if _is_number(value) else value is True or bool(as_text(value))


# --- pods -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CustomPods:
    """One podset of a job, with its declaration."""

    declaration: CustomPodSet
    name: str
    """The name as the job writes it. The podset has the name in lower case."""
    template_path: FieldPath
    count_path: FieldPath | None
    count: int
    min_count: int | None

    @property
    def pod_set_name(self) -> str:
        """The name of the podset in Workloads."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class _CustomJobs:
    """The functions of a declared kind."""

    declaration: CustomKind

    def _list_pods(self, job: JsonObject) -> list[_CustomPods]:
        pods: list[_CustomPods] = []
        for declared in self.declaration.pod_sets:
            for index in list_element_indexes(job, parse_path(declared.template)):
                template = _get_element_path(declared.template, index)
                if not isinstance(value_at(job, template[:-1]), Mapping):
                    continue
                count = None if declared.count is None else _get_element_path(declared.count, index)
                number = declared.default_count if count is None else value_at(job, count)
                least = (
                    None
                    if declared.min_count is None
                    else as_int(value_at(job, _get_element_path(declared.min_count, index)))
                )
                pods.append(
                    _CustomPods(
                        declaration=declared,
                        name=declared.name
                        or text_at(job, _get_element_path(declared.name_path or "", index)),
                        template_path=template,
                        count_path=count,
                        count=count_pods(number, declared.default_count),
                        min_count=least if least and least > 0 else None,
                    )
                )
        return pods

    def list_pod_sets(self, job: JsonObject, _names: Names) -> list[PodSetTemplate]:
        """Return the podsets at the declared paths. Only the last one with a minimum count keeps it."""
        pods = self._list_pods(job)
        flexible = next((entry for entry in reversed(pods) if entry.min_count is not None), None)
        return [
            PodSetTemplate(
                entry.pod_set_name,
                entry.count,
                entry.template_path,
                min(entry.min_count, entry.count) or None
                if entry is flexible and entry.min_count is not None
                else None,
                # The CRD of the kind may not validate pod templates.
                clean_pod_template(value_at(job, entry.template_path)),
            )
            for entry in pods
        ]

    def with_pod_counts(self, job: JsonObject, counts: Mapping[str, int], _names: Names) -> JsonObject:
        """Return the job with other numbers of pods."""
        changed = job
        for entry in self._list_pods(job):
            if (
                entry.count_path is not None
                and entry.declaration.min_count is not None
                and entry.pod_set_name in counts
            ):
                changed = with_value(changed, entry.count_path, counts[entry.pod_set_name])
        return changed

    def count_reclaimable_pods(self, job: JsonObject) -> Mapping[str, int]:
        """Return the numbers of reclaimable pods at the declared paths, at most the number of pods."""
        counts: dict[str, int] = {}
        for entry in self._list_pods(job):
            if entry.declaration.reclaimable is not None:
                path = tuple(
                    entry.name if step == POD_SET_NAME else step
                    for step in parse_path(entry.declaration.reclaimable)
                )
                counts[entry.pod_set_name] = min(entry.count, count_pods(value_at(job, path), 0))
        return {name: count for name, count in counts.items() if count > 0}

    def find_outcome(self, job: JsonObject) -> JobOutcome | None:
        """Return the outcome of the first sign that matches; None if none does."""
        sign = next((sign for sign in self.declaration.finished if _matches(sign, job)), None)
        return None if sign is None else JobOutcome(sign.success, _get_message(sign, job))

    def find_priority_class(self, job: JsonObject) -> str | None:
        """Return the PriorityClass that the job names."""
        return text_at(job, parse_path(self.declaration.priority_class or "")) or None


def _get_message(sign: OutcomeSign, job: JsonObject) -> str:
    if sign.message is not None:
        return text_at(job, parse_path(sign.message))
    return as_text((find_condition(job, sign.condition) or {}).get("message"))


def _get_element_path(path: str, index: int | None) -> FieldPath:
    return get_element_path(parse_path(path), index)
