"""The registry of job kinds: the built-in kinds, and those of installed packages."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from admitq.integrations.base import Integration
from admitq.integrations.kinds.appwrapper import APP_WRAPPER
from admitq.integrations.kinds.deployment import DEPLOYMENT
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.jobset import JOBSET
from admitq.integrations.kinds.kubeflow import JAX_JOB, PADDLE_JOB, PYTORCH_JOB, TF_JOB, XGBOOST_JOB
from admitq.integrations.kinds.leaderworkerset import LEADER_WORKER_SET
from admitq.integrations.kinds.mpijob import MPI_JOB
from admitq.integrations.kinds.pod import POD
from admitq.integrations.kinds.raycluster import RAY_CLUSTER
from admitq.integrations.kinds.rayjob import RAY_JOB
from admitq.integrations.kinds.rayservice import RAY_SERVICE
from admitq.integrations.kinds.sparkapplication import SPARK_APPLICATION
from admitq.integrations.kinds.statefulset import STATEFUL_SET
from admitq.integrations.kinds.trainjob import TRAIN_JOB
from admitq.integrations.references import OwnerKind, ReferencedKind
from admitq_api.entry_points import list_installed_kinds
from admitq_api.feature_gates import FeatureGates

BUILT_IN_KINDS: tuple[Integration, ...] = (
    JOB,
    JOBSET,
    RAY_JOB,
    RAY_CLUSTER,
    RAY_SERVICE,
    TRAIN_JOB,
    MPI_JOB,
    TF_JOB,
    PYTORCH_JOB,
    XGBOOST_JOB,
    PADDLE_JOB,
    JAX_JOB,
    APP_WRAPPER,
    SPARK_APPLICATION,
    POD,
    DEPLOYMENT,
    STATEFUL_SET,
    LEADER_WORKER_SET,
)
"""The built-in job kinds."""


class UnusableIntegration(ValueError):
    """An integration of an installed package cannot be loaded, or conflicts with another one."""


@cache
def load_integrations() -> tuple[Integration, ...]:
    """Return all kinds: first the built-in kinds, then those of packages, sorted by entry point.

    Raises:
        UnusableIntegration: an entry point of a package cannot be loaded, its name is not that of its
            framework, or its framework or kind exists already.
    """
    integrations = list(BUILT_IN_KINDS)
    for entry_point in list_installed_kinds():
        try:
            integration = entry_point.load()
        except Exception as error:  # foreign code can raise any exception; the error must name its package
            raise UnusableIntegration(f"{entry_point.value}: {error}") from error
        if not isinstance(integration, Integration):
            raise UnusableIntegration(f"{entry_point.value} is not an Integration")
        if entry_point.name != integration.framework:
            raise UnusableIntegration(
                f"{entry_point.value}: call the entry point {integration.framework}, as its framework"
            )
        for known in integrations:
            if integration.framework == known.framework or integration.gvk == known.gvk:
                raise UnusableIntegration(f"{entry_point.value}: {integration.framework} exists already")
        integrations.append(integration)
    return tuple(integrations)


def list_framework_names() -> tuple[str, ...]:
    """Return the names that ``integrations.frameworks`` of the configuration can contain."""
    return tuple(integration.framework for integration in load_integrations())


def select_enabled(frameworks: Iterable[str], gates: FeatureGates) -> tuple[Integration, ...]:
    """Return the enabled integrations: those of the given frameworks, and those that these imply.

    Integrations with a disabled feature gate are left out. The order is that of the registry. An integration
    that is only implied manages only objects that are held by their parents.

    Raises:
        KeyError: a framework is unknown.
    """
    names_enabled = set(frameworks)
    if unknown := names_enabled.difference(list_framework_names()):
        raise KeyError(", ".join(sorted(unknown)))
    open_ones = [
        integration
        for integration in load_integrations()
        if integration.gate is None or gates.is_enabled(integration.gate)
    ]
    implied = {
        name
        for integration in open_ones
        if integration.framework in names_enabled
        for name in integration.ownership.implied_frameworks
    }
    return tuple(
        integration
        if integration.framework in names_enabled
        else replace(integration, ownership=replace(integration.ownership, is_implied=True))
        for integration in open_ones
        if integration.framework in names_enabled | implied
    )


def find_referenced_kind(group: str, version: str, kind: str) -> ReferencedKind | None:
    """Return the kind of this group, version and name, if the pods of jobs are unknown without it."""
    owner_kind = OwnerKind(group, version, kind)
    known = (
        referenced
        for integration in load_integrations()
        for referenced in integration.templates.referenced_kinds
        if referenced.is_required
    )
    return next((referenced for referenced in known if referenced.kind == owner_kind), None)
