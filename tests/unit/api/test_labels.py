from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import admitq
import admitq_api
import admitq_webhooks
from admitq_api import labels
from admitq_api.labels import COMPAT_GROUP, DEFAULT_GROUP, GROUPS, Names, names_for

NAMES_BY_GROUP = {
    "queue_name": ("admitq.dev/queue-name", "kueue.x-k8s.io/queue-name"),
    "finalizer": ("admitq.dev/resource-in-use", "kueue.x-k8s.io/resource-in-use"),
    "admission_gate": ("admitq.dev/admission", "kueue.x-k8s.io/admission"),
    "api_version": ("admitq.dev/v1beta2", "kueue.x-k8s.io/v1beta2"),
    "config_api_version": ("config.admitq.dev/v1beta2", "config.kueue.x-k8s.io/v1beta2"),
    "visibility_group": ("visibility.admitq.dev", "visibility.kueue.x-k8s.io"),
    "product": ("admitq", "Kueue"),
    "metric_prefix": ("admitq", "kueue"),
    "default_namespace": ("admitq-system", "kueue-system"),
    "multikueue_controller": ("admitq.dev/multikueue", "kueue.x-k8s.io/multikueue"),
    "lease_name": ("manager.admitq.dev", "c1f6bfd2.kueue.x-k8s.io"),
    "provisioning_annotation_prefix": ("provreq.admitq.dev/", "provreq.kueue.x-k8s.io/"),
    "webhook_objects.service": ("admitq-webhook-service", "kueue-webhook-service"),
}


@pytest.mark.parametrize(("attribute", "expected"), NAMES_BY_GROUP.items())
def test_name_depends_on_api_group(attribute: str, expected: Any) -> None:
    assert tuple(attrgetter(attribute)(names_for(group)) for group in GROUPS) == expected


@pytest.mark.parametrize(
    ("group", "version", "kind", "path"),
    [
        ("admitq.dev", "v1beta2", "Workload", "/mutate-admitq-dev-v1beta2-workload"),
        ("batch", "v1", "Job", "/mutate-batch-v1-job"),
        ("", "v1", "Pod", "/mutate--v1-pod"),
    ],
)
def test_webhook_path_contains_group_version_and_kind(group: str, version: str, kind: str, path: str) -> None:
    assert names_for().webhook_path("mutate", group, version, kind) == path


def test_field_manager_contains_product_and_concern() -> None:
    assert names_for().field_manager("admission") == "admitq-admission"
    assert names_for(COMPAT_GROUP).field_manager("admission") == "kueue-admission"


def test_unknown_group_is_rejected_with_known_groups() -> None:
    with pytest.raises(ValueError, match=r"'example\.com': use admitq\.dev or kueue\.x-k8s\.io"):
        names_for("example.com")


def test_names_without_group_equal_names_of_default_group() -> None:
    assert names_for() == Names(DEFAULT_GROUP)


@pytest.mark.parametrize("kind", sorted({row.kind for row in names_for().list_rows()}))
def test_keys_of_one_kind_are_unique(kind: str) -> None:
    keys = [row.key for row in names_for().list_rows() if row.kind == kind]
    assert len(keys) == len(set(keys))


def test_only_labels_module_contains_api_groups() -> None:
    packages = (admitq, admitq_api, admitq_webhooks)
    modules = [path for package in packages for path in Path(str(package.__file__)).parent.rglob("*.py")]
    modules_with_group = [path for path in modules if any(group in path.read_text() for group in GROUPS)]
    assert modules_with_group == [Path(labels.__file__)]
