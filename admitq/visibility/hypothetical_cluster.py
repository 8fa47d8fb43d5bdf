"""The cluster to which questions apply hypothetical objects, besides the state of the core."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from admitq.asking.run_time_estimates import RunTimeRecords
from admitq.core.asking.course import EstimateOf
from admitq.core.model import Instant, ObjectKey
from admitq.core.state import AdmissionState
from admitq.integrations.base import Integration
from admitq.translate.read_options import ReadOptions
from admitq.workloads.topology_annotations import DEFAULT_TOPOLOGY_RULES, TopologyRules
from admitq_api.labels import Names

if TYPE_CHECKING:
    # Defaults and checks of manifests load slowly. The process is ready before (``load``).
    from admitq.asking.hypothesis_inputs import HypothesisOptions
    from admitq.manifests.objects import ObjectLookup


@dataclass(slots=True, eq=False)
class HypotheticalCluster:
    """What hypothetical objects are applied to, besides the state of the core.

    Attributes:
        names: the names of the API group.
        stored: the stored objects.
        run_times: the run times of the observed Workloads.
        how: how Workloads are read.
        custom: the job kinds of the configuration.
        partial_admission: whether jobs with a minimum of pods may run with fewer pods.
        manages_jobs_without_queue: whether jobs that name no queue stay suspended.
        topology_rules: the rules of topology annotations; None if podsets request no topology.
    """

    names: Names
    stored: "ObjectLookup"
    run_times: RunTimeRecords
    how: ReadOptions = field(default_factory=ReadOptions)
    custom: tuple[Integration, ...] = ()
    partial_admission: bool = True
    manages_jobs_without_queue: bool = False
    topology_rules: TopologyRules | None = DEFAULT_TOPOLOGY_RULES
    is_loaded: bool = field(default=False, init=False)
    """Whether questions can be answered."""

    def load(self) -> None:
        """Read one manifest, so that child processes need to import and load nothing.

        This takes a second. It may run in another thread.
        """
        from admitq.asking.hypotheses import read_hypotheses  # noqa: PLC0415 loads slowly
        from admitq.asking.hypothesis_inputs import list_documents  # noqa: PLC0415 loads slowly

        queue = {
            "apiVersion": self.names.api_version,
            "kind": "ClusterQueue",
            "metadata": {"name": "queue"},
            "spec": {},
        }
        read_hypotheses(list_documents([queue], "objects"), names=self.names, now=0, options=self.options())
        self.is_loaded = True

    def options(self, namespace: str = "") -> "HypothesisOptions":
        """Return how manifests are read: those of one namespace, or all."""
        from admitq.asking.hypothesis_inputs import HypothesisOptions  # noqa: PLC0415 loads slowly

        return HypothesisOptions(
            self.how,
            self.custom,
            self.partial_admission,
            namespace or "default",
            is_local=bool(namespace),
            topology_rules=self.topology_rules,
        )

    def estimates(self, state: AdmissionState, now: Instant) -> EstimateOf:
        """Return the estimates of run times for a state."""

        def cluster_queue_of(key: ObjectKey) -> str:
            local_queue = state.queries.world.local_queues.get(key)
            return "" if local_queue is None else local_queue.spec.cluster_queue

        return self.run_times.estimates(cluster_queue_of, now)
