"""Stores in which generation of its spec a running job last matched its admitted Workload."""

from typing import NamedTuple

from admitq.controllers.job.case import JobCase
from admitq.controllers.job.matching import is_equivalent
from admitq.runtime.store import Key
from admitq.workloads.transitions import is_admitted
from admitq_api.json_objects import value_at


class _AdmittedGeneration(NamedTuple):
    """The generation in which a job matched its one Workload while the Workload was admitted."""

    uid: str
    generation: int
    workload_uid: str


class AdmittedGenerations:
    """The generations in which running jobs last matched their admitted Workload, by key."""

    def __init__(self) -> None:
        self._known: dict[Key, _AdmittedGeneration] = {}

    def forget(self, key: Key) -> None:
        """Forget a job that no longer exists."""
        self._known.pop(key, None)

    def remember(self, key: Key, case: JobCase) -> None:
        """Remember the generation of a running job if the job matches its admitted Workload."""
        generation = _running_generation(case)
        known = self._known.get(key)
        if generation is None or len(case.owned) != 1 or not is_admitted(case.owned[0]):
            self.forget(key)
            return
        matched = _AdmittedGeneration(*generation, case.owned[0]["metadata"]["uid"])
        if matched != known and is_equivalent(case, case.owned[0]):
            self._known[key] = matched

    def has_changed_once_since(self, key: Key, case: JobCase) -> bool:
        """Whether the spec of a job has changed exactly once since the job matched its Workload.

        A stop and another start are at least two changes. So after one change no other Workload can be
        admitted for the job, and a read from the API server is not necessary.
        """
        current_generation, known = _running_generation(case), self._known.get(key)
        if current_generation is None or known is None or len(case.owned) != 1:
            return False
        uid, generation = current_generation
        return known == _AdmittedGeneration(uid, generation - 1, case.owned[0]["metadata"]["uid"])


def _running_generation(case: JobCase) -> tuple[str, int] | None:
    """Return UID and generation of a job that is one object and not suspended; None for others."""
    if case.job is None or case.composition is not None:
        return None
    metadata, generation = case.job["metadata"], value_at(case.job, ("metadata", "generation"))
    if not isinstance(generation, int) or case.integration.is_suspended(case.job, case.names):
        return None
    return metadata["uid"], generation
