"""Match conditions of webhooks, in CEL: the API server only calls a webhook if all of them are true.

A call costs CPU time of the webhook, and the request waits for it. Therefore the API server does not call the
webhooks of Workloads and Jobs if they would neither change nor reject the object.

The API server rejects a request if an evaluation exceeds its cost limit. So the cost must not grow with
the object. The conditions look up keys. They iterate over labels, containers or requests only if there are
few; otherwise the webhook is called. Each step costs CPU time, too: a condition with hundreds of steps costs
as much as a call.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from admitq_api.labels import Names
from admitq_webhooks.match_conditions import jobs, pods, workloads


class _MatchCondition(NamedTuple):
    """A row of the table: a condition by its name, and the CEL expression under an API group."""

    name: str
    expression: Callable[[Names], str]


_OWN_GROUP: Final = "own"

_CONDITIONS: Final[Mapping[tuple[str, str, str], _MatchCondition]] = {
    (_OWN_GROUP, "Workload", "CREATE"): _MatchCondition(
        "with-field-to-change", workloads.has_field_to_change
    ),
    (_OWN_GROUP, "Workload", "UPDATE"): _MatchCondition("restricted-by-a-rule", workloads.may_break_rule),
    ("batch", "Job", "UPDATE"): _MatchCondition("restricted-by-a-rule", jobs.may_break_rule),
    ("", "Pod", "UPDATE"): _MatchCondition("new-or-marked", pods.is_new_or_marked),
    ("", "Pod", "marks"): _MatchCondition("marked-and-changed", pods.are_marks_changed),
    ("", "Pod", "resize"): _MatchCondition("marked-or-of-job", pods.is_marked_or_of_job),
}
"""By group and kind, and by the aspect of the webhook, if it has one. Otherwise ``UPDATE`` is for webhooks
that review updates, and ``CREATE`` for those that only review creations."""


def match_conditions(
    group: str, kind: str, operations: Collection[str], names: Names, aspect: str = ""
) -> tuple[dict[str, str], ...]:
    """Return the match conditions of the webhook for a kind, in the format of its configuration.

    ``aspect`` is the part of the kind that the webhook reviews: ``marks``, ``resize``, or all if it is empty.
    """
    of_group = _OWN_GROUP if group == names.group else group
    reviewed = aspect or ("UPDATE" if "UPDATE" in operations else "CREATE")
    condition = _CONDITIONS.get((of_group, kind, reviewed))
    if condition is None:
        return ()
    return ({"name": condition.name, "expression": condition.expression(names)},)
