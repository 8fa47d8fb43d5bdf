"""Comparison of the admission in a stored Workload with one of the core."""

from contextlib import suppress

from admitq.core.model import Admission
from admitq.translate.admissions import read_admission
from admitq.workloads.pod_counts import requested_pod_counts
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.stored_fields import MalformedField


def has_admission(workload: JsonObject, admission: Admission) -> bool:
    """Whether the status of a Workload has exactly this admission; False if it cannot be read."""
    stated = value_at(workload, ("status", "admission"))
    with suppress(MalformedField):
        return bool(stated) and read_admission(stated, requested_pod_counts(workload)) == admission
    return False
