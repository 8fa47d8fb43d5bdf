"""Stored objects from files: formats, folders, groups, and what is missing."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from admitq.asking.object_files import parse_objects, read_object_files
from admitq.asking.stored_objects import SourceError, StoredObjects
from admitq_api.labels import COMPAT_GROUP, DEFAULT_GROUP, names_for

API_VERSION = f"{DEFAULT_GROUP}/v1beta2"


def stored(
    kind: str, name: str, namespace: str = "", api_version: str = API_VERSION, **parts: Any
) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


def as_list(*objects: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(objects)}


FLAVOR = stored("ResourceFlavor", "f", spec={})
QUEUE = stored("LocalQueue", "lq", "team", spec={"clusterQueue": "cq"})


def listed(objects: StoredObjects) -> list[tuple[str, str]]:
    return [(plural, obj["metadata"]["name"]) for plural, obj in objects.observed]


@pytest.mark.parametrize(
    "text",
    [
        yaml.safe_dump_all([FLAVOR, QUEUE]),
        json.dumps(as_list(FLAVOR, QUEUE)),
        yaml.safe_dump(as_list(QUEUE, FLAVOR)),
        f"{json.dumps(FLAVOR)}\n---\n{json.dumps(QUEUE)}",
        yaml.safe_dump(
            {"apiVersion": API_VERSION, "kind": "LocalQueueList", "items": [{"metadata": QUEUE["metadata"]}]}
        )
        + "---\n"
        + yaml.safe_dump(FLAVOR),
    ],
    ids=["documents", "JSON List", "YAML List", "JSON documents", "typed List"],
)
def test_objects_of_each_format_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "objects.yaml").write_text(text)
    objects = read_object_files([tmp_path / "objects.yaml"]).objects
    assert listed(objects) == [("resourceflavors", "f"), ("namespaces", "team"), ("localqueues", "lq")]
    assert objects.names == names_for(DEFAULT_GROUP)


def test_folder_is_read_with_its_folders_and_without_other_files(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "flavor.json").write_text(json.dumps(FLAVOR))
    (tmp_path / "queue.yml").write_text(yaml.safe_dump(QUEUE))
    (tmp_path / "README.md").write_text("no YAML: at: all")
    assert ("resourceflavors", "f") in listed(read_object_files([tmp_path]).objects)


def test_object_of_the_last_path_counts(tmp_path: Path) -> None:
    for name, lender in (("old", "a"), ("new", "b")):
        changed = {**QUEUE, "spec": {"clusterQueue": lender}}
        (tmp_path / f"{name}.json").write_text(json.dumps(changed))
    objects = read_object_files([tmp_path / "old.json", tmp_path / "new.json"]).objects
    assert [queue["spec"]["clusterQueue"] for queue in objects.of("localqueues")] == ["b"]


def test_unquoted_time_stays_a_text() -> None:
    (obj,) = parse_objects("{apiVersion: v1, kind: Pod, at: 2030-01-01T00:00:00Z}", "pod.yaml")
    assert obj["at"] == "2030-01-01T00:00:00Z"


def test_time_of_the_objects_is_that_of_the_latest_file(tmp_path: Path) -> None:
    file = tmp_path / "objects.json"
    file.write_text(json.dumps(FLAVOR))
    assert read_object_files([file]).objects.read_at == file.stat().st_mtime_ns


def test_objects_of_other_kinds_and_manifests_are_kept_apart(tmp_path: Path) -> None:
    job = stored("Job", "j", "team", "batch/v1")
    manifest = {"apiVersion": API_VERSION, "kind": "Cohort", "metadata": {"name": "new"}}
    (tmp_path / "objects.json").write_text(json.dumps(as_list(job, manifest, FLAVOR)))
    objects = read_object_files([tmp_path]).objects
    assert (objects.others, objects.manifests) == ((job,), (manifest,))
    assert listed(objects) == [("resourceflavors", "f")]


def test_older_version_is_converted(tmp_path: Path) -> None:
    api_version = f"{COMPAT_GROUP}/v1beta1"
    queue = stored(
        "ClusterQueue", "cq", "", api_version, spec={"cohort": "research", "namespaceSelector": {}}
    )
    (tmp_path / "objects.json").write_text(json.dumps(queue))
    objects = read_object_files([tmp_path]).objects
    assert [each["spec"]["cohortName"] for each in objects.of("clusterqueues")] == ["research"]


def test_configuration_is_found_in_a_config_map_and_in_a_document(tmp_path: Path) -> None:
    text = f"apiVersion: config.{API_VERSION}\nkind: Configuration\nfairSharing: {{}}\n"
    config_map = stored("ConfigMap", "admitq-config", "admitq-system", "v1", data={"config.yaml": text})
    (tmp_path / "map.json").write_text(json.dumps(as_list(FLAVOR, config_map)))
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "flavor.json").write_text(json.dumps(FLAVOR))
    assert read_object_files([tmp_path / "map.json"]).objects.configuration == text
    found = read_object_files([tmp_path / "config.yaml", tmp_path / "flavor.json"]).objects.configuration
    assert yaml.safe_load(found or "") == yaml.safe_load(text)


def test_missing_namespaces_are_assumed_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "objects.json").write_text(json.dumps(QUEUE))
    objects = read_object_files([tmp_path]).objects
    assert [each["metadata"]["labels"] for each in objects.of("namespaces")] == [
        {"kubernetes.io/metadata.name": "team"}
    ]
    assert len(objects.notes) == 1
    assert objects.notes[0].startswith("labels of namespaces are not known: team.")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", r"objects\.yaml:\d: not YAML"),
        ("- 1", "document 1: must be an object"),
        ("kind: Job", "document 1: has no apiVersion"),
        ("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1}]", r"document 1: items\[0\]: has no kind"),
        ("", "no objects in"),
        (yaml.safe_dump_all([FLAVOR, stored("Cohort", "c", "", f"{COMPAT_GROUP}/v1beta2")]), "--api-group"),
    ],
    ids=["not YAML", "list", "no apiVersion", "item without kind", "empty", "two groups"],
)
def test_invalid_file_is_refused_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "objects.yaml").write_text(text)
    with pytest.raises(SourceError, match=problem):
        read_object_files([tmp_path / "objects.yaml"])


def test_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"missing\.yaml: cannot be read: No such file"):
        read_object_files([tmp_path / "missing.yaml"])


def test_group_of_the_caller_selects_objects(tmp_path: Path) -> None:
    text = yaml.safe_dump_all([FLAVOR, stored("Cohort", "c", "", f"{COMPAT_GROUP}/v1beta2")])
    (tmp_path / "objects.yaml").write_text(text)
    assert listed(read_object_files([tmp_path], COMPAT_GROUP).objects) == [("cohorts", "c")]
