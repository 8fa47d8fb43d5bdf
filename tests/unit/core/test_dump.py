import json
from typing import Any

import pytest

from admitq.core.dump import DumpError, decode, encode
from admitq.core.model import SECOND, ObjectKey, StopPolicy, Taint
from admitq.core.state import AdmissionState
from tests.unit.core.play import Play, queue


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        7,
        "text",
        (),
        (1, ("a", None)),
        ObjectKey("namespace", "name"),
        StopPolicy.HOLD,
        (Taint("key", "value", "NoSchedule"), StopPolicy.NONE),
    ],
)
def test_values_survive_being_written(value: object) -> None:
    back = decode(json.loads(json.dumps(encode(value))))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("value", [1.5, {"a": 1}, [1], object()])
def test_what_is_no_value_of_the_core_is_not_written(value: object) -> None:
    with pytest.raises(DumpError, match="is not a value that dumps hold"):
        encode(value)


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        ({"a": 1}, "unknown kind None"),
        ({"is": "Workloud"}, "unknown kind 'Workloud'"),
        ({"is": "Taint", "key": "a"}, "Taint cannot be read"),
        ({"is": "Taint", "key": "a", "value": "", "effect": "", "colour": "red"}, "Taint cannot be read"),
        ({"is": "StopPolicy", "value": "Never"}, "StopPolicy cannot be read"),
        ({"is": "StopPolicy"}, "StopPolicy cannot be read"),
    ],
)
def test_what_cannot_be_read_is_named(raw: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DumpError, match=complaint):
        decode(raw)


def test_a_dump_that_contradicts_itself_is_refused() -> None:
    play = Play()
    play.put(queue("q", 1))
    play.submit("a", "q")
    dumped = play.state.to_dict()
    dumped["local_queues"] = []
    with pytest.raises(DumpError, match="n/a is not pending"):
        AdmissionState.from_dict(dumped)


def test_a_restart_does_not_keep_back_whose_time_has_come() -> None:
    play = Play()
    play.put(queue("q", 1))
    play.submit("large", "q", 2, requeue_at=play.now + SECOND)
    play.run()
    assert play.refusal("large") is None
    play.now += SECOND
    play.run()
    assert play.refusal("large") is not None
    before = play.state.to_dict()
    play.restart()
    assert play.state.to_dict() == before
    assert play.is_quiet
    play.put(queue("q", 2))
    play.run("large")


def test_only_dumps_of_states_are_restored() -> None:
    with pytest.raises(DumpError, match="not the dump of an AdmissionState"):
        AdmissionState.from_dict({"is": "Taint", "key": "a", "value": "", "effect": ""})
    empty = AdmissionState().to_dict()
    assert AdmissionState.from_dict(empty).to_dict() == empty
