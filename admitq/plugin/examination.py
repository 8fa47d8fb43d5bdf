"""What ``doctor`` reads from a cluster, for the checks in `admitq.plugin.findings`."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from admitq.plugin import findings
from admitq.plugin.findings import Finding
from admitq.runtime import resources
from admitq.runtime.discovery import list_resources
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq.serving.certificates import validity
from admitq_api.json_objects import object_at, text_at
from admitq_api.version import VERSION

if TYPE_CHECKING:
    from admitq.plugin.cluster_access import ClusterAccess

PARTS: Final = "app.kubernetes.io/part-of=admitq"
"""The label of all objects of the chart."""
QUARANTINE_EVENTS: Final = ("Malformed", "InternalError", "ErrWorkloadCompose")
"""The reasons of events about objects that a manager cannot handle."""
END_OF_CERTIFICATE: Final = b"-----END CERTIFICATE-----"


@dataclass(frozen=True)
class Examination:
    """The cluster that is examined, at one time.

    Args:
        access: the cluster.
        namespace: where objects are examined; None means all namespaces.
        now: the time in nanoseconds since 1970.
    """

    access: "ClusterAccess"
    namespace: str | None
    now: int

    async def list(self, resource: Resource, selector: str | None = None) -> list[dict[str, Any]]:
        """Return objects, each with its kind."""
        namespace = self.namespace if resource.namespaced else None
        found, _ = await self.access.client.list(resource, namespace, selector)
        return [{"kind": resource.kind, **one} for one in found]


async def _kinds(one: Examination) -> list[Finding]:
    names = one.access.names
    served = await list_resources(one.access.client, names.group, names.version)
    wanted = [resource[3] for resource in astuple(one.access.kinds)]
    return findings.check_kinds(wanted, [resource.kind for resource in served], names.group)


async def _processes(one: Examination) -> list[Finding]:
    return findings.check_deployments(await one.list(resources.DEPLOYMENTS, PARTS), VERSION)


async def _leader(one: Examination) -> list[Finding]:
    return findings.check_leases(await one.list(resources.LEASES, PARTS), one.now)


async def _webhooks(one: Examination) -> list[Finding]:
    mutating = await one.list(resources.MUTATING_WEBHOOKS, PARTS)
    validating = await one.list(resources.VALIDATING_WEBHOOKS, PARTS)
    return findings.check_webhooks([*mutating, *validating], list_expiries, one.now)


async def _secrets(one: Examination) -> list[Finding]:
    return findings.check_secrets(await one.list(resources.SECRETS, PARTS), list_expiries, one.now)


async def _api_services(one: Examination) -> list[Finding]:
    return findings.check_api_services(await one.list(resources.API_SERVICES, PARTS))


async def _cluster_queues(one: Examination) -> list[Finding]:
    queues = one.access.kinds.cluster_queues
    return findings.check_queues(await one.list(queues), queues.plural, queues.group)


async def _local_queues(one: Examination) -> list[Finding]:
    queues = one.access.kinds.local_queues
    return findings.check_queues(await one.list(queues), queues.plural, queues.group)


async def _admission_checks(one: Examination) -> list[Finding]:
    return findings.check_admission_checks(await one.list(one.access.kinds.admission_checks))


async def _quarantine(one: Examination) -> list[Finding]:
    return findings.check_events(await one.list(resources.EVENTS), QUARANTINE_EVENTS)


async def _gates(one: Examination) -> list[Finding]:
    return [
        finding
        for config_map in await one.list(resources.CONFIG_MAPS, PARTS)
        for finding in findings.check_gates(
            list_gates(config_map), f"ConfigMap {findings.name_of(config_map)}"
        )
    ]


CHECKS: Final[tuple[tuple[str, Callable[[Examination], Awaitable[list[Finding]]]], ...]] = (
    ("kinds", _kinds),
    ("processes", _processes),
    ("leader", _leader),
    ("certificates", _webhooks),
    ("certificates", _secrets),
    ("visibility API", _api_services),
    ("queues", _cluster_queues),
    ("queues", _local_queues),
    ("admission checks", _admission_checks),
    ("quarantine", _quarantine),
    ("gates", _gates),
)
"""All checks, in the order of the report."""


async def examine(access: "ClusterAccess", namespace: str | None) -> list[Finding]:
    """Return the findings of all checks. A check for which the user has no right is a warning.

    Raises:
        ApiError: a call failed.
    """
    one = Examination(access, namespace, time.time_ns())
    found: list[Finding] = []
    for name, check in CHECKS:
        try:
            found += await check(one)
        except ApiError as error:
            if error.is_forbidden:
                found.append(findings.forbidden(name, error.message))
            elif not error.is_not_found:  # A kind is not served; the first check reports it.
                raise
    return found


def list_gates(config_map: dict[str, Any]) -> dict[str, Any]:
    """Return the feature gates of the configuration file in a ConfigMap; none if it has no such file."""
    try:
        configuration: Any = yaml.safe_load(text_at(config_map, ("data", "config.yaml")))
    except yaml.YAMLError:
        return {}
    return dict(object_at(configuration, ("featureGates",)))


def list_expiries(pem: bytes) -> list[int]:
    """Return when each certificate of a PEM text expires, in nanoseconds since 1970.

    Raises:
        ValueError: the text has no certificates.
    """
    parts = pem.split(END_OF_CERTIFICATE)[:-1]
    if not parts:
        raise ValueError("no certificate")
    return [validity(part.strip() + b"\n" + END_OF_CERTIFICATE + b"\n").not_after for part in parts]
