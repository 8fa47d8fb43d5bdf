"""Counts of API calls by verb, resource and code, from metrics of the API server and of admitq."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

_SERIES: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

_REQUESTS: Final = "apiserver_request_total"
_OWN_REQUESTS: Final = "apiserver_selfrequest_total"
_WATCH_BYTES: Final = "apiserver_watch_events_sizes_sum"
_REVIEWS: Final = "apiserver_admission_webhook_admission_duration_seconds_count"

_VERBS: Final = {"POST": "create", "PUT": "update"}
WRITE_VERBS: Final = frozenset({"create", "update", "patch", "apply", "delete", "deletecollection"})
"""The verbs of calls that change objects."""

CONTROLLER_MANAGER: Final = "controller_manager"
SCHEDULER: Final = "scheduler"
KWOK: Final = "kwok"

CALLS_OF_COMPONENTS: Final[Mapping[tuple[str, str], str]] = {
    ("create", "pods"): CONTROLLER_MANAGER,
    ("update", "jobs.batch/status"): CONTROLLER_MANAGER,
    ("create", "events"): CONTROLLER_MANAGER,
    ("patch", "events"): CONTROLLER_MANAGER,
    ("create", "pods/binding"): SCHEDULER,
    ("create", "events.events.k8s.io"): SCHEDULER,
    ("patch", "events.events.k8s.io"): SCHEDULER,
    ("patch", "pods/status"): KWOK,
}
"""Writes of the components while there is room for all pods, by verb and resource.

Their metrics do not name the resources of calls. No two of them send the same writes.
"""

_NO_RESOURCE: Final = "-"


class ApiCallKey(NamedTuple):
    """Calls of one verb, resource (`plural.group/subresource`) and code."""

    verb: str
    resource: str
    code: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource} {self.code}"

    @property
    def is_write(self) -> bool:
        """Whether such calls change objects."""
        return self.verb in WRITE_VERBS


class MetricSample(NamedTuple):
    """One line of the Prometheus text format."""

    name: str
    labels: Mapping[str, str]
    value: float


class ApiServerCounts(NamedTuple):
    """What an API server has counted since its start.

    Attributes:
        calls: all answered calls. Watches count when they end.
        own_calls: the calls that it sent to itself, without codes.
        watch_bytes: bytes of all watch events that it wrote to clients, before TLS.
        reviews: calls of webhooks, by the name of the webhook and the operation.
    """

    calls: Counter[ApiCallKey]
    own_calls: Counter[tuple[str, str]]
    watch_bytes: float
    reviews: Counter[tuple[str, str]]


def samples(text: str, names: Iterable[str]) -> Iterator[MetricSample]:
    """Yield the samples of some metrics from a text in the Prometheus format."""
    chosen = tuple(names)
    for line in text.splitlines():
        # Thousands of lines have other names.
        if line.startswith(chosen) and (found := _SERIES.match(line)) and found[1] in chosen:
            yield MetricSample(found[1], dict(_LABEL.findall(found[2] or "")), float(found[3]))


def read_api_server(text: str) -> ApiServerCounts:
    """Read the metrics of an API server."""
    counts = ApiServerCounts(Counter(), Counter(), 0.0, Counter())
    watch_bytes = 0.0
    for sample in samples(text, (_REQUESTS, _OWN_REQUESTS, _WATCH_BYTES, _REVIEWS)):
        if sample.name == _WATCH_BYTES:
            watch_bytes += sample.value
            continue
        if sample.name == _REVIEWS:
            counts.reviews[sample.labels["name"], sample.labels["operation"].lower()] += int(sample.value)
            continue
        verb, resource = _verb(sample.labels["verb"]), _resource(sample.labels)
        if sample.name == _REQUESTS:
            counts.calls[ApiCallKey(verb, resource, sample.labels["code"])] += int(sample.value)
        else:
            counts.own_calls[verb, resource] += int(sample.value)
    return counts._replace(watch_bytes=watch_bytes)


def read_program(text: str, metric: str) -> Counter[ApiCallKey]:
    """Read the calls that a program of admitq has counted, from its metrics."""
    counts: Counter[ApiCallKey] = Counter()
    for sample in samples(text, (metric,)):
        labels = sample.labels
        key = ApiCallKey(labels["verb"], labels["resource"] or _NO_RESOURCE, labels["code"])
        counts[key] += int(sample.value)
    return counts


def since(before: ApiServerCounts, after: ApiServerCounts) -> ApiServerCounts:
    """Return what was counted between two readings."""
    return ApiServerCounts(
        after.calls - before.calls,
        after.own_calls - before.own_calls,
        after.watch_bytes - before.watch_bytes,
        after.reviews - before.reviews,
    )


def without_own_calls(calls: Counter[ApiCallKey], own: Counter[tuple[str, str]]) -> Counter[ApiCallKey]:
    """Return calls without those that the API server sent to itself, which it counts without codes.

    They are taken from successful calls first.
    """
    remaining, to_remove = +calls, Counter(own)
    for key in sorted(calls, key=lambda key: (key.code, key)):
        removed = min(remaining[key], to_remove[key.verb, key.resource])
        remaining[key] -= removed
        to_remove[key.verb, key.resource] -= removed
    return +remaining


def by_writer(
    total: Counter[ApiCallKey], known: Mapping[str, Counter[ApiCallKey]], rest: str
) -> dict[str, Counter[ApiCallKey]]:
    """Return the calls of each caller: those of known callers, and the rest of the total.

    Args:
        total: the calls that the API server counted.
        known: the calls that callers counted themselves.
        rest: the name of the other callers.
    """
    remaining = Counter(total)
    for counts in known.values():
        remaining -= counts
    return {**known, rest: remaining}


def by_component(
    calls: Counter[ApiCallKey], rest: str, components: Mapping[tuple[str, str], str] = CALLS_OF_COMPONENTS
) -> dict[str, Counter[ApiCallKey]]:
    """Return the calls of each component, and the others as those of `rest`.

    Args:
        calls: the calls of all callers that do not count their calls.
        rest: the name of the callers of all other calls.
        components: the only component that sends calls with a verb and a resource.
    """
    result: dict[str, Counter[ApiCallKey]] = {}
    for key, count in calls.items():
        component = components.get((key.verb, key.resource), rest)
        result.setdefault(component, Counter())[key] = count
    return result


def _verb(label: str) -> str:
    return _VERBS.get(label, label.lower())


def _resource(labels: Mapping[str, str]) -> str:
    plural, group, sub = (labels.get(name, "") for name in ("resource", "group", "subresource"))
    if not plural:
        return _NO_RESOURCE
    full = f"{plural}.{group}" if group else plural
    return f"{full}/{sub}" if sub else full
