"""One setting decides every name that contains the API group: no name is of the other group.

tests/e2e/test_chart_templates.py checks the rendered chart. Each run of tests checks the requests that admitq
sends to a real API server.
"""

import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from operator import attrgetter
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

import pytest
from pydantic import BaseModel

import admitq
import admitq_api
import admitq_webhooks
from admitq.app.settings import load_settings
from admitq.controllers.rbac import permissions_by_controller
from admitq.integrations.base import KUEUE_MULTIKUEUE_CONTROLLER
from admitq.integrations.registry import BUILT_IN_KINDS, list_framework_names
from admitq.metrics.registry import Metrics
from admitq.metrics.table import TABLE
from admitq_api import labels
from admitq_api.crds import create_crds
from admitq_api.feature_gates import Gate
from admitq_api.labels import COMPAT_GROUP, DEFAULT_GROUP, GROUPS, Names, names_for
from admitq_webhooks.routes import webhook_rules

GROUP_PATTERNS: Final = {
    DEFAULT_GROUP: re.compile(r"admitq[.-]dev"),
    COMPAT_GROUP: re.compile(r"kueue[.-]x-k8s[.-]io"),
}
OTHER_GROUP: Final = {DEFAULT_GROUP: COMPAT_GROUP, COMPAT_GROUP: DEFAULT_GROUP}

DEFAULTS_OF_MODELS: Final = "admitq_api.configuration"
"""The defaults of its models are names of the default group. Reading a file replaces them."""


def texts(value: Any, at: str = "", seen: frozenset[int] = frozenset()) -> Iterator[tuple[str, str]]:
    """Yield the place and value of every text: keys, items, fields, defaults and closures of functions."""
    if id(value) in seen:
        return
    inner = seen | {id(value)}
    if isinstance(value, str):
        yield at, str(value)
    elif isinstance(value, re.Pattern):
        yield at, str(value.pattern)
    elif isinstance(value, BaseModel):
        yield from texts(dict(value), at, inner)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts(key, f"{at}.{key}", inner)
            yield from texts(item, f"{at}.{key}", inner)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for number, item in enumerate(value):
            yield from texts(item, f"{at}[{number}]", inner)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from texts(getattr(value, field.name), f"{at}.{field.name}", inner)
    elif isinstance(value, FunctionType):
        yield from texts(value.__defaults__, f"{at}()", inner)
        yield from texts(value.__kwdefaults__, f"{at}()", inner)
        yield from texts(value.__code__.co_consts, f"{at}()", inner)
        yield from texts([cell.cell_contents for cell in value.__closure__ or ()], f"{at}()", inner)


def members(module: ModuleType) -> dict[str, Any]:
    """Return the names that a module and its classes define, without its imports."""
    own: dict[str, Any] = {}
    for name, value in vars(module).items():
        # A variable, unlike a constant, contains what earlier tests have read.
        if name.startswith("__") or (name.islower() and isinstance(value, dict)):
            continue
        if isinstance(value, type):
            if value.__module__ == module.__name__:
                own |= {f"{name}.{inner}": member for inner, member in vars(value).items()}
        elif not isinstance(value, FunctionType) or value.__module__ == module.__name__:
            own[name] = value
    return own


def modules() -> Iterator[ModuleType]:
    for package in (admitq, admitq_api, admitq_webhooks):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not info.name.endswith("__main__"):
                yield importlib.import_module(info.name)


def test_constants_of_modules_contain_no_api_group() -> None:
    count = 0
    with_group: set[str] = set()
    for module in modules():
        if module is labels or module.__name__.startswith(DEFAULTS_OF_MODELS):
            continue
        for at, text in texts(members(module), module.__name__):
            count += 1
            # JobSets and others accept only this dispatcher, in both groups.
            if text != KUEUE_MULTIKUEUE_CONTROLLER and any(
                pattern.search(text) for pattern in GROUP_PATTERNS.values()
            ):
                with_group.add(at.partition("[")[0])
    assert count > 5000
    # These name the groups, or have the default group as the default of a parameter.
    allowed = re.compile(r"\.((DEFAULT|COMPAT)_GROUP|GROUPS)$|\.(names_for|create_crds|crds)\(\)$")
    assert {at for at in with_group if not allowed.search(at)} == set()


