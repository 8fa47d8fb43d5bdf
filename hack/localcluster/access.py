"""Compare the audit log of a test run with the access rules of the chart.

Report calls that were refused, permissions that no call used, and calls that name the API group that is not
served. Only calls by admitq's own ServiceAccounts count. A rule is split into single permissions (group,
resource, verb). A call must have used each of them. Remove unused permissions from the chart.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from admitq_api.labels import GROUPS, names_for
from localcluster.api import Api

COMPONENTS = ("manager", "webhook")
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


class AllowedVerb(NamedTuple):
    """A verb on a resource that a rule allows."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}.{self.group}" if self.group else f"{self.verb} {self.resource}"


@dataclass(frozen=True)
class Call:
    """A call in the audit log."""

    user: str
    permission: AllowedVerb
    target: str
    allowed: bool
    url: str = ""
    """The path and the query, which contains selectors and the field manager."""


def calls(lines: Iterable[str]) -> Iterator[Call]:
    """Read the calls from an audit log, without those that name no resource."""
    for line in lines:
        event = json.loads(line)
        about = event.get("objectRef")
        if not about or "resource" not in about:
            continue
        resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
        # The token has expired. This is not a refusal by a rule.
        notes = event.get("annotations") or {}
        # The audit annotation shows that a policy of the chart would reject this write of the chart's own
        # accounts.
        is_denied = "validation.policy.admission.k8s.io/validation_failure" in notes
        yield Call(
            user=event.get("user", {}).get("username", ""),
            permission=AllowedVerb(about.get("apiGroup", ""), resource, event["verb"]),
            target="/".join(filter(None, (about.get("namespace"), about.get("name")))),
            allowed=notes.get("authorization.k8s.io/decision") != "forbid" and not is_denied,
            url=unquote(event.get("requestURI", "")),
        )


def permissions(rules: Iterable[Mapping[str, Any]]) -> set[AllowedVerb]:
    """Return the single permissions of a role's rules."""
    return {
        AllowedVerb(group, resource, verb)
        for rule in rules
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
        for verb in rule.get("verbs") or ()
    }


def refused(calls: Iterable[Call]) -> list[str]:
    """Return a line for each call that the rules do not allow."""
    return sorted({f"{call.user}: {call.permission} {call.target}" for call in calls if not call.allowed})


def foreign(calls: Iterable[Call], group: str) -> list[str]:
    """Return a line for each call that names the API group that is not served."""
    others = [names_for(other) for other in GROUPS if other != group]
    marks = [mark for names in others for mark in (names.group, f"fieldManager={names.metric_prefix}-")]
    return sorted(
        {
            f"{call.user}: {call.permission} {call.url}"
            for call in calls
            if any(mark in call.url for mark in marks)
        }
    )


def unused(granted: set[AllowedVerb], calls: Iterable[Call]) -> list[str]:
    """Return a line for each permission that no call needed."""
    return sorted(
        str(permission) for permission in granted - {call.permission for call in calls if call.allowed}
    )


def problems(
    api: Api, log: Path, others: Iterable[Path], *, prefix: str, namespace: str, group: str, whole_run: bool
) -> list[str]:
    """Compare a cluster's audit log with the rules of a release.

    Args:
        api: the API of the cluster with the release.
        log: its audit log.
        others: audit logs of clusters with the same rules. Only used permissions of these count: tests kill
            their API servers, and a starting API server refuses all calls until it has its rules.
        prefix: the prefix of the names of the release's ServiceAccounts.
        namespace: the namespace of the release.
        group: the API group that the release serves.
        whole_run: whether every test ran, so that every permission must have been used.

    Returns:
        A line for each call that was refused or names the other group, and for each unused permission.
    """
    own_calls, elsewhere = _read(log), [call for other in others for call in _read(other)]
    problems_found: list[str] = []
    for component in COMPONENTS:
        name = f"{prefix}-{component}"
        user = f"system:serviceaccount:{namespace}:{name}"
        here = [call for call in own_calls if call.user == user]
        problems_found += [f"refused: {line}" for line in refused(here)]
        problems_found += [f"of another API group: {line}" for line in foreign(here, group)]
        if whole_run:
            granted = granted_permissions(api, name, namespace)
            own = [call for call in (*own_calls, *elsewhere) if call.user == user]
            problems_found += [
                f"unused: {name} may {line}, and no test needs it" for line in unused(granted, own)
            ]
    return problems_found


def _read(log: Path) -> list[Call]:
    with log.open() as lines:
        return list(calls(lines))


def granted_permissions(api: Api, name: str, namespace: str) -> set[AllowedVerb]:
    """Return the permissions of the ClusterRole and of the Role with a name."""
    return permissions(_rules(api, name, namespace))


def _rules(api: Api, name: str, namespace: str) -> list[Mapping[str, Any]]:
    roles = [f"{_RBAC}/clusterroles/{name}", f"{_RBAC}/namespaces/{namespace}/roles/{name}"]
    return [rule for path in roles for rule in api.request("GET", path).get("rules") or ()]
