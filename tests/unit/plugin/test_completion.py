"""What may come next on a command line."""

import os
import subprocess
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from shutil import which
from typing import Any, cast

import pytest

from admitq.plugin.application import COMMANDS, SUMMARIES, run
from admitq.plugin.cluster_access import ClusterAccess
from admitq.plugin.completion import Answer, Candidate, complete, join_assignments
from admitq.plugin.live_names import MOST_NAMES, list_workloads_and_jobs, look_up
from admitq.plugin.shells import render_answer
from admitq.runtime.client import Client, Page
from admitq_api.labels import DEFAULT_GROUP, names_for

NAMES: Mapping[str, tuple[str, ...]] = {
    "clusterqueues": ("cq-a", "cq-b"),
    "localqueues": ("lq-a", "lq-b"),
    "workloads": ("w-a", "w-b"),
    "questions": ("job/j", "w-a"),
    "namespaces": ("ns-a",),
    "contexts": ("ctx",),
    "groups": ("example.com",),
}


def answer(*line: str) -> Answer:
    return complete(line, COMMANDS, SUMMARIES, lambda source, _values: NAMES[source])


def values(*line: str) -> list[str]:
    return [candidate.value for candidate in answer(*line).candidates]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (("res",), ["resume"]),
        (("stop", ""), ["workload", "clusterqueue", "localqueue"]),
        (("stop", "cl"), ["clusterqueue"]),
        (("nothing", ""), []),
        (("stop", "nothing", ""), []),
        (("stop", "cq", ""), ["cq-a", "cq-b"]),
        (("stop", "cq", "cq-b"), ["cq-b"]),
        (("stop", "cq", "cq-a", ""), []),
        (("stop", "cq", "--keep-already-running", ""), ["cq-a", "cq-b"]),
        (("stop", "lq", "-n", ""), ["ns-a"]),
        (("stop", "lq", "-n", "ns-a", ""), ["lq-a", "lq-b"]),
        (("stop", "lq", "-n=ns-a", ""), ["lq-a", "lq-b"]),
        (("stop", "lq", "--context="), ["ctx"]),
        (("stop", "lq", "--context", "="), ["ctx"]),
        (("stop", "lq", "--context", "=", "c"), ["ctx"]),
        (("stop", "lq", "--api-group", "e"), ["example.com"]),
        (("stop", "lq", "--nothing="), []),
        (("stop", "lq", "--nothing", ""), ["lq-a", "lq-b"]),
        (("stop", "cq", "--kee"), ["--keep-already-running"]),
        (("stop", "cq", "--keep-already-running", "--kee"), []),
        (("stop", "cq", "--he"), ["--help"]),
        (("list", "kwl", "--status", "p"), ["pending"]),
        (("list", "kwl", "--status=pending", "--stat"), ["--status"]),
        (("list", "kwl", "-q", ""), ["lq-a", "lq-b"]),
        (("explain", ""), ["job/j", "w-a"]),
        (("explain", "workload", "w"), ["w-a"]),
        (("eta", "j"), ["job/j"]),
        (("create", "lq", "new", "-c", "cq-a"), ["cq-a"]),
        (("create", "lq", ""), []),
        (("delete", "kwl", "w-a", ""), ["w-a", "w-b"]),
        (("get", "cq", "-o", "yaml", "cq-a"), ["cq-a"]),
        (("move", "workload", "w-a", "--to", "lq-"), ["lq-a", "lq-b"]),
        (("completion", "z"), ["zsh"]),
    ],
)
def test_candidates_continue_the_last_word(line: tuple[str, ...], expected: list[str]) -> None:
    assert values(*line) == expected


@pytest.mark.parametrize("line", [(), ("",)])
def test_first_word_is_one_of_all_commands_with_its_meaning(line: tuple[str, ...]) -> None:
    candidates = answer(*line).candidates
    assert {one.value for one in candidates} == {command.words[0] for command in COMMANDS}
    assert Candidate("stop", "Stop a queue or a workload.") in candidates


def test_files_are_left_to_the_shell() -> None:
    assert answer("stop", "lq", "--kubeconfig", "") == Answer((), files=True)


