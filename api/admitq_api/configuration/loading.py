"""Load and validate the configuration file. Each error names the path of the field and a remedy."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Final, cast

import orjson
import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from admitq_api.configuration.fields import get_wire_name, list_sections
from admitq_api.configuration.root import (
    KIND,
    Configuration,
    ConfigurationError,
    select_all_namespaces_except,
)
from admitq_api.configuration.v1beta1 import REMEDIES, convert_to_v1beta2
from admitq_api.labels import DEFAULT_GROUP, GROUPS, ApiGroup, Names, names_for


def load_configuration(text: str, *, service_account_namespace: str = "") -> Configuration:
    """Load a configuration file.

    Args:
        text: the file as YAML or JSON. An empty text means the defaults.
        service_account_namespace: the namespace of the service account of the process, if it has one. It is
            the default of `namespace`.

    Raises:
        ConfigurationError: the file is invalid. The error has the path of each invalid field and a remedy.
    """
    document = _without_default_values(_parse(text))
    names = names_for(_find_group(document))
    if document:
        _require_api_version_and_kind(document, names)
    switched_off: tuple[str, ...] = ()
    if document.get("apiVersion") in names.config_api_versions[1:]:
        older = convert_to_v1beta2(document, names.config_api_version)
        document, switched_off = older.document, older.switched_off
    with_defaults = _merge(_create_defaults(names, service_account_namespace, document), document)
    try:
        configuration = Configuration.model_validate_json(orjson.dumps(with_defaults))
    except ValidationError as error:
        raise ConfigurationError(_format_problem(details) for details in error.errors()) from None
    fields = {get_wire_name(name, field): name for name, field in Configuration.model_fields.items()}
    return configuration.model_copy(update={fields[name]: None for name in switched_off})


def _find_group(document: Mapping[str, Any]) -> ApiGroup:
    """Return the API group that the file names, or that of its apiVersion, or the default group."""
    for group in GROUPS:
        if document.get("apiGroup") == group:
            return group
    for group in GROUPS:
        if document.get("apiVersion") in names_for(group).config_api_versions:
            return group
    return DEFAULT_GROUP


def _require_api_version_and_kind(document: Mapping[str, Any], names: Names) -> None:
    missing = [
        f"{field}: is required: write {value}"
        for field, value in (("apiVersion", names.config_api_version), ("kind", KIND))
        if field not in document
    ]
    if missing:
        raise ConfigurationError(missing)


def _create_defaults(
    names: Names, service_account_namespace: str, document: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the defaults that depend on the API group and the namespace."""
    chosen = document.get("namespace")
    namespace = chosen if isinstance(chosen, str) else service_account_namespace or names.default_namespace
    defaults: dict[str, Any] = {
        "apiVersion": names.config_api_version,
        "apiGroup": names.group,
        "namespace": namespace,
        "leaderElection": {"resourceName": names.lease_name, "resourceNamespace": namespace},
        "internalCertManagement": {
            "webhookServiceName": names.webhook_objects.service,
            "webhookSecretName": names.webhook_objects.secret,
            "mutatingWebhookConfigurationName": names.webhook_objects.mutating_configuration,
            "validatingWebhookConfigurationName": names.webhook_objects.validating_configuration,
        },
        "multiKueue": {"dispatcherName": names.dispatcher_all_at_once},
        "visibilityServer": {
            "serviceName": names.visibility_service,
            "secretName": names.visibility_secret,
        },
    }
    if "managedJobsNamespaceSelector" not in document:
        defaults["managedJobsNamespaceSelector"] = select_all_namespaces_except(namespace)
    return defaults


