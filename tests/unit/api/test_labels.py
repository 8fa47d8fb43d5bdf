from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import admitq
import admitq_api
import admitq_webhooks
from admitq_api import labels
from admitq_api.labels import COMPAT_GROUP, DEFAULT_GROUP, GROUPS, Names, names_for

NAMES_ARE_FOR = {
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


@pytest.mark.parametrize(("attribute", "expected"), NAMES_ARE_FOR.items())
def test_a_name_follows_the_group(attribute: str, expected: Any) -> None:
    assert tuple(attrgetter(attribute)(names_for(group)) for group in GROUPS) == expected


@pytest.mark.parametrize(
    ("group", "version", "kind", "path"),
    [
        ("admitq.dev", "v1beta2", "Workload", "/mutate-admitq-dev-v1beta2-workload"),
        ("batch", "v1", "Job", "/mutate-batch-v1-job"),
        ("", "v1", "Pod", "/mutate--v1-pod"),
    ],
)
def test_webhook_paths(group: str, version: str, kind: str, path: str) -> None:
    assert names_for().webhook_path("mutate", group, version, kind) == path


def test_field_managers_separate_concerns() -> None:
    assert names_for().field_manager("admission") == "admitq-admission"
    assert names_for(COMPAT_GROUP).field_manager("admission") == "kueue-admission"


def test_an_unknown_group_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match=r"'example\.com': use admitq\.dev or kueue\.x-k8s\.io"):
        names_for("example.com")


def test_names_of_one_group_are_the_same_value() -> None:
    assert names_for() == Names(DEFAULT_GROUP)


@pytest.mark.parametrize("kind", sorted({row.kind for row in names_for().list_rows()}))
def test_no_two_rows_of_a_kind_are_the_same_name(kind: str) -> None:
    keys = [row.key for row in names_for().list_rows() if row.kind == kind]
    assert len(keys) == len(set(keys))


def test_no_other_module_knows_a_group() -> None:
    packages = (admitq, admitq_api, admitq_webhooks)
    modules = [path for package in packages for path in Path(str(package.__file__)).parent.rglob("*.py")]
    knowing = [path for path in modules if any(group in path.read_text() for group in GROUPS)]
    assert knowing == [Path(labels.__file__)]
