"""``doctor``: what is wrong with admitq in a cluster, and the command that mends it."""

from typing import TYPE_CHECKING, Final

from admitq.plugin.command import Arguments, Command, Parameter
from admitq.plugin.documents import print_document
from admitq.plugin.options import CLUSTER, ClusterOptions

if TYPE_CHECKING:
    from admitq.plugin.cluster_access import ClusterAccess
    from admitq.plugin.findings import Finding

TABLE: Final = "table"
UNHEALTHY: Final = 1


def _doctor(arguments: Arguments) -> int:
    from admitq.plugin.cluster_access import call_cluster

    async def read(access: "ClusterAccess") -> "list[Finding]":
        from admitq.plugin.examination import examine

        return await examine(access, arguments.namespace)

    findings = call_cluster(ClusterOptions.of(arguments), read)
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


DOCTOR: Final = Command(
    ("doctor",),
    "Check the installation: what is wrong, and the command that mends it.\n\n"
    "It checks kinds, processes and versions, the leader, certificates, the visibility API, queues, "
    "admission checks, quarantined objects and feature gates, in all namespaces or in that of --namespace. "
    "It exits with status 1 if there is an error. It changes nothing.",
    (
        Parameter(("--output", "-o"), "Format.", choices=(TABLE, "json", "yaml"), default=TABLE),
        *CLUSTER,
    ),
    _doctor,
)