def all_objects_of(group: str, file: Path) -> dict[str, Any]:
    """Return all objects and names that admitq creates for a group."""
    names = names_for(group)
    file.write_text(
        f"apiVersion: {names.config_api_version}\nkind: Configuration\napiGroup: {group}\n"
        f"integrations: {{frameworks: [{', '.join(list_framework_names())}]}}\n"
        f"multiKueue: {{dispatcherName: {names.dispatcher_incremental}, "
        "incrementalDispatcherConfig: {stepSize: 2}}\n"
        f"featureGates: {{{', '.join(f'{gate}: true' for gate in Gate)}}}\n"
    )
    settings = load_settings(file)
    exposed = Metrics(settings.names.metric_prefix).exposition().decode()
    properties = [name for name, member in vars(Names).items() if isinstance(member, property)]
    return {
        "names": {name: getattr(settings.names, name) for name in properties},
        "keys": list(settings.names.list_rows()),
        "CRDs": create_crds(group),
        "webhooks": webhook_rules(settings.names, settings.known),
        "rules": permissions_by_controller(settings.names, BUILT_IN_KINDS),
        "configuration": settings.configuration,
        "metrics": exposed,
    }


@pytest.mark.parametrize("group", GROUPS)
def test_created_objects_and_names_do_not_contain_the_other_group(group: str, tmp_path: Path) -> None:
    all_texts = list(texts(all_objects_of(group, tmp_path / "config.yaml")))
    assert len(all_texts) > 5000
    assert any(GROUP_PATTERNS[group].search(text) for _, text in all_texts)
    other = GROUP_PATTERNS[OTHER_GROUP[group]]
    assert [(at, text) for at, text in all_texts if other.search(text)] == []


@pytest.mark.parametrize("group", GROUPS)
def test_metrics_have_prefix_of_group(group: str, tmp_path: Path) -> None:
    names = names_for(group)
    exposed = Metrics(names.metric_prefix).exposition().decode()
    metrics = {line.split()[2] for line in exposed.splitlines() if line.startswith("# TYPE")}
    assert {name.partition("_")[0] for name in metrics} == {names.metric_prefix}
    assert len(metrics) == len(TABLE)


COMPAT_NAMES: Final = {
    "lease_name": "c1f6bfd2.kueue.x-k8s.io",
    "webhook_objects.service": "kueue-webhook-service",
    "webhook_objects.secret": "kueue-webhook-server-cert",
    "webhook_objects.mutating_configuration": "kueue-mutating-webhook-configuration",
    "webhook_objects.validating_configuration": "kueue-validating-webhook-configuration",
    "default_namespace": "kueue-system",
    "config_api_version": "config.kueue.x-k8s.io/v1beta2",
    "provisioning_controller": "kueue.x-k8s.io/provisioning-request",
    "provisioning_annotation_prefix": "provreq.kueue.x-k8s.io/",
    "multikueue_controller": "kueue.x-k8s.io/multikueue",
    "dispatcher_all_at_once": "kueue.x-k8s.io/multikueue-dispatcher-all-at-once",
    "dispatcher_incremental": "kueue.x-k8s.io/multikueue-dispatcher-incremental",
    "rbac_prefix": "rbac.kueue.x-k8s.io/",
    "visibility_group": "visibility.kueue.x-k8s.io",
    "untracked_label_value": "kueue.x-k8s.io/_UNTRACKED_VALUE_",
    "product": "Kueue",
    "product_in_reasons": "Kueue",
    "metric_prefix": "kueue",
    "installation": "kueue",
    "category": None,
}
"""Names that other programs match on."""

COMPAT_KEYS: Final = """
queue-name priority-class max-exec-time-seconds prebuilt-workload-name job-uid job-owner-gvk job-owner-name
component-workload-index managed podset local-queue-name cluster-queue-name workload workload-slice-name
workload-slice-replacement-for elastic-job admission-gated-by priority-boost
workload-allowed-resource-flavors concurrent-admission-parent pod-group-name pod-group-total-count
pod-group-fast-admission pod-group-serving pod-group-pod-index pod-group-pod-index-label
pod-suspending-parent role-hash retriable-in-group is-group-workload podset-required-topology
podset-preferred-topology podset-unconstrained-topology podset-slice-required-topology podset-slice-size
podset-slice-required-topology-constraints podset-group-name pod-index-offset job-min-parallelism
job-completions-equal-parallelism stopping safe-to-forcefully-delete multikueue-origin
multikueue-origin-uid multikueue-worker-workload-pod resource-in-use admission topology multikueue
concurrent-admission
"""
"""Keys of labels, annotations and gates, without the group."""

