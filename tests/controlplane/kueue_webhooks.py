"""The webhook configurations of a Kueue installation (semantics, webhook registration)."""

import base64
from typing import Any, Final, NamedTuple

from admitq_api.labels import COMPAT_GROUP

NAMESPACE: Final = "kueue-system"


class Kind(NamedTuple):
    """A kind that the webhooks review."""

    group: str
    version: str
    plural: str
    kind: str
    verbs: tuple[str, ...] = ("mutate", "validate")
    operations: tuple[str, ...] = ("CREATE",)
    """The operations that the mutating webhook reviews; the validating one reviews updates, too."""

    def path(self, verb: str) -> str:
        """The path of the webhook."""
        return f"/{verb}-{self.group.replace('.', '-')}-{self.version}-{self.kind.lower()}"


_TWICE: Final = ("CREATE", "UPDATE")

KINDS: Final = (
    Kind(COMPAT_GROUP, "v1beta2", "clusterqueues", "ClusterQueue"),
    Kind(COMPAT_GROUP, "v1beta2", "cohorts", "Cohort", verbs=("validate",)),
    Kind(COMPAT_GROUP, "v1beta2", "resourceflavors", "ResourceFlavor"),
    Kind(COMPAT_GROUP, "v1beta2", "workloads", "Workload"),
    Kind("", "v1", "pods", "Pod"),
    Kind("apps", "v1", "deployments", "Deployment", operations=_TWICE),
    Kind("apps", "v1", "statefulsets", "StatefulSet", operations=_TWICE),
    Kind("batch", "v1", "jobs", "Job"),
    Kind("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"),
    Kind("kubeflow.org", "v1", "jaxjobs", "JAXJob"),
    Kind("kubeflow.org", "v1", "paddlejobs", "PaddleJob"),
    Kind("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"),
    Kind("kubeflow.org", "v1", "tfjobs", "TFJob"),
    Kind("kubeflow.org", "v1", "xgboostjobs", "XGBoostJob"),
    Kind("kubeflow.org", "v2beta1", "mpijobs", "MPIJob"),
    Kind("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet", operations=_TWICE),
    Kind("ray.io", "v1", "rayclusters", "RayCluster"),
    Kind("ray.io", "v1", "rayjobs", "RayJob"),
    Kind("ray.io", "v1", "rayservices", "RayService"),
    Kind("sparkoperator.k8s.io", "v1beta2", "sparkapplications", "SparkApplication"),
    Kind("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"),
    Kind("workload.codeflare.dev", "v1beta2", "appwrappers", "AppWrapper"),
)


def webhook_configurations(url: str, bundle: bytes) -> list[dict[str, Any]]:
    """The mutating and the validating webhook configuration.

    Args:
        url: the server, without a path.
        bundle: the certificate authorities that the API server trusts, as PEM.
    """
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{name.title()}WebhookConfiguration",
            "metadata": {"name": f"kueue-{name}-webhook-configuration"},
            "webhooks": [_webhook(one, verb, url, bundle) for one in KINDS if verb in one.verbs],
        }
        for name, verb in (("mutating", "mutate"), ("validating", "validate"))
    ]


def _webhook(kind: Kind, verb: str, url: str, bundle: bytes) -> dict[str, Any]:
    both = kind.kind == "Workload" and verb == "validate"
    webhook: dict[str, Any] = {
        "name": f"{verb[0]}{kind.kind.lower()}.kb.io",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "url": f"{url}{kind.path(verb)}",
            "caBundle": base64.b64encode(bundle).decode(),
        },
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "rules": [
            {
                "apiGroups": [kind.group],
                "apiVersions": [kind.version],
                "operations": list(kind.operations if verb == "mutate" else _TWICE),
                "resources": [kind.plural, *([f"{kind.plural}/status"] if both else [])],
            }
        ],
    }
    if kind.group != COMPAT_GROUP:
        spared = {
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": ["kube-system", NAMESPACE],
        }
        webhook["namespaceSelector"] = {"matchExpressions": [spared]}
    return webhook
