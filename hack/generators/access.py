"""Tables of access rules, from which the roles of the chart are generated.

A rule names exactly what the code calls. A test of the API server's audit log fails for rules that no call
used. Names that depend on the release are placeholders; the chart replaces them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from admitq.controllers.rbac import (
    OBSERVED_WITH_GATES,
    GatedPermissions,
    Permission,
    intermediate_owner_resources,
    merge_permissions,
    permissions_by_controller,
    permissions_of_gates,
    permissions_of_kind,
)
from admitq.integrations.base import Integration
from admitq.integrations.custom import create_integration
from admitq.integrations.registry import BUILT_IN_KINDS
from admitq.runtime.kinds import kinds_of, list_core_resources
from admitq_api.configuration.custom_kinds import CustomKind, CustomPodSet, OutcomeSign, StatusSign
from admitq_api.feature_gates import FeatureGates
from admitq_api.labels import COMPAT_GROUP, DEFAULT_GROUP, names_for
from admitq_api.v1beta1.differences import list_converted_crds

API_GROUP = "${apiGroup}"
"""Placeholder for the API group of the release."""

CUSTOM = create_integration(
    CustomKind(
        group="custom.group",
        version="custom-version",
        kind="CustomKind",
        plural="custom-plural",
        pod_sets=(CustomPodSet(name="main", template="spec.template"),),
        finished=(OutcomeSign(condition="Finished", success=True),),
        active=(StatusSign(condition="Active"),),
        ready=(StatusSign(condition="Ready"),),
    )
)
"""Placeholder for a kind that the configuration file defines."""

CUSTOM_PLACEHOLDERS = {
    "custom.group": "${customGroup}",
    "custom-group": "${customGroupDashed}",
    "custom-version": "${customVersion}",
    "customkind": "${customKind}",
    "custom-plural": "${customPlural}",
}
"""Placeholders of its names. The chart replaces them for each such kind. The kind is in lower case."""

READ = ("get", "list", "watch")
EDIT = ("create", "delete", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Rule:
    """One RBAC rule: verbs on resources of API groups, optionally on named objects only."""

    groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as Kubernetes writes it."""
        rule: dict[str, Any] = {
            "apiGroups": sorted(self.groups),
            "resources": sorted(self.resources),
            "verbs": sorted(self.verbs),
        }
        if self.names:
            rule["resourceNames"] = list(self.names)
        return rule


@dataclass(frozen=True, slots=True)
class UserRole:
    """A ClusterRole for users: its rules, and the roles that it is aggregated to."""

    name: str
    rules: tuple[Rule, ...]
    aggregate_to: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()
    """One of these frameworks must be enabled; empty for kinds of admitq."""


def _rules(permissions: Iterable[Permission]) -> tuple[Rule, ...]:
    """Return rules for the permissions. Permissions of one group with equal verbs share a rule."""
    together: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for permission in merge_permissions(permissions):
        group = API_GROUP if permission.group == DEFAULT_GROUP else permission.group
        together.setdefault((group, permission.verbs), []).append(permission.resource)
    return tuple(Rule((group,), tuple(resources), verbs) for (group, verbs), resources in together.items())


_REVIEWS = (
    Rule(("authentication.k8s.io",), ("tokenreviews",), ("create",)),
    Rule(("authorization.k8s.io",), ("subjectaccessreviews",), ("create",)),
)
"""Rules to authenticate and authorize readers of the metrics."""

_OF_KINDS = {kind.framework: permissions_of_kind(kind) for kind in BUILT_IN_KINDS}

_WITH_GATES = frozenset(
    permission for gated in permissions_of_gates(BUILT_IN_KINDS) for permission in gated.permissions
)

MANAGER_CLUSTER = (
    *_rules(
        permission
        for controller, permissions in permissions_by_controller(
            names_for(DEFAULT_GROUP), BUILT_IN_KINDS
        ).items()
        for permission in permissions
        if permission not in {*_OF_KINDS.get(controller, ()), *_WITH_GATES}
    ),
    Rule(("events.k8s.io",), ("events",), ("create", "patch")),
    *_REVIEWS,
)
"""Rules of the manager in all namespaces, for any set of job kinds."""

