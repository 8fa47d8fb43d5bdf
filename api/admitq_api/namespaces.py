"""The namespace that no setting hands to the queue, and the label by which selectors find a namespace."""

from typing import Final

SYSTEM_NAMESPACE: Final = "kube-system"
"""The namespace of the cluster's own components; nothing in it is ever held or rejected."""

NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""The label by which every namespace carries its own name."""
