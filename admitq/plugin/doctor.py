"""``doctor``: what is wrong with admitq in a cluster, and the command that mends it."""

from typing import TYPE_CHECKING, Any, Final

from admitq.plugin.command import Arguments, Command, Parameter
from admitq.plugin.documents import print_document
from admitq.plugin.options import CLUSTER, ClusterOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from admitq.plugin.cluster_access import ClusterAccess
    from admitq.plugin.findings import Finding

TABLE: Final = "table"
PARTS: Final = "app.kubernetes.io/part-of=admitq"
"""The label of all objects of the chart."""
QUARANTINE_EVENTS: Final = ("Malformed", "InternalError", "ErrWorkloadCompose")
"""The reasons of events about objects that a manager cannot handle."""
UNHEALTHY: Final = 1


def _doctor(arguments: Arguments) -> int:
    from admitq.plugin.cluster_access import call_cluster

    async def examine(access: "ClusterAccess") -> "list[Finding]":
        return await _examine(access, arguments.namespace)

    findings = call_cluster(ClusterOptions.of(arguments), examine)
    if arguments.output == TABLE:
        print(_report(findings))
    else:
        print_document([finding._asdict() for finding in findings], arguments.output)
    return UNHEALTHY if any(finding.level == "error" for finding in findings) else 0


def _report(findings: "list[Finding]") -> str:
    from admitq.plugin.tables import has_colors, render_table, safe_text

    rows = [
        [finding.level, *map(safe_text, (finding.check, finding.subject, finding.text))]
        for finding in findings
    ]
    titles, *lines = render_table(
        ("LEVEL", "CHECK", "OBJECT", "FINDING"), rows, colored=has_colors()
    ).splitlines()
    with_remedies = [
        f"{line}\n{' ' * 10}→ {safe_text(finding.remedy)}" if finding.remedy else line
        for line, finding in zip(lines, findings, strict=True)
    ]
    return "\n".join([titles, *with_remedies])


async def _examine(access: "ClusterAccess", namespace: str | None) -> "list[Finding]":
    import time

    from admitq.plugin import findings as checks
    from admitq.runtime import resources
    from admitq_api.version import VERSION

    client, kinds, now = access.client, access.kinds, time.time_ns()

    async def listed(resource: resources.Resource, selector: str | None = None) -> list[dict[str, Any]]:
        found, _ = await client.list(resource, namespace if resource.namespaced else None, selector)
        return [{"kind": resource.kind, **one} for one in found]

    async def kinds_served() -> "list[Finding]":
        from dataclasses import astuple

        from admitq.runtime.discovery import list_resources

        served = await list_resources(client, access.names.group, access.names.version)
        wanted = [resource[3] for resource in astuple(kinds)]
        return checks.check_kinds(wanted, [one.kind for one in served], access.names.group)

    async def processes() -> "list[Finding]":
        return checks.check_deployments(await listed(resources.DEPLOYMENTS, PARTS), VERSION)

    async def leader() -> "list[Finding]":
        return checks.check_leases(await listed(resources.LEASES, PARTS), now)

    async def webhooks() -> "list[Finding]":
        configurations = [
            *await listed(resources.MUTATING_WEBHOOKS, PARTS),
            *await listed(resources.VALIDATING_WEBHOOKS, PARTS),
        ]
        return checks.check_webhooks(configurations, _expiry, now)

    async def secrets() -> "list[Finding]":
        return checks.check_secrets(await listed(resources.SECRETS, PARTS), _expiry, now)

    async def cluster_queues() -> "list[Finding]":
        queues = await listed(kinds.cluster_queues)
        return checks.check_queues(queues, kinds.cluster_queues.plural, access.names.group)

    async def local_queues() -> "list[Finding]":
        queues = await listed(kinds.local_queues)
        return checks.check_queues(queues, kinds.local_queues.plural, access.names.group)

    async def admission_checks() -> "list[Finding]":
        return checks.check_admission_checks(await listed(kinds.admission_checks))

    async def quarantine() -> "list[Finding]":
        return checks.check_events(await listed(resources.EVENTS), QUARANTINE_EVENTS)

    async def gates() -> "list[Finding]":
        found: list[Finding] = []
        for one in await listed(resources.CONFIG_MAPS, PARTS):
            found += checks.check_gates(_gates_of(one), f"ConfigMap {checks.name_of(one)}")
        return found

    findings: list[Finding] = []
    for name, check in (
        ("kinds", kinds_served),
        ("processes", processes),
        ("leader", leader),
        ("certificates", webhooks),
        ("certificates", secrets),
        ("queues", cluster_queues),
        ("queues", local_queues),
        ("admission checks", admission_checks),
        ("quarantine", quarantine),
        ("gates", gates),
    ):
        findings += await _attempt(name, check())
    return findings


async def _attempt(name: str, check: "Awaitable[list[Finding]]") -> "list[Finding]":
    from admitq.plugin.findings import forbidden
    from admitq.runtime.errors import ApiError

    try:
        return await check
    except ApiError as error:
        if error.is_forbidden:
            return [forbidden(name, error.message)]
        if error.is_not_found:  # a kind that is not served, which the first check reports
            return []
        raise


def _gates_of(config_map: dict[str, Any]) -> dict[str, Any]:
    """Return the feature gates of the configuration file in a ConfigMap; none if it has no such file."""
    import yaml

    from admitq_api.json_objects import object_at, text_at

    try:
        configuration: Any = yaml.safe_load(text_at(config_map, ("data", "config.yaml")))
    except yaml.YAMLError:
        return {}
    return dict(object_at(configuration, ("featureGates",)))


def _expiry(pem: bytes) -> list[int]:
    from admitq.serving.certificates import validity

    end = b"-----END CERTIFICATE-----"
    parts = pem.split(end)[:-1]
    if not parts:
        raise ValueError("no certificate")
    return [validity(part.strip() + b"\n" + end + b"\n").not_after for part in parts]


DOCTOR: Final = Command(
    ("doctor",),
    "Check the installation: what is wrong, and the command that mends it.\n\n"
    "It checks kinds, processes and versions, the leader, certificates, queues, admission checks, "
    "quarantined objects and feature gates, in all namespaces or in that of --namespace. It exits with "
    "status 1 if there is an error. It changes nothing.",
    (
        Parameter(("--output", "-o"), "Format.", choices=(TABLE, "json", "yaml"), default=TABLE),
        *CLUSTER,
    ),
    _doctor,
)