MANAGER_KINDS = {
    kind.framework: _rules(
        chain.from_iterable(_OF_KINDS[name] for name in (kind.framework, *kind.ownership.implied_frameworks))
    )
    for kind in BUILT_IN_KINDS
}
"""Further rules of the manager for each enabled job kind."""

MANAGER_CUSTOM = _rules(permissions_of_kind(CUSTOM))
"""Further rules of the manager for each kind that the configuration file defines."""


@dataclass(frozen=True, slots=True)
class GateRules:
    """Rules for an enabled feature gate. If frameworks are named, one of them must be enabled, too."""

    gate: str
    is_on_by_default: bool
    frameworks: tuple[str, ...]
    rules: tuple[Rule, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the rules in the form that the chart reads."""
        return {
            "gate": self.gate,
            "default": self.is_on_by_default,
            "frameworks": list(self.frameworks),
            "rules": [rule.to_dict() for rule in self.rules],
        }


def _gate_rules(of: Iterable[GatedPermissions]) -> tuple[GateRules, ...]:
    return tuple(
        GateRules(
            str(permissions.gate),
            FeatureGates()[permissions.gate],
            permissions.frameworks,
            _rules(permissions.permissions),
        )
        for permissions in of
    )


MANAGER_GATES = _gate_rules(permissions_of_gates(BUILT_IN_KINDS))
"""Further rules of the manager for each of these feature gates that is on."""

OBSERVER_GATES = _gate_rules(OBSERVED_WITH_GATES)
"""Further rules of a shadow, and of the visibility API, for each of these feature gates that is on."""

MANAGER_NAMESPACE = (
    # The chart creates the Lease. The manager creates it again if it is deleted.
    Rule(("coordination.k8s.io",), ("leases",), ("create",)),
    Rule(("coordination.k8s.io",), ("leases",), ("get", "update"), ("${lease}",)),
)
"""Rules of the manager in its own namespace."""

_FOLLOWED: dict[str, list[str]] = {}
for _resource in list_core_resources(kinds_of(names_for(DEFAULT_GROUP))):
    _FOLLOWED.setdefault(_resource.group, []).append(_resource.plural)

SHADOW_CLUSTER = (
    *(
        Rule((API_GROUP if group == DEFAULT_GROUP else group,), tuple(plurals), ("list", "watch"))
        for group, plurals in _FOLLOWED.items()
    ),
    *_REVIEWS,
)
"""Rules of a shadow: read what decisions depend on. Creating a review stores nothing."""


def _creates_jobs(kind: Integration) -> bool:
    """Whether objects of the kind can own jobs, directly or through other objects."""
    if kind.ownership.created_kinds is None:
        return True
    owned = {(built_in.group, built_in.kind) for built_in in BUILT_IN_KINDS}
    owned |= {
        (owner.group, owner.kind)
        for built_in in BUILT_IN_KINDS
        for owner in intermediate_owner_resources(built_in)
    }
    return not owned.isdisjoint(kind.ownership.created_kinds)


_LOOKED_UP = ("admissionchecks", "clusterqueues", "localqueues", "workloadpriorityclasses")

WEBHOOK_CLUSTER = (
    Rule((API_GROUP,), _LOOKED_UP, ("list", "watch")),
    Rule(("",), ("namespaces",), READ),
    *_REVIEWS,
)
"""Rules of the webhook in all namespaces, for any set of job kinds."""

WEBHOOK_CERTIFICATES = (
    Rule(
        ("admissionregistration.k8s.io",),
        ("mutatingwebhookconfigurations",),
        ("get", "patch"),
        ("${mutatingWebhookConfiguration}",),
    ),
    Rule(
        ("admissionregistration.k8s.io",),
        ("validatingwebhookconfigurations",),
        ("get", "patch"),
        ("${validatingWebhookConfiguration}",),
    ),
)
"""Further rules of the webhook if it creates its certificate: write its CA into these objects."""


WEBHOOK_CONVERSION = (
    Rule(
        ("apiextensions.k8s.io",),
        ("customresourcedefinitions",),
        ("get", "patch"),
        tuple(name.replace(COMPAT_GROUP, API_GROUP) for name in list_converted_crds(names_for(COMPAT_GROUP))),
    ),
)
"""Further rules of the webhook if the API group has several versions: write its CA into the CRDs of
admitq."""


def _looked_up(kind: Integration) -> tuple[Rule, ...]:
    return (
        # The code reads owners, which are of kinds that create jobs, and objects with a scale subresource.
        *(
            (Rule((kind.group,), (kind.plural,), ("get",)),)
            if _creates_jobs(kind) or kind.webhook.scale_field
            else ()
        ),
        *(Rule((owner.group,), (owner.plural,), ("get",)) for owner in intermediate_owner_resources(kind)),
        # To check the pods of a job, the code reads the objects that define them.
        *(
            Rule((other.kind.group,), (other.plural,), ("get",))
            for other in kind.templates.referenced_kinds
            if other.is_required
        ),
        # Whether a change is allowed can depend on the state of the Workload.
        *(
            (Rule((API_GROUP,), ("workloads",), ("get",)),)
            if kind.webhook.list_deciding_workloads is not None
            else ()
        ),
    )


WEBHOOK_KINDS = {kind.framework: _looked_up(kind) for kind in BUILT_IN_KINDS}
"""Further rules of the webhook for each enabled job kind."""

WEBHOOK_CUSTOM = _looked_up(CUSTOM)
"""Further rules of the webhook for each kind that the configuration file defines."""

WEBHOOK_NAMESPACE = (Rule(("",), ("secrets",), ("get", "update"), ("${certificateSecret}",)),)
"""Rules of the webhook in its own namespace if it creates its certificate.

The chart creates the Secret. Permission to create Secrets would give the webhook tokens of any account."""


VISIBILITY_GROUP = f"visibility.{API_GROUP}"

VISIBILITY_CLUSTER = (
    *SHADOW_CLUSTER,
    Rule((API_GROUP,), ("workloadpriorityclasses",), ("list", "watch")),
    Rule(("scheduling.k8s.io",), ("priorityclasses",), ("list", "watch")),
)
"""Rules of the visibility API: read what the order of queues depends on, and review its callers.

Hypothetical jobs may name priority classes."""

VISIBILITY_KINDS = {
    kind.framework: (Rule((kind.group,), (kind.plural,), ("list", "watch")),)
    for kind in BUILT_IN_KINDS
    if kind.kind == "TrainJob"
}
"""Further rules of the visibility API for each enabled job kind that reports its remaining run time."""


def _write_bundle_into(version: str) -> Rule:
    name = f"{version}.{VISIBILITY_GROUP}"
    return Rule(("apiregistration.k8s.io",), ("apiservices",), ("get", "patch"), (name,))


_COMPAT = names_for(COMPAT_GROUP)

VISIBILITY_CERTIFICATES = (_write_bundle_into(_COMPAT.version),)
"""Further rules of the visibility API if it creates its certificate: write its CA into the APIService."""

VISIBILITY_CONVERSION = (_write_bundle_into(_COMPAT.older_version),) if _COMPAT.older_version else ()
"""Further rules of the visibility API if the API group has several versions."""

VISIBILITY_NAMESPACE = (Rule(("",), ("secrets",), ("get", "update"), ("${visibilitySecret}",)),)
"""Rules of the visibility API in its own namespace if it creates its certificate."""


BATCH_ADMIN = "batch-admin"
BATCH_USER = "batch-user"
_ALL_PEOPLE = (BATCH_ADMIN, BATCH_USER)
VIEW = "view"
"""The built-in ClusterRole of Kubernetes: users that can view a namespace can view its queues."""


@dataclass(frozen=True, slots=True)
class Audience:
    """The aggregated roles that may edit or view objects of one kind."""

    kind: str
    plural: str
    editors: tuple[str, ...]
    viewers: tuple[str, ...]
    group: str = API_GROUP
    has_status: bool = True
    frameworks: tuple[str, ...] = ()
    """For job kinds: frameworks of which one must be enabled."""


AUDIENCES = (
    Audience("clusterqueue", "clusterqueues", (BATCH_ADMIN,), (BATCH_ADMIN,)),
    Audience("cohort", "cohorts", (BATCH_ADMIN,), (BATCH_ADMIN,)),
    Audience("localqueue", "localqueues", (BATCH_ADMIN,), (BATCH_ADMIN, BATCH_USER, VIEW)),
    Audience("resourceflavor", "resourceflavors", (BATCH_ADMIN,), (BATCH_ADMIN,), has_status=False),
    Audience("workload", "workloads", (BATCH_ADMIN,), (BATCH_ADMIN, BATCH_USER, VIEW)),
    Audience(
        "workloadpriorityclass",
        "workloadpriorityclasses",
        (BATCH_ADMIN,),
        (BATCH_ADMIN, BATCH_USER),
        has_status=False,
    ),
    Audience("admissioncheck", "admissionchecks", (BATCH_ADMIN,), (BATCH_ADMIN,)),
    Audience("topology", "topologies", (BATCH_ADMIN,), (BATCH_ADMIN,), has_status=False),
    *(
        Audience(
            kind.kind.lower(),
            kind.plural,
            _ALL_PEOPLE,
            _ALL_PEOPLE,
            group=kind.group,
            frameworks=(kind.framework,),
        )
        for kind in BUILT_IN_KINDS
        if kind.group
    ),
)
"""Kinds that users work with. Only the manager can write a status."""

CUSTOM_AUDIENCE = Audience(
    # The name contains the group, because many groups have a kind Job.
    f"{CUSTOM.group.replace('.', '-')}-{CUSTOM.kind.lower()}",
    CUSTOM.plural,
    _ALL_PEOPLE,
    _ALL_PEOPLE,
    group=CUSTOM.group,
)
"""The same roles for each custom job kind."""


def _pending_workloads_of(resource: str) -> tuple[Rule, ...]:
    return (Rule((VISIBILITY_GROUP,), (f"{resource}/pendingworkloads",), ("get",)),)


VISIBILITY_ROLES = (
    # The list of a ClusterQueue names workloads of all namespaces.
    UserRole("pending-workloads-cq-viewer-role", _pending_workloads_of("clusterqueues"), (BATCH_ADMIN,)),
    UserRole(
        "pending-workloads-lq-viewer-role",
        _pending_workloads_of("localqueues"),
        (BATCH_ADMIN, BATCH_USER, VIEW),
    ),
    UserRole(
        "workload-questions-viewer-role",
        (Rule((VISIBILITY_GROUP,), ("workloads/explanation", "workloads/eta"), ("get",)),),
        (BATCH_ADMIN, BATCH_USER, VIEW),
    ),
    UserRole(
        "local-what-if-role",
        (Rule((VISIBILITY_GROUP,), ("localwhatif",), ("create",)),),
        (BATCH_ADMIN, BATCH_USER),
    ),
    UserRole(
        "local-check-role",
        (Rule((VISIBILITY_GROUP,), ("localcheck",), ("create",)),),
        (BATCH_ADMIN, BATCH_USER),
    ),
    # These answers name workloads of all namespaces.
    UserRole("check-role", (Rule((VISIBILITY_GROUP,), ("check",), ("create",)),), (BATCH_ADMIN,)),
    UserRole("what-if-role", (Rule((VISIBILITY_GROUP,), ("whatif",), ("create",)),), (BATCH_ADMIN,)),
)
"""Roles for users of the visibility API."""


def roles(audiences: tuple[Audience, ...]) -> list[UserRole]:
    """Return an editor role and a viewer role for each kind."""
    listed: list[UserRole] = []
    for kind in audiences:
        status = (Rule((kind.group,), (f"{kind.plural}/status",), ("get",)),) if kind.has_status else ()
        edit = (Rule((kind.group,), (kind.plural,), EDIT), *status)
        view = (Rule((kind.group,), (kind.plural,), READ), *status)
        listed.append(UserRole(f"{kind.kind}-editor-role", edit, kind.editors, kind.frameworks))
        listed.append(UserRole(f"{kind.kind}-viewer-role", view, kind.viewers, kind.frameworks))
    return listed
