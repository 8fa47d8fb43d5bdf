"""The comparison of two plays of a history: all but times, versions and generated names must be equal."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from admitq_api.conditions import Reason
from admitq_api.json_objects import JsonObject, value_at
from tests.kills.chronicle import Place, Step

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_SECONDS: Final = re.compile(r"\b\d+s\b")
_MADE_UP: Final = re.compile(r"-[0-9a-z]{5}$")
_TRANSIENT: Final = "WaitingFor"
"""Prefix of reasons that may last for less than a second. Only the last reason of a second is written. So the
speed of the machine decides which of them are recorded."""
_INCIDENTAL: Final = frozenset({"resourceVersion", "managedFields", "generation", "observedGeneration"})
"""Fields that count writes or name the writer: a repeated step may write once more."""


def placeholders(namespace: str, steps: Iterable[Step]) -> dict[str, str]:
    """The placeholder of each generated name: of the namespace, of Workloads and of all UIDs."""
    found = {namespace: "NAMESPACE"}
    workloads: dict[str, int] = {}
    for step in steps:
        if step.obj is None or step.uid in found:
            continue
        kind, name = step.place
        owners = sorted(
            f"{one['kind']} {one['name']}" for one in value_at(step.obj, ("metadata", "ownerReferences"), [])
        )
        if kind == "Workload" and owners and _MADE_UP.search(name):
            owner = owners[0]
            workloads[owner] = number = workloads.get(owner, 0) + 1
            found.setdefault(name, f"WORKLOAD {number} OF {owner}")
        found[step.uid] = f"IDENTITY OF {kind} {found.get(name, name)}"
    return found


def likeness(objects: Mapping[Place, JsonObject], names: Mapping[str, str]) -> dict[str, Any]:
    """Objects without anything that may differ between two plays."""
    return {_renamed(" ".join(place), names): _of(obj, names) for place, obj in sorted(objects.items())}


def _of(obj: JsonObject, names: Mapping[str, str]) -> Any:
    return _without(orjson.loads(_renamed(orjson.dumps(obj).decode(), names)))


def _renamed(text: str, names: Mapping[str, str]) -> str:
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, names[name])
    return _TIME.sub("TIME", text)


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        kept = ((key, item) for key, item in sorted(value.items()) if key not in _INCIDENTAL)
        return {key: "SECONDS" if key.endswith("Seconds") else _without(item) for key, item in kept}
    if isinstance(value, list):
        # The order of conditions, owners and finalizers has no meaning.
        return sorted(map(_without, value), key=orjson.dumps)
    return value


def comparable_events(events: Iterable[JsonObject], names: Mapping[str, str]) -> set[str]:
    """Events by object, type, reason and note, without their counts and without waiting reasons."""
    texts = (
        (one["regarding"]["kind"], one["regarding"]["name"], one["type"], one["reason"], one["note"])
        for one in events
        if not _is_transient(one)
    )
    return {_SECONDS.sub("SECONDS", _renamed(" ".join(one), names)) for one in texts}


def _is_transient(event: JsonObject) -> bool:
    """Whether it depends on the speed of the machine if the event is recorded.

    An event on a job follows the condition of its Workload. A Workload is pending evaluation for longer while
    no manager runs. A Workload has an event with this reason only if its reservation cannot be written.
    """
    reason, kind = event["reason"], event["regarding"]["kind"]
    return reason.startswith(_TRANSIENT) or (reason == Reason.PENDING_EVALUATION and kind != "Workload")


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """The differences of two likenesses, with their paths."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            text
            for key in sorted({*one, *other})
            for text in differences(one.get(key), other.get(key), f"{where}/{key}")
        ]
    if one == other:
        return []
    if isinstance(one, list) and isinstance(other, list):
        # Equal items are left out of the message.
        only, lacking = (
            [item for item in one if item not in other],
            [item for item in other if item not in one],
        )
        one, other = (only, lacking) if only or lacking else (one, other)
    return [f"{where}: {_short(one)} and not {_short(other)}"]


def _short(value: Any) -> str:
    return orjson.dumps(value).decode()[:2000]
