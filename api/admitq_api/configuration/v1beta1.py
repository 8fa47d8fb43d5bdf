"""Conversion of configuration files from v1beta1 to v1beta2 (semantics, configuration file).

v1beta1 has other defaults than v1beta2. It enables sections by a field ``enable``; v1beta2 enables them by
their presence. Two fields of v1beta1 no longer exist in v1beta2: they are accepted and have no effect.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import orjson

from admitq_api.configuration.root import ConfigurationError
from admitq_api.configuration.sections import PREEMPTION_STRATEGIES

SWITCHED_SECTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "waitForPodsReady": {"timeout": "5m", "blockAdmission": True},
    "fairSharing": {"preemptionStrategies": list(PREEMPTION_STRATEGIES)},
}
"""The sections with a field ``enable``, and their defaults that differ from those of v1beta2."""

IGNORED_FIELDS: Final = ("queueVisibility", "integrations.podOptions")
"""Fields that v1beta2 does not have, and that v1beta1 accepts without effect."""

REMEDIES: Final[Mapping[str, str]] = {
    "waitForPodsReady.enable": (
        "is a field of v1beta1: remove it; waiting is on unless the gate DisableWaitForPodsReady is"
    ),
    "fairSharing.enable": (
        "is a field of v1beta1: remove it; fairSharing is on where it has preemptionStrategies, "
        "and off where it is not given"
    ),
    **dict.fromkeys(IGNORED_FIELDS, "is a field of v1beta1 that does nothing any more: remove it"),
}
"""Error texts for fields of v1beta1 in a file of v1beta2, by path."""


@dataclass(frozen=True, slots=True)
class ConvertedDocument:
    """A file in the form of v1beta2."""

    document: Mapping[str, Any]
    switched_off: tuple[str, ...]
    """Sections that are disabled. They are validated with the rest, and then treated as absent."""


def convert_to_v1beta2(original: Mapping[str, Any], api_version: str) -> ConvertedDocument:
    """Convert a file of v1beta1 to the version ``api_version``.

    Raises:
        ConfigurationError: a field that v1beta2 does not have has the wrong type.
    """
    document: dict[str, Any] = {**original, "apiVersion": api_version}
    off: list[str] = []
    problems: list[str] = []
    for name, defaults in SWITCHED_SECTIONS.items():
        section = document.get(name, {})
        if not isinstance(section, dict):
            continue
        fields = dict(cast("dict[str, Any]", section))
        enabled = fields.pop("enable", False)
        if not isinstance(enabled, bool):
            problems.append(f"{name}.enable: {_shown(enabled)}: must be true or false")
        if not enabled:
            off.append(name)
        document[name] = {**defaults, **fields}
    strategies = document["fairSharing"]
    if isinstance(strategies, dict) and ("fairSharing" in off or strategies["preemptionStrategies"] == []):
        strategies.update(SWITCHED_SECTIONS["fairSharing"])
    if isinstance(document.get("integrations"), dict):
        document["integrations"] = dict(document["integrations"])
    for path in IGNORED_FIELDS:
        *sections, last = path.split(".")
        place: Any = document
        for section in sections:
            place = place.get(section)
        ignored = place.pop(last, {}) if isinstance(place, dict) else {}
        if not isinstance(ignored, dict):
            problems.append(f"{path}: {_shown(ignored)}: must be an object; it does nothing: remove it")
    if problems:
        raise ConfigurationError(problems)
    return ConvertedDocument(document, tuple(off))


def _shown(value: Any) -> str:
    return orjson.dumps(value).decode()
