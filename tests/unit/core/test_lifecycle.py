from dataclasses import replace
from typing import Any

import pytest

from admitq.core.lifecycle import Phase, phase_of
from admitq.core.model import Admission, ObjectKey, Workload

PLAIN = Workload(ObjectKey("n", "w"), "u", "main", 0, ())
HELD = Admission("cq", ())


@pytest.mark.parametrize(
    ("fields", "reserved", "admitted", "phase"),
    [
        ({}, False, False, Phase.PENDING),
        ({}, True, False, Phase.RESERVED),
        ({}, True, True, Phase.ADMITTED),
        ({"finished": True}, True, True, Phase.FINISHED),
        ({"finished": True, "active": False}, False, False, Phase.FINISHED),
        ({"active": False}, False, False, Phase.INACTIVE),
        ({"active": False}, True, True, Phase.EVICTING),
        ({"evicted": True, "admission": HELD}, True, True, Phase.EVICTING),
        ({"evicted": True}, True, True, Phase.ADMITTED),
        ({"evicted": True}, False, False, Phase.PENDING),
        ({"on_hold": True}, False, False, Phase.HELD),
        ({"on_hold": True}, True, False, Phase.RESERVED),
        ({"admission_gates": ("a",)}, False, False, Phase.HELD),
        ({"waiting_for_replacement_pods": True}, False, False, Phase.HELD),
        ({"deleting": True}, False, False, Phase.HELD),
        ({"deleting": True}, True, True, Phase.ADMITTED),
        ({"requeue_blocked": True}, False, False, Phase.PENDING),
    ],
)
def test_phase_follows_from_fields_and_reservation(
    fields: dict[str, Any], *, reserved: bool, admitted: bool, phase: Phase
) -> None:
    assert phase_of(replace(PLAIN, **fields), reserved=reserved, admitted=admitted) is phase
