"""What the visibility API needs to answer questions, besides the state of the core.

These are the run times of observed Workloads, the estimates that TrainJobs report, and the priority classes
that hypothetical jobs may name.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from admitq.app.settings import ProcessSettings
from admitq.asking.run_time_estimates import RunTimeRecords
from admitq.core.state import AdmissionState
from admitq.integrations.custom import load_custom_integrations
from admitq.integrations.registry import BUILT_IN_KINDS
from admitq.metrics.registry import Metrics
from admitq.process.unexpected_errors import ErrorPart
from admitq.runtime.client import Client
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import PRIORITY_CLASSES, Resource
from admitq.runtime.store import ObjectChange, Store
from admitq.runtime.watcher import Outcome, Watcher
from admitq.translate.metadata import key_of
from admitq.translate.read_options import configured_read_options
from admitq.visibility.background_questions import BackgroundQuestions
from admitq.visibility.hypothetical_changes import list_hypothetical_changes
from admitq.visibility.hypothetical_cluster import HypotheticalCluster
from admitq.visibility.routes import Subresource
from admitq.visibility.submission_checks import list_submission_checks
from admitq.visibility.tree_forecasts import TreeForecasts
from admitq.visibility.workload_questions import list_workload_questions
from admitq.workloads.topology_annotations import configured_topology_rules
from admitq_api.feature_gates import Gate
from admitq_api.json_objects import JsonObject, value_at

if TYPE_CHECKING:
    from admitq.manifests.objects import ObjectId

TRAIN_JOB: Final = next(
    Resource(kind.group, kind.version, kind.plural, kind.kind, namespaced=True)
    for kind in BUILT_IN_KINDS
    if kind.kind == "TrainJob"
)
_TRAIN_JOB_FRAMEWORK: Final = next(kind.framework for kind in BUILT_IN_KINDS if kind.kind == "TrainJob")


class StoredObjects:
    """The objects of stores by their kinds, to which hypothetical changes are applied."""

    def __init__(self, stores: Iterable[Store]) -> None:
        self._stores: Mapping[str, Store] = {store.resource.kind: store for store in stores}

    def get(self, name: "ObjectId") -> JsonObject | None:
        """Return an object; None if it does not exist, or if its kind is not observed."""
        store = self._stores.get(name.kind)
        return None if store is None else store.get(name.namespace, name.name)

    def of_kind(self, kind: str) -> Iterable[JsonObject]:
        """Yield all objects of a kind."""
        store = self._stores.get(kind)
        for key in () if store is None else store.keys():
            if store is not None and (obj := store.get(*key)) is not None:
                yield obj


class VisibilityQuestions:
    """Answers questions for the visibility API.

    Args:
        settings: the settings of the process.
        state: the state that observes the cluster.
        stores: the stores of the objects that the core observes.
        client: reads objects.
        metrics: the registry of the process.
        on_watch: receives the outcome of each watch of objects that must be complete.

    Attributes:
        watchers: the watchers of objects that must be complete.
        optional_watchers: those of a kind that need not be installed.
    """

    def __init__(
        self,
        settings: ProcessSettings,
        state: AdmissionState,
        stores: Iterable[Store],
        client: Client,
        metrics: Metrics,
        on_watch: Callable[[Resource, Outcome], None],
    ) -> None:
        self._errors = metrics.errors
        self._questions = BackgroundQuestions(state)
        self._run_times = RunTimeRecords()
        classes = [
            Store(resource, errors=self._errors)
            for resource in (kinds_of(settings.names).workload_priority_classes, PRIORITY_CLASSES)
        ]
        configuration, gates = settings.configuration, settings.gates
        self._cluster = HypotheticalCluster(
            settings.names,
            StoredObjects((*stores, *classes)),
            self._run_times,
            configured_read_options(configuration, gates),
            load_custom_integrations(configuration),
            gates[Gate.PARTIAL_ADMISSION],
            configuration.manage_jobs_without_queue_name,
            configured_topology_rules(gates),
        )
        self._trees = TreeForecasts(state, self._cluster.estimates)
        self.watchers = [
            Watcher(client, store.resource, store, observe=on_watch, errors=self._errors) for store in classes
        ]
        self.optional_watchers: list[Watcher] = []
        if _TRAIN_JOB_FRAMEWORK in configuration.integrations.frameworks:
            train_jobs = Store(TRAIN_JOB, transform=keep_reported_estimate, errors=self._errors)
            train_jobs.subscribe(self._observe_train_job)
            self.optional_watchers.append(Watcher(client, TRAIN_JOB, train_jobs, errors=self._errors))

    def routes(self) -> tuple[Subresource, ...]:
        """Return the subresources and resources that are questions."""
        group = self._cluster.names.visibility_group
        return (
            *list_workload_questions(self._questions, self._trees, self._cluster.estimates, group),
            *list_hypothetical_changes(self._questions, self._cluster),
            *list_submission_checks(self._questions, self._cluster),
        )

    async def load(self) -> None:
        """Load what questions about hypothetical changes need, beside other work. Never raises."""
        with self._errors.contain(ErrorPart.OBSERVATION, "manifests"):
            await asyncio.to_thread(self._cluster.load)

    async def forecast_trees(self) -> None:
        """Make the forecasts of cohort trees that questions begin, until cancelled."""
        await self._trees.run()

    def forget_forecasts(self) -> None:
        """Drop forecasts that rest on a state which does not show the cluster."""
        self._trees.forget()

    def observe_workload(self, change: ObjectChange) -> None:
        """Observe a change of a Workload. Never raises."""
        with self._errors.contain(ErrorPart.OBSERVATION, "run times"):
            if change.new is None:
                self._run_times.forget_workload(key_of(change.object))
            else:
                self._run_times.observe_workload(change.object)

    def _observe_train_job(self, change: ObjectChange) -> None:
        if change.new is None:
            self._run_times.forget_train_job(change.object)
        else:
            self._run_times.observe_train_job(change.object)


def keep_reported_estimate(job: dict[str, Any]) -> dict[str, Any]:
    """Return the identity of a TrainJob and the estimate that it reports. Nothing else is kept."""
    fields = ("name", "namespace", "uid", "resourceVersion")
    metadata = {field: job["metadata"][field] for field in fields if field in job["metadata"]}
    reported = value_at(job, ("status", "trainerStatus"))
    return {"metadata": metadata, **({} if reported is None else {"status": {"trainerStatus": reported}})}
