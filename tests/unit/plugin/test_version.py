"""The versions that ``version`` prints."""

import json

import pytest
import yaml

from admitq.plugin.application import run
from admitq.plugin.version import manager_images
from admitq_api.json_objects import JsonObject
from admitq_api.version import VERSION


def deployment(namespace: str, name: str, *images: str) -> JsonObject:
    containers = [{"name": "c", "image": image} for image in images]
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"template": {"spec": {"containers": containers}}},
    }


def test_managers_are_listed_by_namespace_and_name_with_the_image_of_their_first_container() -> None:
    found = manager_images([deployment("b", "m", "i:2"), deployment("a", "m", "i:1", "sidecar:1")])
    assert found == [
        {"namespace": "a", "name": "m", "image": "i:1"},
        {"namespace": "b", "name": "m", "image": "i:2"},
    ]


@pytest.mark.parametrize("shown", [deployment("a", "m"), {}, {"spec": {"template": None}}])
def test_deployment_without_container_is_not_listed(shown: JsonObject) -> None:
    assert manager_images([shown]) == []


def test_client_version_needs_no_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version", "--client"]) == 0
    assert capsys.readouterr().out == f"Client version: {VERSION}\n"


def test_client_version_is_printed_as_json_and_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    run(["version", "--client", "-o", "json"])
    as_json = capsys.readouterr().out
    run(["version", "--client", "-o", "yaml"])
    as_yaml = capsys.readouterr().out
    assert json.loads(as_json) == yaml.safe_load(as_yaml) == {"clientVersion": VERSION}
