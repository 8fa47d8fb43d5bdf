"""Commands that kubectl runs itself: which words it gets, and how the API group is found."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from admitq.plugin import cluster_access
from admitq.plugin.application import run
from admitq.plugin.options import ClusterOptions
from admitq.plugin.pass_through import cluster_options, split_group
from admitq.plugin.remedies import CommandError
from admitq_api.labels import COMPAT_GROUP, DEFAULT_GROUP


class Executed(Exception):
    """The process was replaced."""


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command line of kubectl. The cluster serves the default group only."""
    line: list[str] = []

    def replace_process(program: str, arguments: Sequence[str]) -> None:
        assert program == "kubectl"
        line.extend(arguments)
        raise Executed

    def find_group(options: ClusterOptions, _action: Callable[..., Any]) -> str:
        assert options == ClusterOptions()
        return DEFAULT_GROUP

    monkeypatch.delenv("ADMITQ_API_GROUP", raising=False)
    monkeypatch.setattr(os, "execvp", replace_process)
    monkeypatch.setattr(cluster_access, "call_cluster", find_group)
    return line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("get workload", "get workloads.admitq.dev"),
        ("get kwl w -o yaml", "get workloads.admitq.dev w -o yaml"),
        ("edit cq team --validate=false", "edit clusterqueues.admitq.dev team --validate=false"),
        ("describe lq -n team -l a=b", "describe localqueues.admitq.dev -n team -l a=b"),
        ("patch rf f --type merge -p {}", "patch resourceflavors.admitq.dev f --type merge -p {}"),
        ("delete clusterqueues --all", "delete clusterqueues.admitq.dev --all"),
        ("get lq a -- --api-group x", "get localqueues.admitq.dev a -- --api-group x"),
        (f"get kwl --api-group {COMPAT_GROUP} w", f"get workloads.{COMPAT_GROUP} w"),
        (f"get kwl --api-group={COMPAT_GROUP}", f"get workloads.{COMPAT_GROUP}"),
    ],
)
def test_kubectl_gets_the_full_name_of_the_kind_and_all_words(
    executed: list[str], line: str, expected: str
) -> None:
    with pytest.raises(Executed):
        run(line.split())
    assert " ".join(executed) == f"kubectl {expected}"


def test_variable_sets_the_group(executed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADMITQ_API_GROUP", COMPAT_GROUP)
    with pytest.raises(Executed):
        run(["get", "cq"])
    assert executed == ["kubectl", "get", f"clusterqueues.{COMPAT_GROUP}"]


def test_options_of_the_cluster_are_read_and_passed_on() -> None:
    words = ["w", "--kubeconfig=/k", "--context", "other", "-o", "name"]
    assert cluster_options(words, None) == ClusterOptions(Path("/k"), "other", None, None)
    assert split_group([*words, "--api-group", "g"]) == (words, "g")


def test_option_without_value_is_refused() -> None:
    with pytest.raises(CommandError, match="--api-group: the value is missing\nWrite --api-group GROUP"):
        split_group(["w", "--api-group"])


@pytest.mark.usefixtures("executed")
def test_group_that_is_not_one_of_admitq_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["get", "cq", "--api-group=example.com"]) == 1
    assert "'example.com' is not one of" in capsys.readouterr().err


@pytest.mark.usefixtures("executed")
def test_missing_kubectl_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["get", "cq", f"--api-group={DEFAULT_GROUP}"]) == 1
    assert capsys.readouterr().err.startswith("error: no program kubectl is on the PATH\nInstall it")


@pytest.mark.usefixtures("executed")
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_that_of_the_plugin(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        run(["get", "workload", option])
    assert "All options of kubectl get are possible" in capsys.readouterr().out
