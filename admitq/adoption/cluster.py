"""What was read of a cluster, as it is looked at: no calls, no clock."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from admitq_api.configuration import Configuration, ConfigurationError, load_configuration
from admitq_api.feature_gates import Gate
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.labels import Names

FLAG = "--feature-gates"

PART_OF = ("metadata", "labels", "app.kubernetes.io/part-of")

NEWER, OLDER = "v1beta2", "v1beta1"

GATES = frozenset(gate.value for gate in Gate)
"""Names of all feature gates."""


@dataclass(frozen=True)
class FoundConfiguration:
    """A configuration file that pods of the manager in charge are given."""

    place: str
    """The ConfigMap and the entry in it."""
    given: Mapping[str, Any]
    """The file, read as YAML."""


@dataclass(frozen=True)
class Cluster:
    """Everything that is looked at before a take-over.

    Objects are as the API server sent them, by the plural of their kind.
    """

    names: Names
    definitions: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    """CustomResourceDefinitions of the group, by plural."""
    objects: Mapping[str, tuple[JsonObject, ...]] = field(default_factory=dict[str, tuple[JsonObject, ...]])
    older: Mapping[str, tuple[JsonObject, ...]] = field(default_factory=dict[str, tuple[JsonObject, ...]])
    """Objects of kinds that had fields in the older version which the newer one has not, in that version."""
    webhooks: tuple[JsonObject, ...] = ()
    """Webhook configurations with a webhook of the group; none of ours."""
    deployments: tuple[JsonObject, ...] = ()
    """Deployments whose pods answer those webhooks or conversions, or hold the lease; none of ours."""
    ours: tuple[JsonObject, ...] = ()
    """Deployments of an installation of admitq that is there already."""
    leases: tuple[JsonObject, ...] = ()
    """Leases of the name that managers of the group compete for, unless one of ours holds it."""
    configurations: tuple[FoundConfiguration, ...] = ()
    api_services: tuple[str, ...] = ()
    """Names of aggregated APIs of the group's pending workloads."""
    unread: tuple[str, ...] = ()
    """What could not be read, each with the reason."""

    def each(self, plural: str) -> Iterator[tuple[str, JsonObject]]:
        """The objects of a kind, each with how it is called in the plan."""
        return ((object_reference(plural, one), one) for one in self.objects.get(plural, ()))

    @property
    def namespace(self) -> str:
        """Where the manager in charge runs, as far as it is known."""
        for one in (*self.deployments, *self.leases):
            if namespace := value_at(one, ("metadata", "namespace")):
                return str(namespace)
        return self.names.default_namespace

    def versions(self, plural: str) -> tuple[str, ...]:
        """The versions in which objects of a kind are stored."""
        return tuple(value_at(self.definitions.get(plural), ("status", "storedVersions"), ()) or ())

    @property
    def all_stored_versions(self) -> tuple[str, ...]:
        """The versions in which objects of any kind are stored."""
        return tuple(sorted({version for plural in self.definitions for version in self.versions(plural)}))

    @property
    def served_versions(self) -> tuple[str, ...]:
        """The versions that any kind is served in."""
        return tuple(
            sorted(
                {
                    str(version.get("name"))
                    for one in self.definitions.values()
                    for version in value_at(one, ("spec", "versions"), ()) or ()
                    if version.get("served")
                }
            )
        )

    @cached_property
    def configured(self) -> tuple[tuple[FoundConfiguration, Configuration | ConfigurationError], ...]:
        """Each configuration file, read as admitq would read it, or why it cannot."""
        return tuple((one, _loaded(one, self.names)) for one in self.configurations)

    @property
    def gates(self) -> Mapping[str, bool]:
        """The feature gates that are set, in a file or by the flag."""
        found: dict[str, bool] = {}
        for one in self.configurations:
            gates = one.given.get("featureGates")
            if isinstance(gates, Mapping):
                found |= {str(name): bool(on) for name, on in gates.items()}
        for deployment in self.deployments:
            words = arguments(deployment)
            for word, following in zip(words, [*words[1:], ""], strict=False):
                flag, given, text = word.partition("=")
                if flag == FLAG:
                    pairs = (one.partition("=") for one in (text if given else following).split(",") if one)
                    found |= {name: value.lower() in {"true", "t", "1"} for name, _, value in pairs}
        return found

    @property
    def known_gates(self) -> Mapping[str, bool]:
        """Those of them that admitq knows."""
        return {name: on for name, on in self.gates.items() if name in GATES}


def _loaded(one: FoundConfiguration, names: Names) -> Configuration | ConfigurationError:
    import yaml  # noqa: PLC0415 only where there is something to read

    given = {"apiGroup": names.group, **one.given}
    if isinstance(gates := given.get("featureGates"), Mapping):
        # Unknown ones are told of by themselves.
        given["featureGates"] = {name: on for name, on in gates.items() if name in GATES}
    try:
        return load_configuration(yaml.safe_dump(given))
    except ConfigurationError as error:
        return error


def readable_version(definition: JsonObject) -> str | None:
    """The version in which objects of a definition are read; None where it serves none that is known."""
    versions: Iterable[Any] = value_at(definition, ("spec", "versions"), ()) or ()
    served = {one.get("name") for one in versions if one.get("served")}
    return next((one for one in (NEWER, OLDER) if one in served), None)


def is_ours(obj: JsonObject) -> bool:
    """Whether an object belongs to an installation of admitq."""
    return value_at(obj, PART_OF) == "admitq"


def object_reference(plural: str, obj: JsonObject) -> str:
    """How an object is called in the plan: as kubectl would take it."""
    namespace = value_at(obj, ("metadata", "namespace"))
    name = value_at(obj, ("metadata", "name"), "?")
    return f"{plural}/{name}" + (f" in {namespace}" if namespace else "")


def containers(deployment: JsonObject) -> Iterator[JsonObject]:
    """The containers of a Deployment's pods."""
    found: Iterable[Any] = value_at(deployment, ("spec", "template", "spec", "containers"), ()) or ()
    return (one for one in found if isinstance(one, dict))


def arguments(deployment: JsonObject) -> list[str]:
    """Command lines of a Deployment's containers, word by word."""
    return [
        str(word)
        for one in containers(deployment)
        for word in (*(one.get("command") or ()), *(one.get("args") or ()))
    ]


def is_running(deployment: JsonObject) -> bool:
    """Whether a Deployment has pods, or is to have some."""
    wanted = value_at(deployment, ("spec", "replicas"), 1)
    return bool(wanted) or bool(value_at(deployment, ("status", "replicas"), 0))


def has_true_condition(obj: JsonObject, condition: str) -> bool:
    """Whether a condition of an object is True."""
    return any(
        one.get("type") == condition and one.get("status") == "True"
        for one in value_at(obj, ("status", "conditions"), ()) or ()
    )
