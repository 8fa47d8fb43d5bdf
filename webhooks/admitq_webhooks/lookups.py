"""The lookups of webhooks: what a verdict may depend on besides the object itself."""

from collections.abc import Mapping
from typing import Any, Protocol

from admitq.serving.access_reviews import Access
from admitq.serving.authorization import User


class LookupFailed(Exception):
    """The API server did not answer a lookup; the user should retry the request."""


class ClusterLookups(Protocol):
    """Looks up objects and permissions in the cluster; the answers may be slightly outdated."""

    def has_local_queue(self, namespace: str, name: str) -> bool:
        """Return whether the LocalQueue exists."""
        ...

    def has_priority_class(self, name: str) -> bool:
        """Return whether the WorkloadPriorityClass exists."""
        ...

    def admission_check_controllers(self, namespace: str, queue: str) -> frozenset[str]:
        """Return the controllers of the admission checks that jobs of a LocalQueue have to pass."""
        ...

    async def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace; None if it does not exist.

        Raises:
            LookupFailed: the namespace is not known here and cannot be read.
        """
        ...

    async def get_object(
        self, group: str, version: str, kind: str, namespace: str, name: str
    ) -> Mapping[str, Any] | None:
        """Return an owner, or another object to which a job refers; None if it does not exist.

        Raises:
            LookupFailed: the object cannot be read.
        """
        ...

    async def is_allowed(self, user: User, access: Access) -> bool:
        """Return whether the API server authorizes an access of a user.

        Raises:
            LookupFailed: the API server did not answer in time; the caller must not assume a permission.
        """
        ...

    async def plural(self, group: str, version: str, kind: str) -> str | None:
        """Return the plural of a kind; None if the API server does not serve the kind.

        Raises:
            LookupFailed: the plural is not known here, and discovery failed.
        """
        ...
