"""Paths of the webhooks, and the rules of the webhook configurations."""

import asyncio
import itertools
from dataclasses import replace

import orjson
import pytest

from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.pod import POD
from admitq.serving.http import HttpRequest, route_by_path
from admitq_api.labels import COMPAT_GROUP, GROUPS, names_for
from admitq_webhooks import routes as module
from admitq_webhooks.routes import review_handlers, webhook_rules
from tests.unit.webhooks.support import NAMES, FakeLookups, a_job, handlers, policy, post, review

OTHER = replace(JOB, framework="example.com/other", group="example.com", kind="Other", plural="others")


def test_each_kind_has_its_own_webhook_paths() -> None:
    assert set(handlers()) == {
        "/mutate-admitq-dev-v1beta2-clusterqueue",
        "/mutate-admitq-dev-v1beta2-resourceflavor",
        "/mutate-admitq-dev-v1beta2-workload",
        "/mutate-batch-v1-job",
        "/validate--v1-pod-marks",
        "/validate--v1-pod-resize",
        "/validate-admitq-dev-v1beta2-clusterqueue",
        "/validate-admitq-dev-v1beta2-cohort",
        "/validate-admitq-dev-v1beta2-resourceflavor",
        "/validate-admitq-dev-v1beta2-workload",
        "/validate-batch-v1-job",
    }


@pytest.mark.parametrize("group", GROUPS)
def test_every_path_of_webhook_configurations_is_served(group: str) -> None:
    names = names_for(group)
    rules = webhook_rules(names, (JOB, OTHER))
    paths = {entry["path"] for entries in rules.values() for entry in entries}
    assert paths == set(review_handlers(policy(names=names), FakeLookups(), (JOB, OTHER)))


def test_webhook_configurations_fail_closed_without_side_effects() -> None:
    rules = webhook_rules(NAMES, (JOB,))
    assert set(rules) == {"mutating", "validating"}
    for entry in rules["mutating"] + rules["validating"]:
        assert entry["failurePolicy"] == "Fail"
        assert entry["sideEffects"] == "None"
        assert entry["timeoutSeconds"] == 10
        assert entry["matchPolicy"] == "Equivalent"


def test_webhook_rules_select_namespaces_operations_and_resources() -> None:
    rules = webhook_rules(NAMES, (JOB,))
    job = next(entry for entry in rules["validating"] if entry["name"] == "vjob.admitq.dev")
    assert job["namespaceSelector"] == "jobs"
    assert job["rule"] == {
        "apiGroups": ["batch"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["jobs"],
    }
    workload = next(entry for entry in rules["validating"] if entry["name"] == "vworkload.admitq.dev")
    assert workload["namespaceSelector"] == "core"
    assert workload["rule"]["resources"] == ["workloads", "workloads/status"]
    assert all(entry["rule"]["operations"] == ["CREATE"] for entry in rules["mutating"])


@pytest.mark.parametrize("group", GROUPS)
def test_pod_updates_are_reviewed_only_with_a_key_of_the_api_group(group: str) -> None:
    names = names_for(group)
    rules = webhook_rules(names, (JOB, POD))
    conditions = {
        entry["name"]: entry["matchConditions"] for entry in rules["mutating"] + rules["validating"]
    }
    pod_conditions = [conditions.pop(f"vpod{aspect}.{group}") for aspect in ("", "resize", "marks")]
    [of_workloads] = conditions.pop(f"vworkload.{group}")
    assert of_workloads["name"] == "restricted-by-a-rule"
    [of_jobs] = conditions.pop(f"vjob.{group}")
    assert of_jobs["name"] == "restricted-by-a-rule"
    [of_new_workloads] = conditions.pop(f"mworkload.{group}")
    assert of_new_workloads["name"] == "with-field-to-change"
    assert not any(conditions.values())
    for [condition], row in itertools.product(pod_conditions, names.list_rows()):
        assert (f"'{row.key}'" in condition["expression"]) == (row.kind != "preemption gate"), row


def test_kind_that_mutates_updates_has_update_operation() -> None:
    rules = webhook_rules(NAMES, (JOB, replace(OTHER, webhook=replace(OTHER.webhook, mutates_updates=True))))
    operations = {entry["name"]: entry["rule"]["operations"] for entry in rules["mutating"]}
    assert operations["mjob.admitq.dev"] == ["CREATE"]
    assert operations["mother.admitq.dev"] == ["CREATE", "UPDATE"]


def test_webhook_lists_the_frameworks_that_need_it() -> None:
    rules = webhook_rules(
        NAMES, (JOB, replace(OTHER, ownership=replace(OTHER.ownership, implied_frameworks=("batch/job",))))
    )
    frameworks = {entry["name"]: entry["frameworks"] for entry in rules["validating"]}
    assert frameworks["vjob.admitq.dev"] == ["batch/job", "example.com/other"]
    assert frameworks["vother.admitq.dev"] == ["example.com/other"]
    assert frameworks["vcohort.admitq.dev"] == []


def test_webhook_paths_and_rules_contain_api_group() -> None:
    rules = webhook_rules(names_for(COMPAT_GROUP), (JOB,))
    assert rules["mutating"][0]["path"] == "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue"
    assert rules["mutating"][0]["rule"]["apiGroups"] == [COMPAT_GROUP]


async def test_unknown_webhook_path_is_answered_with_404() -> None:
    response = await route_by_path(handlers())(HttpRequest("POST", "/mutate-batch-v1-cronjob"))
    assert response.status == 404


async def test_review_results_are_observed_by_path() -> None:
    observed: list[tuple[str, bool]] = []
    served = review_handlers(
        policy(),
        FakeLookups(),
        (JOB,),
        observe=lambda path, allowed, _seconds: observed.append((path, allowed)),
    )
    path = "/validate-batch-v1-job"
    await post(served[path], path, review(a_job()))
    await post(served[path], path, review(a_job(labels={NAMES.queue_name: "No Name"})))
    assert observed == [(path, True), (path, False)]


async def test_error_in_validation_of_kind_rejects_review_and_keeps_mutation_working(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> list[object]:
        raise RuntimeError("a bug")

    failing_kind = replace(JOB, webhook=replace(JOB.webhook, validate_create=fail))
    served = review_handlers(policy(integrations=(failing_kind,)), FakeLookups(), (failing_kind,))
    _, response_body = await post(served["/validate-batch-v1-job"], "", review(a_job()))
    response = orjson.loads(response_body)["response"]
    assert response["uid"] == "the-uid"
    assert response["allowed"] is False
    assert response["status"]["code"] == 500
    assert "a bug" not in response["status"]["message"]
    assert "unexpected error" in caplog.text
    _, response_body = await post(served["/mutate-batch-v1-job"], "", review(a_job()))
    assert orjson.loads(response_body)["response"]["allowed"] is True


async def test_slow_review_is_answered_with_504(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(FakeLookups):
        async def namespace_labels(self, name: str) -> dict[str, str] | None:
            await asyncio.Event().wait()
            return self.namespaces.get(name)

    monkeypatch.setattr(module, "REVIEW_SECONDS", 0.01)
    served = review_handlers(policy(), Slow(), (JOB,))
    _, response_body = await post(
        served["/mutate-batch-v1-job"], "", review(a_job(labels={NAMES.queue_name: "q"}))
    )
    assert orjson.loads(response_body)["response"]["status"]["code"] == 504
