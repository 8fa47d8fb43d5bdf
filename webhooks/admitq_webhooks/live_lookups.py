"""Lookups of webhooks in the live cluster, and the API calls of certificate rotation and authorization."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from admitq.integrations.base import Integration
from admitq.process.unexpected_errors import LOG_ONLY, UnexpectedErrors
from admitq.runtime.client import Client
from admitq.runtime.discovery import find_resource_of_kind
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import (
    API_SERVICES,
    CRDS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    SECRETS,
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    VALIDATING_WEBHOOKS,
    Resource,
)
from admitq.runtime.store import Store
from admitq.runtime.watcher import Watcher
from admitq.serving.access_reviews import Access, AccessReviews
from admitq.serving.authorization import ReviewFailed, User
from admitq.serving.rotation import BundleTarget, CertificateApiError
from admitq_api.json_objects import select_fields, value_at
from admitq_api.labels import Names
from admitq_webhooks.lookups import LookupFailed

_TARGETS: Final[Mapping[str, Resource]] = {
    resource.plural: resource for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, CRDS, API_SERVICES)
}


def select_lookup_fields(*fields: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that reduces an object to its identity, its labels and these fields of its spec."""

    def kept(obj: dict[str, Any]) -> dict[str, Any]:
        metadata = cast("dict[str, Any]", obj.get("metadata") or {})
        spec = cast("dict[str, Any]", obj.get("spec") or {})
        identity = ("name", "namespace", "uid", "resourceVersion", "labels")
        return {
            "apiVersion": obj.get("apiVersion"),
            "kind": obj.get("kind"),
            "metadata": select_fields(metadata, identity),
            **({"spec": select_fields(spec, fields)} if fields else {}),
        }

    return kept


def _watched_resources(names: Names) -> Mapping[Resource, Callable[[dict[str, Any]], dict[str, Any]]]:
    """Return the watched resources, and the functions that reduce their objects."""
    kinds = kinds_of(names)
    return {
        NAMESPACES: select_lookup_fields(),
        kinds.workload_priority_classes: select_lookup_fields(),
        kinds.local_queues: select_lookup_fields("clusterQueue"),
        kinds.cluster_queues: select_lookup_fields("admissionChecksStrategy"),
        kinds.admission_checks: select_lookup_fields("controllerName"),
    }


