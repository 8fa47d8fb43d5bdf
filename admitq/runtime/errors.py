"""What can go wrong with a call of the API."""

from typing import Any


class ApiError(Exception):
    """A call that did not do what it was asked for.

    ``status`` is the HTTP status, or 0 where no proper answer came; ``reason`` is the API's word for it
    (``NotFound``, ``Conflict``…) or ours: ``Timeout``, ``ConnectionFailed``, ``MalformedResponse``,
    ``LineTooLong``, ``Truncated``, ``Unauthenticated``. ``retry_after`` is in seconds, ``body`` the
    API's Status object where there is one.
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
        return f"{self.status or 'no answer'} {self.reason}: {self.message}"

    @property
    def is_not_found(self) -> bool:
        """The object, or the whole resource, does not exist."""
        return self.status == 404

    def concerns(self, name: str) -> bool:
        """It is about the object of this name: where a kind is not served, nothing is said of its objects."""
        details = self.body.get("details")
        return isinstance(details, dict) and details.get("name") == name

    @property
    def is_already_exists(self) -> bool:
        """An object of that name exists."""
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def is_conflict(self) -> bool:
        """Decided on an object that has changed since: read again and decide again."""
        return self.status == 409 and self.reason != "AlreadyExists"

    @property
    def is_gone(self) -> bool:
        """The resource version, or the continue token, is too old: list again."""
        return self.status == 410

    @property
    def is_invalid(self) -> bool:
        """The object or the patch is refused for what it says; sending it again is of no use."""
        return self.status in {400, 413, 415, 422}

    @property
    def is_forbidden(self) -> bool:
        """The rules (RBAC, quota, an admission policy) do not allow it."""
        return self.status == 403

    @property
    def is_refused(self) -> bool:
        """The object, or the patch, is not taken: for what it says, or by the rules."""
        return self.is_invalid or self.is_forbidden

    @property
    def is_namespace_terminating(self) -> bool:
        """Nothing can be created in the namespace any more."""
        causes = (self.body.get("details") or {}).get("causes") or ()
        return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)

    @property
    def is_transient(self) -> bool:
        """The same call may go through later. Whether this one had an effect is not known."""
        return self.status in {0, 401, 408, 429} or self.status >= 500


class PermanentRejection(Exception):
    """A key cannot be brought forward until what it is made of changes; its message says why."""


class NotLeadingError(Exception):
    """A write was refused here, before it was sent: this process may no longer hold its lease."""
