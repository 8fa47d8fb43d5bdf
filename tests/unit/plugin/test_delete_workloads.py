"""``delete workload``: which objects are deleted, and what is asked before."""

import asyncio
from typing import Any

import pytest

from admitq.plugin import cluster_access
from admitq.plugin.application import run
from admitq.plugin.cluster_access import ClusterAccess
from admitq.plugin.command import Arguments
from admitq.plugin.delete_workloads import Deletion, check_selection, confirm, find_deletions, prompt
from admitq.plugin.remedies import CommandError
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import JOBS, PODS
from admitq_api.labels import DEFAULT_GROUP, names_for

NAMES = names_for(DEFAULT_GROUP)
WORKLOADS = kinds_of(NAMES).workloads
JOB = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}


def workload(name: str, *owners: tuple[dict[str, Any], str], namespace: str = "ns") -> dict[str, Any]:
    references = [{**kind, "name": owner, "uid": f"uid-{owner}"} for kind, owner in owners]
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "ownerReferences": references,
        }
    }


STORED = (
    workload("job-a", (JOB, "a")),
    workload("job-a-slice", (JOB, "a")),
    workload("group", *(({"apiVersion": "v1", "kind": "Pod"}, f"p{number}") for number in range(2))),
    workload("alone"),
    workload("elsewhere", (JOB, "b"), namespace="other"),
)


class Server:
    """The calls of the command, answered from the Workloads above."""

    def __init__(self, gone: tuple[str, ...] = ()) -> None:
        self.gone = gone
        self.deleted: list[tuple[Any, ...]] = []

    async def list(self, _resource: Any, namespace: str | None) -> tuple[list[dict[str, Any]], str]:
        return [one for one in STORED if namespace in {None, one["metadata"]["namespace"]}], ""

    async def get(self, _resource: Any, name: str, namespace: str) -> dict[str, Any]:
        return next(
            one
            for one in STORED
            if (one["metadata"]["name"], one["metadata"]["namespace"]) == (name, namespace)
        )

    async def request_json(self, _method: str, path: str, **_: Any) -> dict[str, Any]:
        resource = {"/api/v1": PODS, "/apis/batch/v1": JOBS}[path]
        return {"resources": [{"name": resource.plural, "kind": resource.kind, "namespaced": True}]}

    async def delete(self, resource: Any, name: str, *arguments: Any, **options: Any) -> None:
        if name in self.gone:
            raise ApiError(404, "NotFound", "gone")
        self.deleted.append((resource.kind, name, *arguments, options))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()

    def call(_options: Any, action: Any, *, about: Any = None) -> Any:
        assert about is not None
        return asyncio.run(action(access(made)))

    monkeypatch.setattr(cluster_access, "call_cluster", call)
    return made


def access(server: Server) -> ClusterAccess:
    client: Any = server
    return ClusterAccess(client, NAMES, "ns", frozenset({DEFAULT_GROUP}))


def selecting(*names: str, **fields: bool) -> Arguments:
    arguments = Arguments()
    vars(arguments).update({"names": list(names), "all": False, "all_namespaces": False, **fields})
    return arguments


ANSWERED = "Do you want to proceed (y/n)? "


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (selecting("job-a", "job-a-slice"), ["job.batch/a"]),
        (selecting("group"), ["pod/p0", "pod/p1"]),
        (selecting("alone"), [f"workload.{DEFAULT_GROUP}/alone"]),
        (selecting(all=True), ["job.batch/a", "pod/p0", "pod/p1", f"workload.{DEFAULT_GROUP}/alone"]),
        (
            selecting(all=True, all_namespaces=True),
            ["job.batch/a", "pod/p0", "pod/p1", f"workload.{DEFAULT_GROUP}/alone", "job.batch/b"],
        ),
    ],
    ids=["several workloads of a job", "pods of a group", "no job", "all", "all namespaces"],
)
async def test_jobs_of_workloads_are_deleted_once(arguments: Arguments, expected: list[str]) -> None:
    found = await find_deletions(access(Server()), arguments)
    assert [one.full_name for one in found] == expected


def test_prompt_lists_jobs_with_their_workloads() -> None:
    job = Deletion(JOBS, "ns", "a", "uid-a", "ns/job-a")
    alone = Deletion(WORKLOADS, "ns", "alone", "uid-alone")
    assert prompt([job, alone]) == (
        "This operation will also delete:\n"
        "  - job.batch/a of workload ns/job-a\n"
        "Do you want to proceed (y/n)? "
    )
    assert prompt([alone]) == ""


@pytest.mark.parametrize(
    ("names", "is_all", "everywhere", "message"),
    [
        ([], False, False, "no Workload is named"),
        (["w"], True, False, "--all: names are given, too"),
        (["w"], False, True, "--all-namespaces: --all is missing"),
    ],
)
def test_unclear_selection_is_refused(names: list[str], is_all: bool, everywhere: bool, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        check_selection(names, is_all=is_all, everywhere=everywhere)


@pytest.mark.parametrize(("answer", "agrees"), [("y", True), (" Yes ", True), ("n", False), ("", False)])
def test_only_yes_confirms(monkeypatch: pytest.MonkeyPatch, answer: str, agrees: bool) -> None:
    monkeypatch.setattr("builtins.input", lambda _: answer)
    assert confirm(ANSWERED) is agrees
    assert confirm("")


def test_end_of_input_does_not_confirm(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(_: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", end)
    assert not confirm(ANSWERED)


def test_confirmed_deletion_is_for_this_job_only(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("builtins.input", lambda _: "y")
    assert run(["delete", "workload", "job-a", "alone"]) == 0
    options = {"propagation": "Background", "dry_run": False}
    assert server.deleted == [
        ("Job", "a", "ns", "uid-a", options),
        ("Workload", "alone", "ns", "uid-alone", options),
    ]
    assert capsys.readouterr().out == f"job.batch/a deleted\nworkload.{DEFAULT_GROUP}/alone deleted\n"


def test_canceled_deletion_deletes_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("builtins.input", lambda _: "n")
    assert run(["delete", "kwl", "job-a", "alone"]) == 1
    assert server.deleted == []
    assert capsys.readouterr().out == "Deletion is canceled\n"


def test_dry_run_does_not_ask(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["delete", "kwl", "job-a", "--dry-run=client"]) == 0
    assert server.deleted == []
    assert capsys.readouterr().out == "job.batch/a deleted (dry run)\n"
    assert run(["delete", "kwl", "job-a", "--dry-run=server"]) == 0
    assert [options["dry_run"] for *_, options in server.deleted] == [True]
    assert capsys.readouterr().out == "job.batch/a deleted (server dry run)\n"


def test_job_that_is_gone_does_not_stop_the_others(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.gone = ("a",)
    assert run(["delete", "kwl", "job-a", "alone", "-y"]) == 0
    assert capsys.readouterr().out == f"job.batch/a is gone already\nworkload.{DEFAULT_GROUP}/alone deleted\n"


def test_no_workload_is_reported(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.unit.plugin.test_delete_workloads.STORED", ())
    assert run(["delete", "kwl", "--all", "-y"]) == 0
    assert run(["delete", "kwl", "--all", "-A", "-y"]) == 0
    assert capsys.readouterr().err == "No resources found in ns namespace.\nNo resources found.\n"
    assert server.deleted == []
