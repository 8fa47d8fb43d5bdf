"""``check`` through the visibility API: what the plugin sends, and how it combines both answers."""

from typing import Any, cast

import pytest

from admitq.asking.object_checks import ObjectCheck, ObjectChecks
from admitq.manifests.documents import read_text
from admitq.plugin.checking import ask_visibility_api
from admitq.plugin.checks import exit_status
from admitq.plugin.cluster_access import ClusterAccess
from admitq.plugin.reviews import InvalidReview
from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from tests.unit.controllers.builders import NAMES

FILE = """\
apiVersion: batch/v1
kind: Job
metadata: {name: rejected}
---
apiVersion: batch/v1
kind: Job
metadata: {name: waits}
---
apiVersion: batch/v1
kind: Job
metadata: {name: invalid}
---
apiVersion: batch/v1
kind: Job
metadata: {name: free}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
"""
RUNTIME = {"apiVersion": "example.com/v1", "kind": "Runtime", "metadata": {"name": "r"}}
ANSWERS = [
    {"verdict": "Waits", "clusterQueue": "cq", "text": ["Starts: soon"], "problems": []},
    {"verdict": "Refused", "text": [], "problems": ["spec.objects[1]: spec: is wrong"]},
    {"verdict": "NotQueued", "text": [], "problems": []},
    {"verdict": "Accepted", "text": ["no decision depends on its kind"], "problems": []},
    {"verdict": "Accepted", "text": [], "problems": []},
]
"""Answers about the accepted objects, and about the runtime."""


class CheckingClient:
    """Answers questions of the visibility API, or fails, and records them."""

    def __init__(self, *failures: ApiError) -> None:
        self.failures = [*failures]
        self.questions: list[tuple[str, dict[str, Any]]] = []

    async def request_json(self, method: str, path: str, body: Any = None) -> Any:
        assert method == "POST"
        self.questions.append((path, body))
        if self.failures:
            raise self.failures.pop(0)
        return {"status": {"objects": ANSWERS}}


def checked() -> ObjectChecks:
    """Return the objects of the file after a dry run, in which the API server has refused the first one."""
    checks = ObjectChecks([*map(ObjectCheck, read_text(FILE, "jobs.yaml"))])
    checks.checks[0].problems = ("denied",)
    return checks


async def ask(checks: ObjectChecks, client: CheckingClient, group: str = NAMES.visibility_group) -> bool:
    access = ClusterAccess(cast("Client", client), NAMES, "ns", frozenset({group}))
    return await ask_visibility_api(access, checks, [RUNTIME])


async def test_accepted_objects_get_the_answers_of_the_visibility_api() -> None:
    checks, client = checked(), CheckingClient()
    assert await ask(checks, client)
    ((path, body),) = client.questions
    assert (path, body["kind"]) == (f"/apis/{NAMES.visibility_group}/{NAMES.version}/check", "Check")
    assert [each["metadata"]["name"] for each in body["spec"]["objects"]] == [
        *("waits", "invalid", "free", "other"),
        "r",
    ]
    assert [(check.name, check.verdict, [*check.lines]) for check in checks.checks] == [
        ("rejected", "Refused", ["denied"]),
        ("waits", "Waits", ["Starts: soon"]),
        ("invalid", "Refused", ["jobs.yaml:9: spec: is wrong"]),
        ("free", "NotQueued", []),
        ("other", "Accepted", ["no decision depends on its kind"]),
    ]
    assert checks.to_json()["objects"][1]["clusterQueue"] == "cq"
    assert exit_status(checks) == 4


async def test_user_of_one_namespace_asks_about_this_namespace() -> None:
    client = CheckingClient(ApiError(403, "Forbidden", "check is forbidden"))
    assert await ask(checked(), client)
    path, body = client.questions[-1]
    assert path.endswith("/namespaces/ns/localcheck")
    assert (body["kind"], body["metadata"]) == ("LocalCheck", {"namespace": "ns"})


@pytest.mark.parametrize("errors", [[404], [405], [503], [403, 403], [403, 404]])
async def test_cluster_that_does_not_answer_leaves_the_checks_to_the_plugin(errors: list[int]) -> None:
    checks = checked()
    client = CheckingClient(*(ApiError(status, "Failed", "no") for status in errors))
    assert not await ask(checks, client)
    assert len(client.questions) == len(errors)
    assert all(check.answer is None for check in checks.checks)


async def test_cluster_without_visibility_api_is_not_asked() -> None:
    client = CheckingClient()
    assert not await ask(checked(), client, "other.example.com")
    assert client.questions == []


async def test_refused_objects_need_no_further_answer() -> None:
    checks, client = checked(), CheckingClient()
    checks.checks = checks.checks[:1]
    assert await ask(checks, client)
    assert client.questions == []


async def test_question_that_cannot_be_answered_has_the_line_of_the_file() -> None:
    message = "spec.objects[0]: metadata.namespace: only objects of namespace ns can change"
    client = CheckingClient(ApiError(403, "Forbidden", "no"), ApiError(400, "BadRequest", message))
    with pytest.raises(InvalidReview, match=r"^jobs\.yaml:5: metadata\.namespace: only objects"):
        await ask(checked(), client)