class LiveLookups:
    """Lookups in the stores of watches, and of other objects by calls to the API server.

    Args:
        client: reads objects that are not in a store.
        names: names of the API group.
        integrations: kinds of jobs that may be owners.
        stores: stores of namespaces, and of the objects of admitq's kinds that lookups need.
    """

    def __init__(
        self,
        client: Client,
        names: Names,
        integrations: Iterable[Integration],
        stores: Mapping[Resource, Store],
    ) -> None:
        kinds = kinds_of(names)
        self._client = client
        self._local_queues = stores[kinds.local_queues]
        self._cluster_queues = stores[kinds.cluster_queues]
        self._checks = stores[kinds.admission_checks]
        self._priority_classes = stores[kinds.workload_priority_classes]
        self._namespaces = stores[NAMESPACES]
        self._access = AccessReviews(ServingCalls(client))
        self._resources: dict[tuple[str, str, str], Resource] = {
            integration.gvk: Resource(
                integration.group, integration.version, integration.plural, integration.kind, namespaced=True
            )
            for integration in integrations
        }

    def has_local_queue(self, namespace: str, name: str) -> bool:
        """Return whether the LocalQueue exists."""
        return (namespace, name) in self._local_queues

    def has_priority_class(self, name: str) -> bool:
        """Return whether the WorkloadPriorityClass exists."""
        return ("", name) in self._priority_classes

    def admission_check_controllers(self, namespace: str, queue: str) -> frozenset[str]:
        """Return the controllers of the admission checks that jobs of a LocalQueue have to pass."""
        local_queue = self._local_queues.get(namespace, queue)
        cluster_queue = self._cluster_queues.get("", value_at(local_queue, ("spec", "clusterQueue"), ""))
        rules = value_at(cluster_queue, ("spec", "admissionChecksStrategy", "admissionChecks"), [])
        checks = (self._checks.get("", rule["name"]) for rule in rules)
        return frozenset(value_at(check, ("spec", "controllerName"), "") for check in checks if check)

    async def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace; None if it does not exist.

        A namespace that the watch has not reported yet is read.

        Raises:
            LookupFailed: the object cannot be read.
        """
        namespace = self._namespaces.get("", name)
        if namespace is None and name:
            namespace = await self._read(NAMESPACES, name, None)
        return None if namespace is None else value_at(namespace, ("metadata", "labels"), {})

    async def get_object(
        self, group: str, version: str, kind: str, namespace: str, name: str
    ) -> Mapping[str, Any] | None:
        """Return an object that is named as an owner; None if it, or its kind, does not exist.

        Raises:
            LookupFailed: the object cannot be read.
        """
        resource = await self._resource(group, version, kind)
        if resource is None or not name:
            return None
        return await self._read(resource, name, namespace if resource.namespaced else None)

    async def is_allowed(self, user: User, access: Access) -> bool:
        """Return whether the API server authorizes an access of a user.

        Raises:
            LookupFailed: the API server did not answer in time.
        """
        try:
            return await self._access.may(user, access)
        except ReviewFailed as error:
            raise LookupFailed(f"whether {user.name!r} may {access} is not known: {error}") from error

    async def plural(self, group: str, version: str, kind: str) -> str | None:
        """Return the plural of a kind; None if the API server does not serve the kind.

        Raises:
            LookupFailed: the plural is not known here, and discovery failed.
        """
        resource = await self._resource(group, version, kind)
        return None if resource is None else resource.plural

    async def _resource(self, group: str, version: str, kind: str) -> Resource | None:
        known = self._resources.get((group, version, kind))
        if known is not None:
            return known
        try:
            resource = await find_resource_of_kind(self._client, group, version, kind)
        except ApiError as error:
            raise LookupFailed(f"{group}/{version} cannot be read: {error.reason}") from error
        if resource is not None:
            self._resources[group, version, kind] = resource
        return resource

    async def _read(self, resource: Resource, name: str, namespace: str | None) -> dict[str, Any] | None:
        try:
            return await self._client.get(resource, name, namespace)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise LookupFailed(f"{resource} {name} cannot be read: {error.reason}") from error
        except ValueError:
            # The name cannot be part of a path, so no object has it.
            return None


def watched_lookups(
    client: Client,
    names: Names,
    integrations: Iterable[Integration],
    errors: UnexpectedErrors = LOG_ONLY,
) -> tuple[LiveLookups, Sequence[Watcher]]:
    """Return lookups and their watchers, which the caller runs.

    The lookups are reliable once every watcher is ``synced``. ``errors`` reports unexpected errors of
    watches.
    """
    stores = {
        resource: Store(resource, transform=transform, errors=errors)
        for resource, transform in _watched_resources(names).items()
    }
    lookups = LiveLookups(client, names, integrations, stores)
    return lookups, [Watcher(client, resource, store, errors=errors) for resource, store in stores.items()]


class ServingCalls:
    """The calls of certificate rotation and of authorization, made with our client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get_secret(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return the Secret; None if it does not exist.

        Raises:
            ApiFailed: it cannot be read.
        """
        return await self._get(SECRETS, name, namespace)

    async def create_secret(self, secret: Mapping[str, Any]) -> bool:
        """Create the Secret; return False if it exists already.

        Raises:
            ApiFailed: the API server rejected the write.
        """
        try:
            await self._client.create(SECRETS, dict(secret))
        except ApiError as error:
            if error.is_already_exists:
                return False
            raise CertificateApiError(f"Secret not created: {error}") from error
        return True

    async def replace_secret(self, secret: Mapping[str, Any]) -> bool:
        """Replace the Secret; return False if it has changed since it was read.

        Raises:
            ApiFailed: the API server rejected the write.
        """
        try:
            await self._client.replace(SECRETS, dict(secret))
        except ApiError as error:
            if error.is_conflict or error.is_not_found:
                return False
            raise CertificateApiError(f"Secret not written: {error}") from error
        return True

    async def get_configuration(self, target: BundleTarget) -> Mapping[str, Any] | None:
        """Return a webhook configuration, CRD or APIService; None if it does not exist.

        Raises:
            ApiFailed: it cannot be read.
        """
        return await self._get(_TARGETS[target.resource], target.name, None)

    async def patch_configuration(self, target: BundleTarget, operations: list[dict[str, Any]]) -> None:
        """Apply a JSON patch to a webhook configuration, CRD or APIService.

        Raises:
            ApiFailed: the API server rejected the patch, or the object has changed since it was read.
        """
        try:
            await self._client.json_patch(_TARGETS[target.resource], target.name, operations)
        except ApiError as error:
            raise CertificateApiError(f"{target} not patched: {error}") from error

    async def create_token_review(self, review: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask the API server for the user of a token.

        Raises:
            ReviewFailed: the API server did not answer.
        """
        return await self._review(TOKEN_REVIEWS, review)

    async def create_subject_access_review(self, review: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask the API server whether a user has an access.

        Raises:
            ReviewFailed: the API server did not answer.
        """
        return await self._review(SUBJECT_ACCESS_REVIEWS, review)

    async def _review(self, resource: Resource, review: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return await self._client.create(resource, dict(review))
        except ApiError as error:
            raise ReviewFailed(f"{resource.kind}: {error.reason}") from error

    async def _get(self, resource: Resource, name: str, namespace: str | None) -> Mapping[str, Any] | None:
        try:
            return await self._client.get(resource, name, namespace)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise CertificateApiError(f"{resource.kind} {name} cannot be read: {error}") from error
