"""The documentation is correct: manifests are accepted, links have targets, commands exist."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from typer.main import get_command

from admitq.cli.commands import application
from admitq.simulator.schema import Scenario
from admitq_api.configuration import KIND as CONFIGURATION
from admitq_api.configuration import load_configuration
from admitq_api.labels import DEFAULT_GROUP
from localcluster import LocalCluster, crds, processes
from localcluster.api import Api, ApiFailure
from tests.e2e.conftest import CHART, REPOSITORY, Rendered

PAGES = sorted(
    [
        *REPOSITORY.glob("*.md"),
        CHART / "README.md",
        *(REPOSITORY / "docs").rglob("*.md"),
        *(REPOSITORY / "examples").rglob("*.md"),
    ]
)
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
HERE_DOCUMENT = re.compile(r"<<'?EOF'?\n(.*?)^EOF$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
COMMAND = re.compile(r"(?<![\w/.])((?:hack|\.ci)/[\w/-]+)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
SCENARIO = "Scenario"
"""The kind of the simulator's files, which has no CRD."""
NOT_INSTALLED = {"Application", "PipelineRun", "Workflow"}
"""Kinds of other projects without a CRD in the local control plane."""
QUESTIONS = {"WhatIf", "LocalWhatIf", "Check", "LocalCheck"}
"""Kinds of the visibility API, which the local control plane does not serve. They contain manifests."""


class Block(NamedTuple):
    """A code block of a page."""

    page: Path
    language: str
    text: str


def blocks(*languages: str) -> Iterator[Block]:
    for page in PAGES:
        for found in BLOCK.finditer(page.read_text()):
            if found["language"] in languages:
                yield Block(page, found["language"], found["text"])


def manifests() -> list[Any]:
    texts = [(block.page, block.text) for block in blocks("yaml")]
    texts += [(block.page, text) for block in blocks("sh") for text in HERE_DOCUMENT.findall(block.text)]
    return [
        pytest.param(one, id=f"{page.relative_to(REPOSITORY)}: {one['kind']}")
        for page, text in texts
        for whole in yaml.load_all(text, Loader=yaml.CSafeLoader)
        for one in (whole["spec"]["objects"] if whole.get("kind") in QUESTIONS else [whole])
        if one.get("kind") not in {None, CONFIGURATION, SCENARIO, *NOT_INSTALLED}
    ]


@cache
def definitions() -> dict[tuple[str, str], str]:
    """The names of the CRDs that can be installed, by group and kind."""
    specs = [one["spec"] for one in crds.definitions((*crds.NAMES, *crds.OWN_NAMES))]
    return {(one["group"], one["names"]["kind"]): f"{one['names']['plural']}.{one['group']}" for one in specs}


def path_of(manifest: dict[str, Any], api: Api) -> str:
    """The path for objects of the manifest's kind, from the discovery of the API server."""
    version, kind = manifest["apiVersion"], manifest["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    found: list[dict[str, Any]] = []

    def is_served() -> bool:
        try:
            resources = api.request("GET", root)["resources"]
        except ApiFailure:
            return False
        found[:] = [one for one in resources if one["kind"] == kind and "/" not in one["name"]]
        return bool(found)

    assert processes.wait(is_served, timeout_s=60.0), f"{kind} of {version} is not served"
    namespace = "/namespaces/default" if found[0]["namespaced"] else ""
    return f"{root}{namespace}/{found[0]['name']}"


@pytest.mark.parametrize("manifest", manifests())
def test_documented_manifests_are_accepted_by_the_api_server(
    manifest: dict[str, Any], cluster: LocalCluster, installed: str
) -> None:
    if installed != DEFAULT_GROUP:
        pytest.skip("the documentation is written for admitq's own group")
    group = manifest["apiVersion"].rpartition("/")[0]
    if definition := definitions().get((group, manifest["kind"])):
        crds.install_missing(cluster, [definition])
    # With a generated name, so that existing objects do not matter.
    metadata = {**manifest["metadata"], "name": None, "namespace": None, "generateName": "docs-"}
    with cluster.api() as api:
        path = f"{path_of(manifest, api)}?dryRun=All&fieldValidation=Strict"
        api.request("POST", path, {**manifest, "metadata": metadata})


def test_documented_admission_check_example_equals_the_tested_one() -> None:
    example = (REPOSITORY / "tests" / "controlplane" / "example_check.py").read_text()
    guide = REPOSITORY / "docs" / "guides" / "write-an-admission-check.md"
    assert example in [block.text for block in blocks("python") if block.page == guide]


def test_documented_configuration_files_are_accepted() -> None:
    files = [block.text for block in blocks("yaml") if f"kind: {CONFIGURATION}\n" in block.text]
    assert files
    for file in files:
        load_configuration(file)


def test_documented_scenarios_are_accepted() -> None:
    texts = [block.text for block in blocks("yaml") if f"kind: {SCENARIO}\n" in block.text]
    read = [one for text in texts for one in yaml.load_all(text, Loader=yaml.CSafeLoader)]
    specs = [one["spec"] for one in read if one["kind"] == SCENARIO and one["spec"] != "…"]
    assert specs
    for spec in specs:
        Scenario.model_validate_json(json.dumps(spec))


def test_documented_values_are_accepted_by_the_chart(render: Callable[..., Rendered]) -> None:
    files = [block.text for block in blocks("yaml") if block.text.startswith("# values.yaml\n")]
    assert files
    for file in files:
        render(yaml.load(file.replace("…", ""), Loader=yaml.CSafeLoader))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_to_existing_files_and_headings(page: Path) -> None:
    for target, heading in LINK.findall(page.read_text()):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), target
        if heading:
            known = {
                re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-")
                for one in HEADING.findall(file.read_text())
            }
            assert heading in known, f"{target}#{heading}"


def test_every_page_is_linked_from_the_contents() -> None:
    contents = REPOSITORY / "docs" / "README.md"
    linked = {(contents.parent / target).resolve() for target, _ in LINK.findall(contents.read_text())}
    assert {page for page in PAGES if page.is_relative_to(contents.parent)} - {contents} <= linked


def words(language: str) -> Iterator[tuple[Path, list[str]]]:
    for block in blocks(language):
        text = HERE_DOCUMENT.sub("", block.text).replace("\\\n", " ")
        for line in text.splitlines():
            yield block.page, shlex.split(line, comments=True) if line.count("'") % 2 == 0 else line.split()


def test_documented_commands_of_the_repository_exist() -> None:
    named = {found for block in blocks("sh") for found in COMMAND.findall(block.text)}
    assert {"hack/up", "hack/test", "hack/check"} <= named
    for command in named:
        assert (REPOSITORY / command).is_file(), command


def test_documented_commands_of_admitq_exist() -> None:
    known = get_command(application).commands  # type: ignore[attr-defined]
    inline = re.compile(r"`admitq ([a-z][a-z-]*)(?: --[^`]*)?`")
    for page in PAGES:
        for command in inline.findall(page.read_text()):
            assert command in known, f"{page}: admitq {command}"


def test_documented_set_flags_name_values_of_the_chart() -> None:
    defaults = yaml.load((CHART / "values.yaml").read_text(), Loader=yaml.CSafeLoader)
    for page, line in words("sh"):
        for setting in (word for before, word in pairwise(line) if before == "--set"):
            value: Any = defaults
            for key in setting.partition("=")[0].split("."):
                assert key in value, f"{page}: {setting}"
                value = value[key]
