"""Errors of calls to the API server."""

from typing import Any


class ApiError(Exception):
    """A call failed.

    ``status`` is the HTTP status, or 0 without a valid response. ``reason`` is the API's reason
    (``NotFound``, ``Conflict``…) or one of this client: ``Timeout``, ``ConnectionFailed``,
    ``MalformedResponse``, ``LineTooLong``, ``Truncated``, ``Unauthenticated``. ``retry_after`` is in
    seconds, ``body`` the API's Status object where there is one.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        retry_after: float | None = None,
        body: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.body: dict[str, Any] = body or {}

    def __str__(self) -> str:
        if self.status == 0:
            return f"no answer ({self.reason}): {self.message}"
        return f"{self.status} {self.reason}: {self.message}"

    @property
    def is_not_found(self) -> bool:
        """Whether the object, or the whole resource, does not exist."""
        return self.status == 404

    def concerns(self, name: str) -> bool:
        """Whether the error names this object. An error about a kind that is not served names none."""
        details = self.body.get("details")
        return isinstance(details, dict) and details.get("name") == name

    @property
    def is_already_exists(self) -> bool:
        """Whether an object of that name exists already."""
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def is_conflict(self) -> bool:
        """Whether the object has changed since it was read. The caller must read it and decide again."""
        return self.status == 409 and self.reason != "AlreadyExists"

    @property
    def is_gone(self) -> bool:
        """Whether the resource version or the continue token has expired. The caller must list again."""
        return self.status == 410

    @property
    def is_invalid(self) -> bool:
        """Whether the object or the patch is invalid. The same request will fail again."""
        return self.status in {400, 413, 415, 422}

    @property
    def is_forbidden(self) -> bool:
        """Whether RBAC, a ResourceQuota or an admission policy forbids the request."""
        return self.status == 403

    @property
    def is_rejected(self) -> bool:
        """Whether the request is invalid or forbidden."""
        return self.is_invalid or self.is_forbidden

    @property
    def is_namespace_terminating(self) -> bool:
        """Whether the namespace is terminating, so that nothing can be created in it."""
        causes = (self.body.get("details") or {}).get("causes") or ()
        return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)

    @property
    def is_transient(self) -> bool:
        """Whether the same call may succeed later. It is unknown whether this call took effect."""
        return self.status in {0, 401, 408, 429} or self.status >= 500


class PermanentRejection(Exception):
    """A key cannot be reconciled until its objects change. The message says why."""


class NotLeadingError(Exception):
    """The client refused a write before it was sent, since the process may no longer hold its lease."""
