import json
from typing import Any

import pytest

from admitq.core import events as happened
from admitq.core.dump import DumpError, decode, encode
from admitq.core.model import (
    SECOND,
    Admission,
    CheckState,
    ObjectKey,
    PodSetAssignment,
    StopPolicy,
    Taint,
)
from admitq.core.settings import AdmissionFairSharing, CoreSettings
from admitq.core.state import AdmissionState
from tests.unit.core.small_cluster import LOWER, SmallCluster, key, queue


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
def test_decoded_value_equals_encoded_value(value: object) -> None:
    decoded = decode(json.loads(json.dumps(encode(value))))
    assert decoded == value
    assert type(decoded) is type(value)


@pytest.mark.parametrize("value", [1.5, {"a": 1}, [1], object()])
def test_encode_of_unsupported_value_raises(value: object) -> None:
    with pytest.raises(DumpError, match="dumps cannot have values of type"):
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
def test_decode_of_invalid_value_raises_with_its_kind(raw: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DumpError, match=complaint):
        decode(raw)


def dump_with_all_references() -> dict[str, Any]:
    """Return a dump with unwritten decisions, a blocking head, a parked lane, a second pass and a failure."""
    cluster = SmallCluster(CoreSettings(admission_fair_sharing=AdmissionFairSharing()))
    cluster.put(queue("q", 1, preemption=LOWER), queue("s", 1, usage_based_admission=True))
    cluster.submit("low", "q")
    cluster.run("low")
    cluster.submit("high", "q", priority=1)
    cluster.submit("small", "s")
    cluster.cycles()
    cluster.submit("large", "s", 2)
    cluster.cycles()
    is_open = PodSetAssignment(
        "main", (("cpu", "default"),), (("cpu", 1),), 1, lacks_topology_assignment=True
    )
    cluster.submit(
        "open",
        "q",
        admission=Admission("q", (is_open,)),
        admission_checks=(("check", CheckState.READY),),
    )
    cluster.put(queue("z", 1))
    cluster.submit("zero", "z")
    cluster.cycles()
    cluster.send(happened.ReservationFailed(key("zero"), "uid-zero"))
    return cluster.state.to_dict()


@pytest.mark.parametrize(
    ("path", "name", "complaint"),
    [
        ("assumptions 0 0 name", "gone", "assumptions: n/gone is not known"),
        ("preemptions 0 key name", "gone", "preemptions: n/gone is not known"),
        ("failed_reservations 0 0 name", "gone", "failed_reservations: n/gone is not known"),
        ("pending 0 key name", "gone", "pending: n/gone is not known"),
        ("pending 0 key name", "low", "pending: n/low does not wait"),
        ("queues 0 name", "gone", "queues: gone is not known"),
        ("queues 0 preemptor key name", "large", "queues.preemptor: n/large is not known"),
        ("queues 0 lanes 0 1 head key name", "large", "queues.lanes.head: n/large is not known"),
        (
            "queues 1 lanes 0 1 needs 0 pair resource",
            "gpu",
            r"queues.lanes.needs: .*resource='gpu'.* is not known",
        ),
        ("second_passes 0 key name", "low", "second_passes: n/low is not known"),
        ("usage_accounts balances 0 queue name", "gone", "usage_accounts.balances: n/gone is not known"),
        ("usage_accounts balances 0 queue name", "s", "local_queues: n/q is not known"),
        ("usage_accounts charges 0 queue name", "gone", "usage_accounts.charges: n/gone is not known"),
    ],
)
def test_dump_with_reference_to_missing_object_is_refused(path: str, name: str, complaint: str) -> None:
    dumped = dump_with_all_references()
    AdmissionState.from_dict(dumped).validate()
    parent: Any = dumped
    *steps, last = [int(step) if step.isdigit() else step for step in path.split()]
    for step in steps:
        parent = parent[step]
    assert parent[last] != name
    parent[last] = name
    with pytest.raises(DumpError, match=complaint):
        AdmissionState.from_dict(dumped)


def test_restored_workload_is_not_held_back_after_its_backoff() -> None:
    cluster = SmallCluster()
    cluster.put(queue("q", 1))
    cluster.submit("large", "q", 2, requeue_at=cluster.now + SECOND)
    cluster.run()
    assert cluster.refusal("large") is None
    cluster.now += SECOND
    cluster.run()
    assert cluster.refusal("large") is not None
    before = cluster.state.to_dict()
    cluster.restart()
    assert cluster.state.to_dict() == before
    assert cluster.is_quiet
    cluster.put(queue("q", 2))
    cluster.run("large")


def test_dump_of_another_value_is_not_restored() -> None:
    with pytest.raises(DumpError, match="not the dump of an AdmissionState"):
        AdmissionState.from_dict({"is": "Taint", "key": "a", "value": "", "effect": ""})


def test_empty_state_is_restored_from_its_dump() -> None:
    empty = AdmissionState().to_dict()
    assert AdmissionState.from_dict(empty).to_dict() == empty


def test_dump_of_another_version_is_refused() -> None:
    dumped = SmallCluster().state.to_dict()
    dumped["version"] = 1
    with pytest.raises(DumpError, match="a dump of version 1; only 5 can be read"):
        AdmissionState.from_dict(dumped)
