"""The system namespace, in which jobs are never managed, and the label with the name of a namespace."""

from typing import Final

SYSTEM_NAMESPACE: Final = "kube-system"
"""The namespace of the cluster's components. admitq never holds or rejects its objects."""

NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""The label of each namespace with the name of the namespace."""
