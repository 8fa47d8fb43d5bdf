"""The present of a cluster, with which a run begins: its objects, and its workloads with run times."""

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from admitq.core.asking.effects import revise_workload
from admitq.core.asking.run_times import WHOLE, RunTimeEstimate
from admitq.core.events import Event
from admitq.core.model import Workload
from admitq.manifests.documents import Document, read_text
from admitq.manifests.objects import NODES, OBSERVED
from admitq.simulator.clock import START
from admitq.simulator.files import Files
from admitq.simulator.schema import Nanoseconds, Scenario
from admitq.translate.observations import READ_ERRORS, observations
from admitq.translate.workloads import read_workload
from admitq_api.labels import Names

if TYPE_CHECKING:
    # Imported for types only: these modules take long to import, and most runs begin with files.
    from admitq.asking.sources import AskedCluster
    from admitq.asking.stored_objects import StoredObjects

RUNNING: Final = "present-admitted"
WAITING: Final = "present-pending"
"""The names of the classes of workloads that exist at the start: those that hold quota, and all others."""

_FOREIGN: Final = {
    "Namespace": "v1",
    "Node": "v1",
    "LimitRange": "v1",
    "RuntimeClass": "node.k8s.io/v1",
}
"""The API versions of kinds that are not of admitq's own group."""

_CLASSES: Final = frozenset({"WorkloadPriorityClass", "PriorityClass"})


class PresentWorkload(NamedTuple):
    """A workload that exists at the start of a run.

    Attributes:
        workload: the workload. Its times are those of the virtual clock.
        run_time: its estimated run time.
        elapsed: for how long it has run, in nanoseconds.
        unknown: its remaining run time if nothing is known about it, in nanoseconds.
    """

    workload: Workload
    run_time: RunTimeEstimate
    elapsed: Nanoseconds
    unknown: Nanoseconds

    @property
    def has_estimate(self) -> bool:
        """Whether its run time can be estimated."""
        return self.run_time.remaining_at(0, self.elapsed) is not None

    def draw_run_time(self, chance: random.Random) -> Nanoseconds:
        """Return a remaining run time, drawn from its distribution."""
        drawn = self.run_time.remaining_at(chance.randrange(WHOLE), self.elapsed)
        return self.unknown if drawn is None else max(1, drawn)


class PresentCluster(NamedTuple):
    """The cluster with which a run begins.

    Attributes:
        files: its objects and its configuration, with an empty scenario.
        workloads: its workloads that have not finished, in the order of their keys.
        notes: what is missing, and what is assumed instead.
        pods_of_others: the events of pods on nodes that no topology placed. They stay for the whole run.
    """

    files: Files
    workloads: tuple[PresentWorkload, ...]
    notes: tuple[str, ...]
    pods_of_others: tuple[Event, ...] = ()


def read_present(cluster: "AskedCluster", unknown: Nanoseconds, shown: str) -> PresentCluster:
    """Return the cluster with which a run begins.

    Args:
        cluster: the stored objects and estimates of run times.
        unknown: the remaining run time of workloads about which nothing is known, in nanoseconds.
        shown: how errors and the report name the cluster.

    Raises:
        InputError: the configuration of the cluster is invalid.
    """
    objects = cluster.objects
    notes = [*cluster.notes]
    workloads = tuple(_list_workloads(cluster, unknown, notes))
    guessed = sum(not each.has_estimate for each in workloads)
    if guessed:
        notes.append(f"the run times of {guessed} workloads are not known: --run-time sets them")
    files = Files(objects.names, Scenario(), Document(shown, {}), shown, Path())
    files.manifests.extend(_list_documents(objects, shown))
    if objects.configuration is not None:
        (files.configuration,) = read_text(objects.configuration, f"configuration of {shown}")
    pods = tuple(_list_pods_of_others(cluster)) if objects.of("nodes") else ()
    return PresentCluster(files, workloads, tuple(notes), pods)


def _list_pods_of_others(cluster: "AskedCluster") -> Iterator[Event]:
    """Yield the events of pods on nodes. Pods that cannot be read take no room, as on a cluster."""
    objects = cluster.objects
    pods = observations(objects.names, cluster.settings.how)["pods"]
    for obj in objects.of("pods"):
        with suppress(*READ_ERRORS):
            yield pods.changed(obj)


def _list_documents(objects: "StoredObjects", shown: str) -> Iterator[Document]:
    """Yield queues, flavors and all other objects besides Workloads and jobs."""
    kinds = {plural: kind for kind, (plural, _) in {**OBSERVED, **NODES}.items()}
    for plural, obj in objects.observed:
        if (kind := kinds.get(plural)) is not None:
            head = {"apiVersion": _FOREIGN.get(kind, objects.names.api_version), "kind": kind}
            yield Document(shown, {**obj, **head})
    for obj in objects.others:
        if obj.get("kind") in _CLASSES:
            yield Document(shown, obj)


def _list_workloads(
    cluster: "AskedCluster", unknown: Nanoseconds, notes: list[str]
) -> Iterator[PresentWorkload]:
    names: Names = cluster.objects.names
    found: list[Workload] = []
    for obj in cluster.objects.of("workloads"):
        try:
            found.append(read_workload(obj, names, cluster.settings.how))
        except READ_ERRORS as error:
            metadata = obj["metadata"]
            notes.append(f"Workload {metadata.get('namespace')}/{metadata.get('name')} is left out: {error}")
    for workload in sorted(found, key=lambda each: each.key):
        if workload.finished or workload.deleting:
            continue
        runs = workload.admission is not None and workload.admitted
        elapsed = max(0, cluster.now - workload.reserved_at) if runs else 0
        yield PresentWorkload(
            _on_virtual_clock(workload, START - cluster.now), cluster.estimate_of(workload), elapsed, unknown
        )


def _on_virtual_clock(workload: Workload, shift: Nanoseconds) -> Workload:
    """Return the workload with its times on the virtual clock of a run."""
    return revise_workload(
        workload,
        queued_at=workload.queued_at + shift,
        reserved_at=workload.reserved_at + shift if workload.reserved_at else 0,
        evicted_at=workload.evicted_at + shift if workload.evicted_at else 0,
        requeue_at=None if workload.requeue_at is None else workload.requeue_at + shift,
    )