ADMITQ_KEYS: Final = {"raycluster-generation", "fields-of-other-version", "finished"}
"""Keys that only admitq has: of elastic jobs, of fields that v1beta1 does not have, of finished Workloads."""


def test_names_of_compat_group_are_those_that_other_programs_match_on() -> None:
    names = names_for(COMPAT_GROUP)
    assert {name: attrgetter(name)(names) for name in COMPAT_NAMES} == COMPAT_NAMES
    keys = {row.key.removeprefix(f"{COMPAT_GROUP}/") for row in names.list_rows()}
    assert keys - ADMITQ_KEYS == set(COMPAT_KEYS.split())
    managers = {concern: names.field_manager(concern) for concern in ("admission", "job-controller")}
    assert managers == {"admission": "kueue-admission", "job-controller": "kueue-job-controller"}
    assert names.field_manager(labels.PROVISIONING) == "kueue.x-k8s.io/provisioning-request"


COMPAT_WEBHOOKS: Final = """
AppWrapper ClusterQueue Deployment JAXJob Job JobSet LeaderWorkerSet MPIJob PaddleJob Pod PyTorchJob
RayCluster RayJob RayService ResourceFlavor SparkApplication StatefulSet TFJob TrainJob Workload XGBoostJob
"""
"""Kinds with a mutating webhook. Cohorts have only a validating webhook."""


def test_webhooks_of_compat_group_have_names_and_paths_of_kueue() -> None:
    rules = webhook_rules(names_for(COMPAT_GROUP), BUILT_IN_KINDS)
    names = {verb: {hook["name"] for hook in hooks} for verb, hooks in rules.items()}
    mutating: set[str] = set(COMPAT_WEBHOOKS.split())
    assert names["mutating"] == {f"m{kind.lower()}.{COMPAT_GROUP}" for kind in mutating}
    only_admitq = {f"vpodresize.{COMPAT_GROUP}", f"vpodmarks.{COMPAT_GROUP}"}
    validating = {f"v{kind.lower()}.{COMPAT_GROUP}" for kind in {*mutating, "Cohort"}}
    assert names["validating"] == validating | only_admitq
    paths = {hook["path"] for hooks in rules.values() for hook in hooks}
    assert {
        "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue",
        "/validate-kueue-x-k8s-io-v1beta2-workload",
        "/mutate-batch-v1-job",
        "/mutate--v1-pod",
        "/mutate-apps-v1-statefulset",
        "/mutate-jobset-x-k8s-io-v1alpha2-jobset",
        "/mutate-kubeflow-org-v2beta1-mpijob",
        "/mutate-kubeflow-org-v1-pytorchjob",
        "/mutate-ray-io-v1-rayjob",
        "/mutate-trainer-kubeflow-org-v1alpha1-trainjob",
        "/mutate-workload-codeflare-dev-v1beta2-appwrapper",
        "/mutate-sparkoperator-k8s-io-v1beta2-sparkapplication",
        "/mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset",
    } <= paths


SHORT_NAMES: Final = {
    "ClusterQueue": ["cq"],
    "LocalQueue": ["queue", "queues", "lq"],
    "Cohort": ["co"],
    "ResourceFlavor": ["flavor", "flavors", "rf"],
    "Topology": ["topo"],
    "AdmissionCheck": ["ac"],
    "ProvisioningRequestConfig": ["prc"],
    "MultiKueueCluster": ["mkc"],
    "MultiKueueConfig": ["mkconf"],
    "WorkloadPriorityClass": ["wpc"],
    "Workload": ["kwl", "kueueworkload", "kueueworkloads"],
}


def test_crds_of_compat_group_have_short_names_of_kueue() -> None:
    names = {crd["spec"]["names"]["kind"]: crd["spec"]["names"] for crd in create_crds(COMPAT_GROUP)}
    assert {kind: of_kind["shortNames"] for kind, of_kind in names.items()} == SHORT_NAMES
    assert not any("categories" in of_kind for of_kind in names.values())