def _merge(defaults: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    result = {**defaults, **document}
    for key, value in defaults.items():
        if isinstance(value, Mapping) and isinstance(document.get(key), Mapping):
            result[key] = _merge(cast("Mapping[str, Any]", value), document[key])
    return result


class _StrictLoader(yaml.CSafeLoader):
    """A loader that refuses duplicate keys. YAML would silently use the last of them."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value]
        for key, _ in node.value:
            if keys.count(key.value) > 1:
                raise yaml.MarkedYAMLError(
                    problem=f"{key.value}: occurs twice; remove one", problem_mark=key.start_mark
                )
        return super().construct_mapping(node, deep)


def _parse(text: str) -> dict[str, Any]:
    try:
        loaded = yaml.load_all(text, Loader=_StrictLoader)
        documents = [document for document in loaded if document is not None]
        plain = orjson.loads(orjson.dumps(documents))
    except yaml.YAMLError as error:
        raise ConfigurationError([f"the file is not YAML: {' '.join(str(error).split())}"]) from None
    except TypeError as error:
        raise ConfigurationError([f"the file has a value that JSON does not support: {error}"]) from None
    if len(plain) > 1:
        raise ConfigurationError(["the file has several documents: keep one"])
    if plain and not isinstance(plain[0], dict):
        raise ConfigurationError(["the file is not an object with fields like apiVersion and kind"])
    return _without_nulls(plain[0]) if plain else {}


def _without_nulls(value: Any) -> Any:
    """Return a value without fields that are null: Kubernetes treats them as absent."""
    if isinstance(value, dict):
        return {
            key: _without_nulls(inner)
            for key, inner in cast("dict[str, Any]", value).items()
            if inner is not None
        }
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in cast("list[Any]", value)]
    return value


ABSENT_IF_EMPTY: Final = (
    "namespace",
    "webhook.certDir",
    "health.readinessEndpointName",
    "health.livenessEndpointName",
    "leaderElection.resourceLock",
    "leaderElection.resourceName",
    "internalCertManagement.webhookServiceName",
    "internalCertManagement.webhookSecretName",
    "waitForPodsReady.requeuingStrategy.timestamp",
    "multiKueue.origin",
    "multiKueue.dispatcherName",
    "visibilityServer.serviceName",
    "visibilityServer.secretName",
    "resources.quotaCheckStrategy",
    "tls.minVersion",
)
ABSENT_IF_ZERO: Final = (
    "leaderElection.leaseDuration",
    "leaderElection.renewDeadline",
    "leaderElection.retryPeriod",
)
"""Fields that some programs write as empty or zero to request the default."""


def _without_default_values(document: dict[str, Any]) -> dict[str, Any]:
    """Remove empty and zero fields that request their default."""
    for paths, zeroes in ((ABSENT_IF_EMPTY, ("",)), (ABSENT_IF_ZERO, ("0", "0s"))):
        for path in paths:
            *sections, last = path.split(".")
            place: Any = document
            for section in sections:
                place = cast("dict[str, Any]", place).get(section) if isinstance(place, dict) else None
            if isinstance(place, dict) and cast("dict[str, Any]", place).get(last) in zeroes:
                del place[last]
    return document


def _format_problem(details: ErrorDetails) -> str:
    path = _format_path(details["loc"])
    match details["type"]:
        case "extra_forbidden" if path in REMEDIES:
            return f"{path}: {REMEDIES[path]}"
        case "extra_forbidden":
            alike = get_close_matches(str(details["loc"][-1]), _list_field_names(Configuration), n=1)
            hint = f"did you mean {alike[0]}?" if alike else "remove it"
            return f"{path}: unknown field: {hint}"
        case "missing":
            return f"{path}: is required"
        case "value_error":
            text = details["msg"].removeprefix("Value error, ")
            return f"{path}: {text}" if path else text
        case _:
            text = details["msg"].replace("Input should be", "must be").replace(repr(timedelta(0)), "0s")
            shown = orjson.dumps(details["input"], default=str).decode()
            return f"{path}: {shown}: {text}"


def _format_path(location: Sequence[str | int]) -> str:
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path


def _list_field_names(model: type[BaseModel]) -> list[str]:
    return sorted({name for section in list_sections(model) for name in _list_wire_names(section)})


def _list_wire_names(model: type[BaseModel]) -> Iterator[str]:
    return (get_wire_name(name, field) for name, field in model.model_fields.items())
