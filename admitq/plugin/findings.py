"""What ``doctor`` finds in the objects of a cluster. Pure."""

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from admitq.plugin.ages import DAY, format_duration, seconds_since
from admitq.plugin.rows import condition_at, is_true
from admitq_api.feature_gates import FeatureGateError, FeatureGates
from admitq_api.json_objects import JsonObject, as_int, objects_at, text_at, value_at

OK: Final = "ok"
WARNING: Final = "warning"
ERROR: Final = "error"

EXPIRES_SOON_S: Final = 14 * DAY
"""From when on a certificate that expires is a warning, in seconds before."""
SINGULARS: Final = {"clusterqueues": "clusterqueue", "localqueues": "localqueue"}


class Finding(NamedTuple):
    """A result of a check.

    Args:
        level: ``ok``, ``warning`` or ``error``.
        check: what was checked.
        subject: the object, or the objects.
        text: what was found.
        remedy: what to do, such as a command; empty if nothing.
    """

    level: str
    check: str
    subject: str
    text: str
    remedy: str = ""


def name_of(obj: JsonObject) -> str:
    """Return the namespace and name of an object."""
    namespace, name = (text_at(obj, ("metadata", field)) for field in ("namespace", "name"))
    return f"{namespace}/{name}" if namespace else name


def _in_namespace(obj: JsonObject) -> str:
    return f"{text_at(obj, ('metadata', 'name'))} -n {text_at(obj, ('metadata', 'namespace'))}"


def check_kinds(wanted: Iterable[str], served: Iterable[str], group: str) -> list[Finding]:
    """Check that the cluster serves all kinds."""
    missing = sorted(set(wanted) - set(served))
    if not missing:
        return [Finding(OK, "kinds", group, "all are served")]
    remedy = f"admitq crds --api-group {group} | kubectl apply --server-side -f -"
    return [Finding(ERROR, "kinds", group, f"not served: {', '.join(missing)}", remedy)]


def check_deployments(deployments: Iterable[JsonObject], version: str) -> list[Finding]:
    """Check that managers and webhooks are ready, and have the version of the plugin."""
    findings: list[Finding] = []
    for one in deployments:
        wanted = as_int(value_at(one, ("spec", "replicas")), 1)
        ready = as_int(value_at(one, ("status", "readyReplicas")))
        level = OK if ready >= wanted else WARNING if ready else ERROR
        remedy = "" if level == OK else f"kubectl describe deployment {_in_namespace(one)}"
        findings.append(Finding(level, "processes", name_of(one), f"{ready} of {wanted} are ready", remedy))
        installed = text_at(one, ("metadata", "labels", "app.kubernetes.io/version"))
        if installed and installed != version:
            text = f"has version {installed}; the plugin has {version}"
            findings.append(
                Finding(WARNING, "versions", name_of(one), text, f"pip install admitq=={installed}")
            )
    if not findings:
        text = "no Deployment of the chart exists"
        remedy = "Select another namespace with -n, or install the chart: helm install admitq."
        findings.append(Finding(WARNING, "processes", "admitq", text, remedy))
    return findings


def check_leases(leases: Iterable[JsonObject], now: int) -> list[Finding]:
    """Check that a manager leads: it renews the Lease."""
    findings: list[Finding] = []
    for lease in leases:
        holder = text_at(lease, ("spec", "holderIdentity"))
        remedy = (
            f"kubectl logs -n {text_at(lease, ('metadata', 'namespace'))} "
            "-l app.kubernetes.io/part-of=admitq,app.kubernetes.io/component=manager"
        )
        age = seconds_since(text_at(lease, ("spec", "renewTime")), now)
        if not holder or age is None:
            findings.append(Finding(ERROR, "leader", name_of(lease), "no manager leads", remedy))
            continue
        text = f"{holder} leads, and renewed it {format_duration(age)} ago"
        late = age > as_int(value_at(lease, ("spec", "leaseDurationSeconds")), 15)
        if late:
            text = f"no manager leads: {holder} renewed it last, {format_duration(age)} ago"
        findings.append(
            Finding(ERROR if late else OK, "leader", name_of(lease), text, remedy if late else "")
        )
    if not findings:
        text = "no Lease of a manager exists, so no manager has ever led here"
        findings.append(Finding(WARNING, "leader", "admitq", text, "Select another namespace with -n."))
    return findings


Expiry = Callable[[bytes], "list[int]"]
"""Returns when each certificate of a PEM text expires, in nanoseconds since 1970.

Raises ValueError: the text has no certificates.
"""


def check_webhooks(configurations: Iterable[JsonObject], expiry: Expiry, now: int) -> list[Finding]:
    """Check that the API server trusts certificates of the webhooks that are still valid."""
    findings: list[Finding] = []
    for one in configurations:
        bundles = {text_at(hook, ("clientConfig", "caBundle")) for hook in objects_at(one, ("webhooks",))}
        subject = f"{text_at(one, ('kind',)) or 'webhooks'} {name_of(one)}"
        remedy = "kubectl logs -A -l app.kubernetes.io/part-of=admitq,app.kubernetes.io/component=webhook"
        if "" in bundles:
            findings.append(Finding(ERROR, "certificates", subject, "a webhook has no caBundle", remedy))
        findings += (
            _check_certificates(subject, bundle, expiry, now, remedy) for bundle in sorted(bundles - {""})
        )
    return findings


