"""The objects of a cluster that the checks and the plan use, as pure values."""

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
    """A configuration file in a ConfigMap that pods of the manager in charge mount."""

    place: str
    """The ConfigMap, and the key in it."""
    document: Mapping[str, Any]
    """The parsed YAML of the file."""


@dataclass(frozen=True)
class Cluster:
    """The objects that are checked before a take-over, as JSON, by the plural of their kind."""

    names: Names
    definitions: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    """CustomResourceDefinitions of the group, by plural."""
    objects: Mapping[str, tuple[JsonObject, ...]] = field(default_factory=dict[str, tuple[JsonObject, ...]])
    older: Mapping[str, tuple[JsonObject, ...]] = field(default_factory=dict[str, tuple[JsonObject, ...]])
    """Objects in the older version, of kinds that lost fields in the newer version."""
    webhooks: tuple[JsonObject, ...] = ()
    """Webhook configurations with a webhook of the group, without those of admitq."""
    deployments: tuple[JsonObject, ...] = ()
    """Deployments with pods that serve those webhooks or hold the lease, without those of admitq."""
    own_deployments: tuple[JsonObject, ...] = ()
    """Deployments of an existing installation of admitq."""
    leases: tuple[JsonObject, ...] = ()
    """Leases of the group's managers, unless admitq holds them."""
    configurations: tuple[FoundConfiguration, ...] = ()
    api_services: tuple[str, ...] = ()
    """Names of APIServices of the group's visibility API."""
    unread: tuple[str, ...] = ()
    """The resources that could not be read, each with the reason."""

    def each(self, plural: str) -> Iterator[tuple[str, JsonObject]]:
        """Yield the objects of a kind, each with its reference for the plan."""
        return ((object_reference(plural, obj), obj) for obj in self.objects.get(plural, ()))

    @property
    def namespace(self) -> str:
        """The namespace of the manager in charge; the default of the group if it is unknown."""
        for obj in (*self.deployments, *self.leases):
            if namespace := value_at(obj, ("metadata", "namespace")):
                return str(namespace)
        return self.names.default_namespace

    def versions(self, plural: str) -> tuple[str, ...]:
        """Return the stored versions of a kind."""
        return tuple(value_at(self.definitions.get(plural), ("status", "storedVersions"), ()) or ())

    @property
    def all_stored_versions(self) -> tuple[str, ...]:
        """The stored versions of all kinds."""
        return tuple(sorted({version for plural in self.definitions for version in self.versions(plural)}))

    @property
    def served_versions(self) -> tuple[str, ...]:
        """The served versions of all kinds."""
        return tuple(
            sorted(
                {
                    str(version.get("name"))
                    for definition in self.definitions.values()
                    for version in value_at(definition, ("spec", "versions"), ()) or ()
                    if version.get("served")
                }
            )
        )

    @cached_property
    def configured(self) -> tuple[tuple[FoundConfiguration, Configuration | ConfigurationError], ...]:
        """Each configuration file, loaded as admitq would load it, or the error."""
        return tuple((file, _loaded(file, self.names)) for file in self.configurations)

    @property
    def gates(self) -> Mapping[str, bool]:
        """The feature gates that the configuration files or the flag set."""
        gates_set: dict[str, bool] = {}
        for file in self.configurations:
            gates = file.document.get("featureGates")
            if isinstance(gates, Mapping):
                gates_set |= {str(name): bool(on) for name, on in gates.items()}
        for deployment in self.deployments:
            words = arguments(deployment)
            for word, following in zip(words, [*words[1:], ""], strict=False):
                flag, equals_sign, text = word.partition("=")
                if flag == FLAG:
                    pairs = (
                        pair.partition("=")
                        for pair in (text if equals_sign else following).split(",")
                        if pair
                    )
                    gates_set |= {name: value.lower() in {"true", "t", "1"} for name, _, value in pairs}
        return gates_set

    @property
    def known_gates(self) -> Mapping[str, bool]:
        """The gates among ``gates`` that admitq knows."""
        return {name: on for name, on in self.gates.items() if name in GATES}


def _loaded(file: FoundConfiguration, names: Names) -> Configuration | ConfigurationError:
    import yaml  # noqa: PLC0415 needed only for clusters with a configuration file

    document = {"apiGroup": names.group, **file.document}
    if isinstance(gates := document.get("featureGates"), Mapping):
        # Another check reports unknown gates.
        document["featureGates"] = {name: on for name, on in gates.items() if name in GATES}
    try:
        return load_configuration(yaml.safe_dump(document))
    except ConfigurationError as error:
        return error


def readable_version(definition: JsonObject) -> str | None:
    """Return the version in which to read objects of a definition; None if it serves no known version."""
    versions: Iterable[Any] = value_at(definition, ("spec", "versions"), ()) or ()
    served = {version.get("name") for version in versions if version.get("served")}
    return next((version for version in (NEWER, OLDER) if version in served), None)


def belongs_to_admitq(obj: JsonObject) -> bool:
    """Whether an object belongs to an installation of admitq."""
    return value_at(obj, PART_OF) == "admitq"


def object_reference(plural: str, obj: JsonObject) -> str:
    """Return the reference of an object for the plan, as kubectl accepts it."""
    namespace = value_at(obj, ("metadata", "namespace"))
    name = value_at(obj, ("metadata", "name"), "?")
    return f"{plural}/{name}" + (f" in {namespace}" if namespace else "")


def containers(deployment: JsonObject) -> Iterator[JsonObject]:
    """Yield the containers of a Deployment's pods."""
    listed: Iterable[Any] = value_at(deployment, ("spec", "template", "spec", "containers"), ()) or ()
    return (container for container in listed if isinstance(container, dict))


def arguments(deployment: JsonObject) -> list[str]:
    """Return the words of the command lines of a Deployment's containers."""
    return [
        str(word)
        for container in containers(deployment)
        for word in (*(container.get("command") or ()), *(container.get("args") or ()))
    ]


def is_running(deployment: JsonObject) -> bool:
    """Whether a Deployment has or wants pods."""
    replicas = value_at(deployment, ("spec", "replicas"), 1)
    return bool(replicas) or bool(value_at(deployment, ("status", "replicas"), 0))


def has_true_condition(obj: JsonObject, condition: str) -> bool:
    """Whether a condition of an object is True."""
    return any(
        item.get("type") == condition and item.get("status") == "True"
        for item in value_at(obj, ("status", "conditions"), ()) or ()
    )
