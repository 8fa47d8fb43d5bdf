"""The settings that all webhooks share, such as which objects admitq manages. Read once at the start."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from admitq.core.model import LabelSelector
from admitq.core.selectors import matches
from admitq.integrations.base import Integration, RuleContext
from admitq.integrations.ownership import get_queue_name
from admitq.integrations.references import OwnerKind
from admitq.translate.selectors import select_managed_namespaces
from admitq_api.configuration import Configuration
from admitq_api.feature_gates import FeatureGates
from admitq_api.json_objects import JsonObject
from admitq_api.labels import Names
from admitq_api.namespaces import SYSTEM_NAMESPACE


@dataclass(frozen=True, slots=True)
class Policy:
    """What is managed, and under which names.

    Attributes:
        names: labels and annotations.
        gates: feature gates.
        integrations: the enabled job kinds.
        own_namespace: the namespace of admitq itself, which is never managed, like kube-system.
        namespace_selector: selects the namespaces with managed jobs.
        manage_jobs_without_queue_name: whether jobs without a queue name are managed, too.
        external_frameworks: kinds that another program manages; they only count as ancestors.
        rejects_increases: whether updates that raise the requests of a running job are rejected.
    """

    names: Names
    gates: FeatureGates = field(default_factory=FeatureGates)
    integrations: tuple[Integration, ...] = ()
    own_namespace: str = ""
    namespace_selector: LabelSelector = field(default_factory=LabelSelector)
    manage_jobs_without_queue_name: bool = False
    external_frameworks: tuple[OwnerKind, ...] = ()
    rejects_increases: bool = False

    def is_namespace_excluded(self, namespace: str) -> bool:
        """Return whether a namespace is never managed, whatever the selector is.

        The webhook configuration excludes these namespaces. This check applies if a user has changed it.
        """
        return namespace in (SYSTEM_NAMESPACE, self.own_namespace)

    def is_own_account(self, username: str) -> bool:
        """Return whether an account belongs to admitq: a service account of its own namespace."""
        return bool(self.own_namespace) and username.startswith(
            f"system:serviceaccount:{self.own_namespace}:"
        )

    def manages_namespace(self, namespace: str, labels: Mapping[str, str] | None) -> bool:
        """Return whether the jobs of a namespace are managed; False for a namespace that does not exist."""
        if labels is None or self.is_namespace_excluded(namespace):
            return False
        return matches(self.namespace_selector, labels)

    def kind_rules(
        self, job: JsonObject, *, workload: JsonObject | None = None, before: JsonObject | None = None
    ) -> RuleContext:
        """Return the values on which the rules of a job's kind depend."""
        is_managed = self.manage_jobs_without_queue_name or bool(get_queue_name(job, self.names))
        return RuleContext(
            self.names, self.gates, is_managed=is_managed, deciding_workload=workload, stored_object=before
        )


def configured_policy(
    configuration: Configuration, gates: FeatureGates, integrations: tuple[Integration, ...]
) -> Policy:
    """Return the policy of a configuration, with the kinds of jobs that are enabled.

    Raises:
        MalformedField: the selector of managed namespaces is invalid.
    """
    return Policy(
        names=configuration.names,
        gates=gates,
        integrations=integrations,
        own_namespace=configuration.namespace,
        namespace_selector=select_managed_namespaces(configuration),
        manage_jobs_without_queue_name=configuration.manage_jobs_without_queue_name,
        external_frameworks=tuple(
            OwnerKind.parse(text) for text in configuration.integrations.external_frameworks
        ),
        rejects_increases=configuration.webhook.reject_increases_of_running_jobs,
    )