def check_secrets(secrets: Iterable[JsonObject], expiry: Expiry, now: int) -> list[Finding]:
    """Check that the serving certificates in Secrets are valid."""
    return [
        _check_certificates(f"Secret {name_of(one)}", certificate, expiry, now, _renew(one))
        for one in secrets
        if (certificate := text_at(one, ("data", "tls.crt")))
    ]


def _renew(secret: JsonObject) -> str:
    return f"kubectl delete secret {_in_namespace(secret)}, so that it is created again"


def _check_certificates(subject: str, encoded: str, expiry: Expiry, now: int, remedy: str) -> Finding:
    try:
        # One valid certificate is enough: during a rotation there are several.
        last = max(expiry(base64.b64decode(encoded, validate=True)))
    except (ValueError, binascii.Error):
        return Finding(ERROR, "certificates", subject, "is not a certificate", remedy)
    remaining = (last - now) // 10**9
    if remaining < 0:
        text = f"expired {format_duration(-remaining)} ago"
        return Finding(ERROR, "certificates", subject, text, remedy)
    level = WARNING if remaining < EXPIRES_SOON_S else OK
    text = f"expires in {format_duration(remaining)}"
    return Finding(level, "certificates", subject, text, remedy if level == WARNING else "")


def check_api_services(services: Iterable[JsonObject]) -> list[Finding]:
    """Check that the API server reaches the visibility API, if it is installed."""
    findings: list[Finding] = []
    for one in services:
        if is_true(one, "Available"):
            findings.append(Finding(OK, "visibility API", name_of(one), "is available"))
            continue
        message = text_at(condition_at(one, "Available"), ("message",)) or "the API server has not checked it"
        text = f"{message}; namespaces cannot be deleted until it answers"
        remedy = "kubectl logs -A -l app.kubernetes.io/part-of=admitq,app.kubernetes.io/component=visibility"
        findings.append(Finding(ERROR, "visibility API", name_of(one), text, remedy))
    return findings


def check_queues(queues: Iterable[JsonObject], plural: str, group: str) -> list[Finding]:
    """Check that queues are active, and that no jobs are refused because they cannot be read."""
    findings: list[Finding] = []
    count = 0
    for one in queues:
        count += 1
        subject = f"{SINGULARS[plural]} {name_of(one)}"
        namespace = text_at(one, ("metadata", "namespace"))
        where = f" -n {namespace}" if namespace else ""
        name = text_at(one, ("metadata", "name"))
        active = condition_at(one, "Active")
        reason, message = (text_at(active, (field,)) for field in ("reason", "message"))
        if not active:
            text = "no manager has set its condition Active"
            findings.append(
                Finding(ERROR, "queues", subject, text, "See the checks of leader and processes.")
            )
        elif reason == "Stopped":
            remedy = f"kubectl admitq resume {SINGULARS[plural]} {name}{where}"
            findings.append(Finding(WARNING, "queues", subject, message, remedy))
        elif reason == "Unknown":
            remedy = f"kubectl edit {plural}.{group} {name}{where}"
            findings.append(Finding(ERROR, "quarantine", subject, message, remedy))
        elif active.get("status") != "True":
            remedy = f"kubectl describe {plural}.{group} {name}{where}"
            findings.append(Finding(ERROR, "queues", subject, f"{reason}: {message}", remedy))
        if is_true(one, "JobsRefused"):
            text = text_at(condition_at(one, "JobsRefused"), ("message",))
            remedy = "Repair or delete the job that the message names."
            findings.append(Finding(WARNING, "quarantine", subject, text, remedy))
    return findings or [Finding(OK, "queues", plural, f"all {count} are active")]


def check_admission_checks(checks: Iterable[JsonObject]) -> list[Finding]:
    """Check that a controller has set each AdmissionCheck active."""
    findings: list[Finding] = []
    for one in checks:
        if is_true(one, "Active"):
            continue
        controller = text_at(one, ("spec", "controllerName"))
        active = condition_at(one, "Active")
        text = text_at(active, ("message",)) if active else f"its controller {controller} has not reported it"
        remedy = f"Check that the controller {controller} runs; workloads with this check wait until it does."
        findings.append(Finding(ERROR, "admission checks", name_of(one), text, remedy))
    return findings


def check_events(events: Iterable[JsonObject], reasons: Sequence[str]) -> list[Finding]:
    """Report objects that a manager has quarantined, as its events state."""
    found: dict[tuple[str, str, str], Finding] = {}
    for event in events:
        if text_at(event, ("reason",)) not in reasons:
            continue
        kind, namespace, name = (
            text_at(event, ("regarding", field)) for field in ("kind", "namespace", "name")
        )
        where = f" -n {namespace}" if namespace else ""
        found[kind, namespace, name] = Finding(
            WARNING,
            "quarantine",
            f"{kind} {f'{namespace}/' if namespace else ''}{name}",
            text_at(event, ("note",)),
            f"kubectl edit {kind.lower()} {name}{where}; this is an event, and it may be repaired already.",
        )
    return [found[key] for key in sorted(found)]


def check_gates(gates: Mapping[str, Any], subject: str) -> list[Finding]:
    """Report feature gates that are set and have no effect."""
    try:
        notes = FeatureGates.from_mapping(gates).list_notes()
    except (FeatureGateError, TypeError) as error:
        return [Finding(ERROR, "gates", subject, str(error), "Remove it from featureGates.")]
    return [Finding(WARNING, "gates", subject, note, "Remove it from featureGates.") for note in notes]


def forbidden(check: str, message: str) -> Finding:
    """Return the finding of a check for which the user has no right."""
    return Finding(WARNING, check, "not checked", message, "Ask an administrator to run this command.")
