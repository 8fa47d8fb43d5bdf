"""What happened to a Workload, in order: its conditions, its admission checks, and events. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from admitq.plugin.ages import format_age
from admitq.plugin.tables import safe_text
from admitq_api.conditions import parse_time
from admitq_api.json_objects import JsonObject, as_int, objects_at, text_at, value_at

TITLES: Final = ("AGE", "OBJECT", "WHAT", "REASON", "MESSAGE")


class Moment(NamedTuple):
    """Something that happened.

    Args:
        time: when, in RFC 3339.
        about: kind and name of the object.
        what: ``created``, the condition or check and its new value, or the type of an event.
        reason: the reason.
        message: the message.
        occurrences: how often an event happened; ``time`` is then the last time.
    """

    time: str
    about: str
    what: str
    reason: str = ""
    message: str = ""
    occurrences: int = 1


def moments_of(workload: JsonObject, events: Iterable[JsonObject]) -> list[Moment]:
    """Return what happened to a Workload and its jobs, the earliest first."""
    about = f"Workload/{text_at(workload, ('metadata', 'name'))}"
    moments = [Moment(text_at(workload, ("metadata", "creationTimestamp")), about, "created")]
    moments += (
        Moment(
            text_at(condition, ("lastTransitionTime",)),
            about,
            f"{text_at(condition, ('type',))}={text_at(condition, ('status',))}",
            text_at(condition, ("reason",)),
            text_at(condition, ("message",)),
        )
        for condition in objects_at(workload, ("status", "conditions"))
    )
    moments += (
        Moment(
            text_at(check, ("lastTransitionTime",)),
            about,
            f"check {text_at(check, ('name',))}={text_at(check, ('state',))}",
            "",
            text_at(check, ("message",)),
        )
        for check in objects_at(workload, ("status", "admissionChecks"))
    )
    moments += map(_moment_of_event, events)
    # Times of conditions have whole seconds. Of one second, the object exists first, then conditions change.
    return sorted(moments, key=_instant)


def _instant(moment: Moment) -> int:
    try:
        return parse_time(moment.time)
    except ValueError:
        return 0


def _moment_of_event(event: JsonObject) -> Moment:
    regarding = f"{text_at(event, ('regarding', 'kind'))}/{text_at(event, ('regarding', 'name'))}"
    time = (
        text_at(event, ("series", "lastObservedTime"))
        or text_at(event, ("eventTime",))
        or text_at(event, ("deprecatedLastTimestamp",))
        or text_at(event, ("metadata", "creationTimestamp"))
    )
    count = as_int(value_at(event, ("series", "count"))) or as_int(value_at(event, ("deprecatedCount",)), 1)
    what = f"event {text_at(event, ('type',))}"
    return Moment(
        time, regarding, what, text_at(event, ("reason",)), text_at(event, ("note",)), max(1, count)
    )


def is_about(event: JsonObject, uids: set[str]) -> bool:
    """Return whether an event is about one of these objects."""
    return text_at(event, ("regarding", "uid")) in uids


def history_rows(moments: Sequence[Moment], now: int) -> list[list[str]]:
    """Return the rows of a table of moments."""
    return [
        [
            format_age(moment.time, now) + (f" (x{moment.occurrences})" if moment.occurrences > 1 else ""),
            safe_text(moment.about),
            safe_text(moment.what),
            safe_text(moment.reason),
            safe_text(moment.message),
        ]
        for moment in moments
    ]


def history_document(moments: Sequence[Moment]) -> list[dict[str, Any]]:
    """Return moments for JSON and YAML."""
    return [moment._asdict() for moment in moments]
