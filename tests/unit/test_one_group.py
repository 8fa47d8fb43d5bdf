"""One setting decides every name: nothing of the other API group is left anywhere, whichever is chosen.

What the chart renders is walked by tests/e2e/test_chart_templates.py, and what admitq sends to a real API
server in a run of tests by the run itself.
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

OF_ONE: Final = {
    DEFAULT_GROUP: re.compile(r"admitq[.-]dev"),
    COMPAT_GROUP: re.compile(r"kueue[.-]x-k8s[.-]io"),
}
OTHER: Final = {DEFAULT_GROUP: COMPAT_GROUP, COMPAT_GROUP: DEFAULT_GROUP}

DEFAULTS_OF_MODELS: Final = "admitq_api.configuration"
"""Its models have our own group's names as defaults, which reading the file replaces by the group's."""


def texts(value: Any, at: str = "", seen: frozenset[int] = frozenset()) -> Iterator[tuple[str, str]]:
    """Every text in a value, with where it is: keys, items, fields, defaults and closures of functions."""
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
        for key, one in value.items():
            yield from texts(key, f"{at}.{key}", inner)
            yield from texts(one, f"{at}.{key}", inner)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for number, one in enumerate(value):
            yield from texts(one, f"{at}[{number}]", inner)
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
        if name.startswith("__"):
            continue
        if isinstance(value, type):
            if value.__module__ == module.__name__:
                own |= {f"{name}.{inner}": one for inner, one in vars(value).items()}
        elif not isinstance(value, FunctionType) or value.__module__ == module.__name__:
            own[name] = value
    return own


def modules() -> Iterator[ModuleType]:
    for package in (admitq, admitq_api, admitq_webhooks):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def test_no_constant_of_any_module_is_of_a_group() -> None:
    walked = 0
    knowing: set[str] = set()
    for module in modules():
        if module is labels or module.__name__.startswith(DEFAULTS_OF_MODELS):
            continue
        for at, text in texts(members(module), module.__name__):
            walked += 1
            # JobSets and others allow one dispatcher, whatever group we speak.
            if text != KUEUE_MULTIKUEUE_CONTROLLER and any(
                pattern.search(text) for pattern in OF_ONE.values()
            ):
                knowing.add(at.partition("[")[0])
    assert walked > 5000
    # Without a configured group the default is our own.
    allowed = re.compile(r"\.((DEFAULT|COMPAT)_GROUP|GROUPS)$|\.(names_for|create_crds|crds)\(\)$")
    assert {at for at in knowing if not allowed.search(at)} == set()


def everything_of(group: str, file: Path) -> dict[str, Any]:
    """What admitq makes of one setting."""
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
    told = [name for name, one in vars(Names).items() if isinstance(one, property)]
    return {
        "names": {name: getattr(settings.names, name) for name in told},
        "keys": list(settings.names.list_rows()),
        "CRDs": create_crds(group),
        "webhooks": webhook_rules(settings.names, settings.known),
        "rules": permissions_by_controller(settings.names, BUILT_IN_KINDS),
        "configuration": settings.configuration,
        "metrics": exposed,
    }


@pytest.mark.parametrize("group", GROUPS)
def test_nothing_that_is_made_is_of_the_other_group(group: str, tmp_path: Path) -> None:
    made = everything_of(group, tmp_path / "config.yaml")
    found = list(texts(made))
    assert len(found) > 5000
    assert any(OF_ONE[group].search(text) for _, text in found)
    other = OF_ONE[OTHER[group]]
    assert [(at, text) for at, text in found if other.search(text)] == []


@pytest.mark.parametrize("group", GROUPS)
def test_metrics_have_the_prefix_of_the_group(group: str, tmp_path: Path) -> None:
    names = names_for(group)
    exposed = Metrics(names.metric_prefix).exposition().decode()
    told = {line.split()[2] for line in exposed.splitlines() if line.startswith("# TYPE")}
    assert {name.partition("_")[0] for name in told} == {names.metric_prefix}
    assert len(told) == len(TABLE)


THEIRS: Final = {
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
"""What others match on (semantics, Process model, Configuration file, RBAC and operations)."""

THEIR_KEYS: Final = """
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
"""What stands behind the group (semantics, Labels, annotations, gates)."""

OUR_KEYS: Final = {"raycluster-generation", "fields-of-other-version"}
"""Those that only admitq has: semantics, Elastic jobs; what v1beta1 has no field for."""


def test_names_under_the_group_of_others_are_those_that_they_match_on() -> None:
    names = names_for(COMPAT_GROUP)
    assert {name: attrgetter(name)(names) for name in THEIRS} == THEIRS
    keys = {row.key.removeprefix(f"{COMPAT_GROUP}/") for row in names.list_rows()}
    assert keys - OUR_KEYS == set(THEIR_KEYS.split())
    managers = {concern: names.field_manager(concern) for concern in ("admission", "job-controller")}
    assert managers == {"admission": "kueue-admission", "job-controller": "kueue-job-controller"}
    assert names.field_manager(labels.PROVISIONING) == "kueue.x-k8s.io/provisioning-request"


THEIR_WEBHOOKS: Final = """
AppWrapper ClusterQueue Deployment JAXJob Job JobSet LeaderWorkerSet MPIJob PaddleJob Pod PyTorchJob
RayCluster RayJob RayService ResourceFlavor SparkApplication StatefulSet TFJob TrainJob Workload XGBoostJob
"""
"""Kinds of mutating webhooks; validating ones are for Cohorts too (semantics, Webhook registration)."""


def test_webhooks_of_the_group_of_others_are_theirs() -> None:
    made = webhook_rules(names_for(COMPAT_GROUP), BUILT_IN_KINDS)
    names = {verb: {one["name"] for one in hooks} for verb, hooks in made.items()}
    mutating: set[str] = set(THEIR_WEBHOOKS.split())
    assert names["mutating"] == {f"m{kind.lower()}.{COMPAT_GROUP}" for kind in mutating}
    ours = {f"vpodresize.{COMPAT_GROUP}", f"vpodmarks.{COMPAT_GROUP}"}
    validating = {f"v{kind.lower()}.{COMPAT_GROUP}" for kind in {*mutating, "Cohort"}}
    assert names["validating"] == validating | ours
    paths = {one["path"] for hooks in made.values() for one in hooks}
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


def test_definitions_of_the_group_of_others_are_listed_as_theirs() -> None:
    listed = {one["spec"]["names"]["kind"]: one["spec"]["names"] for one in create_crds(COMPAT_GROUP)}
    assert {kind: one["shortNames"] for kind, one in listed.items()} == SHORT_NAMES
    assert not any("categories" in one for one in listed.values())
