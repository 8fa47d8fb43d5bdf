"""What a program without a manager asks: a state from stored objects or a log, with estimated run times."""

from dataclasses import dataclass, replace
from typing import Final

from admitq.asking.decision_settings import DecisionSettings, read_decision_settings
from admitq.asking.hypotheses import read_hypotheses
from admitq.asking.hypothesis_inputs import HypothesisOptions, IndexedObjects
from admitq.asking.object_files import ReadFiles
from admitq.asking.observed_cluster import UnreadableObject, observe_cluster
from admitq.asking.run_time_estimates import run_time_estimates
from admitq.asking.stored_objects import SourceError, StoredObjects
from admitq.core.asking.course import EstimateOf
from admitq.core.model import Instant
from admitq.core.state import AdmissionState
from admitq.integrations.custom import load_custom_integrations
from admitq.manifests.documents import Document, InputError
from admitq.translate.metadata import key_of
from admitq.translate.resource_flavors import TOPOLOGY_OF_FLAVOR
from admitq.workloads.topology_annotations import configured_topology_rules
from admitq_api.feature_gates import Gate
from admitq_api.json_objects import JsonObject, text_at

NODES_UNKNOWN: Final = "nodes are not known: flavors with a topology count by quota alone"
"""The note of answers about a cluster with topologies and without known nodes."""

MANIFESTS: Final = "manifest"
"""How errors name the file of a manifest among the objects."""


@dataclass(frozen=True, slots=True)
class AskedCluster:
    """A cluster about which questions are asked.

    Attributes:
        state: the state of the core. Questions may change it: ask in a branch.
        now: the instant of the questions, in nanoseconds since the Unix epoch.
        estimate_of: estimates run times.
        settings: the settings of the manager.
        objects: the stored objects; empty if the state is from a log.
        notes: what is missing, and what is assumed instead.
    """

    state: AdmissionState
    now: Instant
    estimate_of: EstimateOf
    settings: DecisionSettings
    objects: StoredObjects
    notes: tuple[str, ...] = ()


def observe_objects(
    objects: StoredObjects, configuration: str | None = None, shown: str = "configuration"
) -> AskedCluster:
    """Return the cluster of stored objects, at the time at which these were read.

    Args:
        objects: the stored objects.
        configuration: the configuration file of the manager, in place of the one among the objects.
        shown: the name of that file in errors.

    Raises:
        SourceError: the given configuration is invalid.
        EndlessDecisionsError: the core decides endlessly.
    """
    settings, notes = _settings(objects, configuration, shown)
    now = objects.read_at
    observed = observe_cluster(objects.observed, objects.names, now, settings=settings.core, how=settings.how)
    return AskedCluster(
        observed.state,
        now,
        run_time_estimates(objects.of("workloads"), objects.of("localqueues"), now, jobs=objects.others),
        settings,
        objects,
        (*objects.notes, *notes, *map(_describe, observed.unreadable)),
    )


def observe_files(
    files: ReadFiles, configuration: str | None = None, shown: str = "configuration"
) -> AskedCluster:
    """Return the cluster of files. The arguments and errors are those of ``observe_objects``."""
    if files.state_log is None:
        return observe_objects(files.objects, configuration, shown)
    objects = files.objects
    settings, _ = _settings(objects, configuration, shown)
    note = (
        "a state dump has no run times: without limits of these, starts behind running workloads are unknown"
    )
    return AskedCluster(
        files.state_log.state,
        objects.read_at,
        run_time_estimates((), (), objects.read_at),
        settings,
        objects,
        (note,),
    )


def suppose_manifests(cluster: AskedCluster, namespace: str) -> AskedCluster:
    """Return the cluster as if the manifests among its objects were submitted now.

    Args:
        cluster: the cluster. Its state changes.
        namespace: the namespace of manifests that state none.

    Raises:
        SourceError: a manifest is invalid.
        ConfigurationError: the configuration has an invalid kind of jobs.
    """
    objects = cluster.objects
    if not objects.manifests:
        return cluster
    documents = [Document(MANIFESTS, manifest) for manifest in objects.manifests]
    try:
        hypotheses = read_hypotheses(
            documents,
            names=objects.names,
            now=cluster.now,
            stored=IndexedObjects(objects.observed, objects.others),
            options=hypothesis_options(cluster.settings, namespace),
        )
    except InputError as error:
        raise SourceError(str(error)) from None
    for event in hypotheses.events:
        cluster.state.observe(event, now=cluster.now)
    changed = {(plural, key_of(obj)): obj for plural, obj in hypotheses.objects}
    changed |= {("workloads", key): obj for key, obj in hypotheses.workloads.items()}
    kept = (each for each in objects.observed if (each[0], key_of(each[1])) not in changed)
    supposed = replace(
        objects,
        observed=(*kept, *((plural, obj) for (plural, _), obj in changed.items())),
        others=(*objects.others, *objects.manifests),
        manifests=(),
    )
    return replace(cluster, objects=supposed)


def hypothesis_options(settings: DecisionSettings, namespace: str) -> HypothesisOptions:
    """Return how manifests are read with the settings of a manager.

    Args:
        settings: the settings.
        namespace: the namespace of manifests that state none.

    Raises:
        ConfigurationError: the configuration has an invalid kind of jobs.
    """
    return HypothesisOptions(
        settings.how,
        load_custom_integrations(settings.configuration),
        partial_admission=settings.gates[Gate.PARTIAL_ADMISSION],
        namespace=namespace,
        topology_rules=configured_topology_rules(settings.gates),
    )


def _settings(
    objects: StoredObjects, configuration: str | None, shown: str
) -> tuple[DecisionSettings, tuple[str, ...]]:
    """Return the settings, and why decisions may not be those of the manager."""
    settings, notes = _stated_settings(objects, configuration, shown)
    has_nodes = any(objects.of("nodes")) or any(map(_is_node, objects.manifests))
    if has_nodes or settings.core.placement is None:
        return settings, notes
    # Without nodes no pods could be placed.
    settings = settings._replace(core=replace(settings.core, placement=None))
    has_topology = any(text_at(flavor, TOPOLOGY_OF_FLAVOR) for flavor in objects.of("resourceflavors"))
    return settings, (*notes, *((NODES_UNKNOWN,) if has_topology else ()))


def _is_node(manifest: JsonObject) -> bool:
    return (text_at(manifest, ("apiVersion",)), text_at(manifest, ("kind",))) == ("v1", "Node")


def _stated_settings(
    objects: StoredObjects, configuration: str | None, shown: str
) -> tuple[DecisionSettings, tuple[str, ...]]:
    """Return the settings of a configuration file, and why they may not be those of the manager."""
    if configuration is not None or objects.configuration is None:
        return read_decision_settings(configuration, objects.names, shown), ()
    try:
        return read_decision_settings(objects.configuration, objects.names), ()
    except SourceError as error:
        note = f"the configuration of the manager is not used, and defaults are assumed: {error}"
        return read_decision_settings(None, objects.names), (note,)


def _describe(unreadable: UnreadableObject) -> str:
    name = "/".join(filter(None, (unreadable.plural, unreadable.namespace, unreadable.name)))
    return f"{name} is invalid, and counts only in part: {unreadable.problem}"
