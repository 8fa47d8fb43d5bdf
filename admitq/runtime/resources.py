"""Resources of the Kubernetes API as values: their names and paths.

This module builds and quotes all paths, so that the name of an object can never lead to another path.
"""

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the API server.

    ``group`` is empty for the core group. ``plural`` is the name in paths and RBAC rules. ``view``
    distinguishes selections of the objects that have separate watches and stores. The API server does not see
    it.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    view: str = ""

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of objects of this resource."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the URL path of the collection, or of one object if a name is given.

        Raises:
            ValueError: A namespace is given for a cluster-scoped resource, or missing for a namespaced
                object; or a segment is empty, ``.`` or ``..``.
        """
        if namespace is not None and not self.namespaced:
            raise ValueError(f"{self.plural} have no namespace, {namespace!r} was given")
        if namespace is None and name is not None and self.namespaced:
            raise ValueError(f"{self.plural} {name!r} needs a namespace")
        if subresource is not None and name is None:
            raise ValueError(f"subresource {subresource!r} of {self.plural} needs a name")
        segments = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None:
            segments += ["namespaces", namespace]
        segments.append(self.plural)
        if name is not None:
            segments.append(name)
        if subresource is not None:
            segments += subresource.split("/")
        return "/" + "/".join(_segment(segment) for segment in segments)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


def _segment(text: str) -> str:
    if text in {"", ".", ".."}:
        raise ValueError(f"{text!r} cannot be part of a path")
    return quote(text, safe="")


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod", namespaced=True)
POD_TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate", namespaced=True)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
SECRETS = Resource("", "v1", "secrets", "Secret", namespaced=True)
SERVICES = Resource("", "v1", "services", "Service", namespaced=True)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange", namespaced=True)
JOBS = Resource("batch", "v1", "jobs", "Job", namespaced=True)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", namespaced=True)
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", namespaced=True)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", namespaced=True)
EVENTS = Resource("events.k8s.io", "v1", "events", "Event", namespaced=True)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
MUTATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