def test_names_are_looked_up_in_the_cluster_and_the_namespace_of_the_line() -> None:
    seen: list[tuple[str, Mapping[str, str]]] = []

    def record(source: str, options: Mapping[str, str]) -> list[str]:
        seen.append((source, options))
        return []

    complete(("stop", "lq", "--context=c", "-n", "n", ""), COMMANDS, SUMMARIES, record)
    assert seen == [("localqueues", {"context": "c", "namespace": "n"})]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("a", "=", "b"), ["a", "=", "b"]),
        (("--a", "=", "b", "c"), ["--a=b", "c"]),
        (("--a", "="), ["--a="]),
        (("--a=b", "c"), ["--a=b", "c"]),
    ],
)
def test_assignments_that_bash_splits_are_joined(line: tuple[str, ...], words: list[str]) -> None:
    assert join_assignments(line) == words


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (Answer(()), ":4"),
        (Answer((), files=True), ":0"),
        (Answer((Candidate("a", "A."), Candidate("b"), Candidate("c\n:0"))), "a\tA.\nb\n:4"),
    ],
)
def test_answer_has_a_candidate_a_line_and_the_directive(given: Answer, text: str) -> None:
    assert render_answer(given) == text


def test_contexts_are_those_of_the_kubeconfig(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("contexts: [{name: b}, {name: a}]")
    assert look_up("contexts", {"kubeconfig": str(path)}) == ["a", "b"]


@pytest.mark.parametrize("source", ["contexts", "clusterqueues", "namespaces"])
def test_names_that_cannot_be_read_are_none(tmp_path: Path, source: str) -> None:
    assert look_up(source, {"kubeconfig": str(tmp_path / "missing")}) == []


COMPLETIONS: Mapping[str, str] = {
    "bash": """{script}
COMP_WORDS=(kubectl-admitq {words}) COMP_CWORD=2
compopt() {{ [[ "$*" == "+o bashdefault +o default" ]] && files=; }}
files=files
_kubectl_admitq
[[ -z ${{COMPREPLY[*]}} ]] && echo "$files" || printf '%s\n' "${{COMPREPLY[@]}}"
""",
    "zsh": """compdef() {{ }}
compset() {{ }}
_describe() {{ print -rl -- "${{(P@)2}}" }}
_files() {{ echo files }}
{script}
words=(kubectl-admitq {words}) CURRENT=3
_kubectl_admitq
""",
    "fish": """{script}
function __fish_complete_path; echo files; end
complete -C "kubectl-admitq {words}"
""",
}
"""For each shell, a program that loads a script, and prints the completions of words, or "files"."""


@pytest.mark.parametrize(
    ("answered", "words", "completions"),
    [
        ("stop\\tStop it.\\nstart\\n:4", "a st", {"stop", "start"}),
        (":4", "a ''", set[str]()),
        (":0", "a ''", {"files"}),
    ],
    ids=["words", "nothing", "files"],
)
@pytest.mark.parametrize("shell", COMPLETIONS)
def test_scripts_complete_the_last_word(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    shell: str,
    answered: str,
    words: str,
    completions: set[str],
) -> None:
    if which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    run(["completion", shell])
    program = COMPLETIONS[shell].format(script=capsys.readouterr().out, words=words)
    answerer = tmp_path / "kubectl_complete-admitq"
    answerer.write_text(f"#!/bin/sh\n[ $# = 2 ] && printf '{answered}\\n'\n")
    answerer.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    result = subprocess.run(
        [shell, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    # zsh and fish print the meanings, too.
    assert {line.partition("\t")[0].partition(":")[0] for line in result.stdout.split("\n")} - {
        ""
    } == completions


class PagingClient:
    """Lists Workloads of two Jobs and of a RayJob, in one page."""

    async def pages(self, resource: Any, namespace: str, *, page_size: int) -> AsyncGenerator[Page]:
        assert (resource.plural, namespace, page_size) == ("workloads", "ns", MOST_NAMES)
        owners = [
            ("batch/v1", "Job", "a"),
            ("batch.example.com/v1", "Job", "b"),
            ("ray.io/v1", "RayJob", "c"),
        ]
        items = [
            {
                "metadata": {
                    "name": f"w-{name}",
                    "ownerReferences": [{"apiVersion": api_version, "kind": kind, "name": name}],
                }
            }
            for api_version, kind, name in owners
        ]
        yield Page(items, "1", first=True)


async def test_targets_of_questions_are_workloads_and_their_jobs() -> None:
    names = names_for(DEFAULT_GROUP)
    access = ClusterAccess(cast("Client", PagingClient()), names, "ns", frozenset())
    assert await list_workloads_and_jobs(access) == [
        "job.batch.example.com/b",
        "job/a",
        "rayjob/c",
        "w-a",
        "w-b",
        "w-c",
    ]
