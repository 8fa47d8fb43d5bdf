"""What a verdict may depend on beside the object itself: the lookups that webhooks make."""

from collections.abc import Mapping
from typing import Any, Protocol

from admitq.serving.access_reviews import Access
from admitq.serving.authorization import User


class LookupFailed(Exception):
    """The API server could not be asked; the request should be tried again."""


class ClusterLookups(Protocol):
    """Looks things up in the cluster, as it is now or was a moment ago."""

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
            LookupFailed: it is not known here and cannot be asked for.
        """
        ...

    async def get_object(
        self, group: str, version: str, kind: str, namespace: str, name: str
    ) -> Mapping[str, Any] | None:
        """Return an object that is named as an owner, or that a job refers to; None if it does not exist.

        Raises:
            LookupFailed: it cannot be asked for.
        """
        ...

    async def is_allowed(self, user: User, access: Access) -> bool:
        """Return whether a user may do something to a resource, as RBAC has it.

        Raises:
            LookupFailed: there was no answer in time; the caller must not take that for a permission.
        """
        ...

    async def plural(self, group: str, version: str, kind: str) -> str | None:
        """Return the plural by which the API server serves a kind; None if it does not.

        Raises:
            LookupFailed: it is not known here and cannot be asked for.
        """
        ...
