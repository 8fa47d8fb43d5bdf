"""Differences as text and as JSON values, and what viewers of a namespace do not see."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import orjson
import pytest

from admitq.core.amounts import UNLIMITED, FlavorResource
from admitq.core.asking.forecast import Delay
from admitq.core.asking.what_if import (
    AmountChange,
    Difference,
    Move,
    NodeName,
    Place,
    ShareChange,
    Stop,
)
from admitq.core.fair_sharing import Share
from admitq.core.instructions import PreemptionReason
from admitq.core.model import Admission, ObjectKey, PodSetAssignment
from admitq.translate.differences import MOST_ITEMS, MOST_LINES, DifferenceAnswer
from admitq.translate.viewers import EVERYTHING, Viewer
from tests.unit.translate.test_forecasts import NOW, forecast

W = ObjectKey("ours", "w")
SECRET = ObjectKey("theirs", "secret")
TENANT = Viewer(frozenset({"ours"}))
CPU = FlavorResource("default", "cpu")


def queue(name: str) -> NodeName:
    return NodeName(is_cohort=False, name=name)


ALL = NodeName(is_cohort=True, name="all")
VISIBLE = frozenset({queue("q"), ALL})
"""The nodes that the tenant may see."""


def admission(cluster_queue: str = "q", flavor: str = "default", count: int = 1) -> Admission:
    return Admission(cluster_queue, (PodSetAssignment("main", (("cpu", flavor),), (("cpu", 1),), count),))


def difference(**fields: Any) -> Difference:
    nothing: dict[str, Any] = {
        "admitted": {},
        "stopped": {},
        "not_admitted": (),
        "reassigned": {},
        "moves": {},
        "usage": {},
        "shares": {},
    }
    return Difference(**{**nothing, **fields})


def share(amount: int, *, infinite: bool = False) -> Share:
    return Share(infinite=infinite, amount=Fraction(amount))


SUBJECT = {"workload": {"namespace": "ours", "name": "w"}}


@pytest.mark.parametrize(
    ("fields", "lines", "json"),
    [
        pytest.param({}, ["Nothing changes."], {}, id="nothing"),
        pytest.param(
            {"admitted": {W: admission(count=3)}},
            ["Admitted:", "  workload ours/w in ClusterQueue q, 3 pods with flavor default"],
            {
                "admitted": [
                    {
                        **SUBJECT,
                        "clusterQueueName": "q",
                        "podSets": [{"name": "main", "count": 3, "flavors": {"cpu": "default"}}],
                    }
                ]
            },
            id="admitted",
        ),
        pytest.param(
            {"admitted": {W: Admission("q", (PodSetAssignment("main", (), (), 1),))}},
            ["Admitted:", "  workload ours/w in ClusterQueue q, 1 pod"],
            {
                "admitted": [
                    {
                        **SUBJECT,
                        "clusterQueueName": "q",
                        "podSets": [{"name": "main", "count": 1, "flavors": {}}],
                    }
                ]
            },
            id="admitted without flavor",
        ),
        pytest.param(
            {"stopped": {W: Stop(PreemptionReason.IN_COHORT_RECLAMATION, SECRET)}},
            ["Preempted:", "  workload ours/w by workload theirs/secret which reclaims nominal quota"],
            {
                "preempted": [
                    {
                        **SUBJECT,
                        "reason": "InCohortReclamation",
                        "preemptor": {"namespace": "theirs", "name": "secret"},
                    }
                ]
            },
            id="preempted",
        ),
        pytest.param(
            {"stopped": {W: Stop()}},
            ["Evicted from stopped queues:", "  workload ours/w"],
            {"drained": [SUBJECT]},
            id="drained",
        ),
        pytest.param(
            {"not_admitted": (W,)},
            ["Not admitted any more:", "  workload ours/w"],
            {"notAdmitted": [SUBJECT]},
            id="not admitted",
        ),
        pytest.param(
            {"reassigned": {W: (admission(), admission(flavor="spot"))}},
            [
                "Other quota:",
                "  workload ours/w: 1 pod with flavor spot instead of 1 pod with flavor default",
            ],
            {
                "reassigned": [
                    {
                        **SUBJECT,
                        "before": {
                            "clusterQueueName": "q",
                            "podSets": [{"name": "main", "count": 1, "flavors": {"cpu": "default"}}],
                        },
                        "after": {
                            "clusterQueueName": "q",
                            "podSets": [{"name": "main", "count": 1, "flavors": {"cpu": "spot"}}],
                        },
                    }
                ]
            },
            id="other flavor",
        ),
        pytest.param(
            {"moves": {W: Move(Place("q", 1), Place("q", 0))}},
            ["Positions:", "  workload ours/w: 1 instead of 2 in ClusterQueue q"],
            {
                "positions": [
                    {
                        **SUBJECT,
                        "before": {"clusterQueueName": "q", "position": 1},
                        "after": {"clusterQueueName": "q", "position": 0},
                    }
                ]
            },
            id="moved",
        ),
        pytest.param(
            {"usage": {queue("q"): {CPU: AmountChange(1000, 1500)}}},
            ["Usage:", "  ClusterQueue q: 1500m instead of 1 cpu of flavor default"],
            {
                "usage": [
                    {
                        "kind": "ClusterQueue",
                        "name": "q",
                        "flavor": "default",
                        "resource": "cpu",
                        "before": "1",
                        "after": "1500m",
                    }
                ]
            },
            id="usage",
        ),
        pytest.param(
            {
                "shares": {
                    ALL: ShareChange(None, share(5)),
                    queue("q"): ShareChange(share(2), share(1, infinite=True)),
                }
            },
            ["Shares:", "  cohort all: 5 instead of none", "  ClusterQueue q: infinite instead of 2"],
            {
                "shares": [
                    {"kind": "Cohort", "name": "all", "before": None, "after": 5},
                    {"kind": "ClusterQueue", "name": "q", "before": 2, "after": UNLIMITED},
                ]
            },
            id="shares",
        ),
    ],
)
def test_each_part_of_a_difference_has_text_and_json(
    fields: Mapping[str, Any], lines: list[str], json: Mapping[str, Any]
) -> None:
    answer = DifferenceAnswer(difference(**fields), {}, NOW)
    assert answer.lines == lines
    assert {name: value for name, value in answer.json.items() if value} == json
    orjson.dumps(answer.json)


@pytest.mark.parametrize(
    ("move", "text"),
    [
        (Move(None, Place("q", 0)), "1 in ClusterQueue q"),
        (Move(Place("q", 0), None), "not pending any more"),
        (Move(Place("p", 4), Place("q", 0)), "1 in ClusterQueue q instead of 5 in p"),
    ],
)
def test_move_states_both_places(move: Move, text: str) -> None:
    answer = DifferenceAnswer(difference(moves={W: move}), {}, NOW)
    assert answer.lines == ["Positions:", f"  workload ours/w: {text}"]


def test_other_quota_names_both_cluster_queues() -> None:
    answer = DifferenceAnswer(difference(reassigned={W: (admission("p"), admission())}), {}, NOW)
    assert answer.lines[1] == (
        "  workload ours/w: in ClusterQueue q, 1 pod with flavor default "
        "instead of in ClusterQueue p, 1 pod with flavor default"
    )


def test_starts_show_delays() -> None:
    answer = DifferenceAnswer(difference(), {W: Delay(forecast(5, 5), forecast(9, 9))}, NOW)
    assert answer.lines == [
        "Starts:",
        (
            "  workload ours/w: 4m later, about 2023-11-14T22:22:20Z (p50, in 9m), "
            "not before 2023-11-14T22:22:20Z"
        ),
    ]
    (start,) = answer.json["starts"]
    assert (start["workload"], start["seconds"]) == ({"namespace": "ours", "name": "w"}, 240)


FULL = difference(
    admitted={W: admission(), SECRET: admission("hidden")},
    stopped={
        SECRET: Stop(PreemptionReason.IN_CLUSTER_QUEUE, SECRET),
        W: Stop(PreemptionReason.IN_COHORT_FAIR_SHARING, SECRET),
    },
    not_admitted=(SECRET, ObjectKey("theirs", "secret-2")),
    reassigned={SECRET: (admission("hidden"), admission("q"))},
    moves={SECRET: Move(Place("hidden", 1), None)},
    usage={queue("hidden"): {CPU: AmountChange(0, 1)}, ALL: {CPU: AmountChange(0, 1)}},
    shares={queue("hidden"): ShareChange(None, None), queue("q"): ShareChange(None, share(1))},
)


def test_viewer_of_a_namespace_sees_no_names_of_others() -> None:
    answer = DifferenceAnswer(FULL, {}, NOW, TENANT, VISIBLE)
    shown = "\n".join(answer.lines) + orjson.dumps(answer.json).decode()
    assert "secret" not in shown
    assert "hidden" not in shown
    assert answer.lines == [
        "Admitted:",
        "  workload ours/w in ClusterQueue q, 1 pod with flavor default",
        "  a workload of another namespace",
        "Preempted:",
        "  workload ours/w by a workload of another namespace for a fair share of the cohort",
        "  a workload of another namespace",
        "Not admitted any more:",
        "  2 workloads of other namespaces",
        "Other quota:",
        "  a workload of another namespace",
        "Positions:",
        "  a workload of another namespace",
        "Usage:",
        "  cohort all: 1m instead of 0 cpu of flavor default",
        "Shares:",
        "  ClusterQueue q: 1 instead of none",
    ]
    assert answer.json["reassigned"] == [
        {"workload": None, "before": {"clusterQueueName": None}, "after": {"clusterQueueName": "q"}}
    ]
    assert answer.json["positions"] == [
        {"workload": None, "before": {"clusterQueueName": None, "position": 1}, "after": None}
    ]


def test_viewer_of_everything_sees_all_names() -> None:
    answer = DifferenceAnswer(FULL, {}, NOW, EVERYTHING)
    assert "another namespace" not in "\n".join(answer.lines)
    assert [each["name"] for each in answer.json["usage"]] == ["hidden", "all"]


def test_long_lists_are_cut_and_counted() -> None:
    keys = tuple(ObjectKey("ours", f"w-{number:04}") for number in range(MOST_ITEMS + 5))
    usage = {queue(f"q-{number:02}"): {CPU: AmountChange(0, 1)} for number in range(MOST_LINES + 2)}
    answer = DifferenceAnswer(difference(not_admitted=keys, usage=usage), {}, NOW)
    assert len(answer.lines) == 2 + MOST_LINES + 2 + MOST_LINES
    assert answer.lines[1 + MOST_LINES] == f"  {MOST_ITEMS + 5 - MOST_LINES} more"
    assert answer.lines[-1] == "  2 more"
    assert len(answer.json["notAdmitted"]) == MOST_ITEMS
    assert answer.json["more"] == {"notAdmitted": 5}
