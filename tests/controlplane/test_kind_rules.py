"""Rules of each job kind: requests that are rejected, accepted or defaulted."""

import dataclasses
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from admitq.runtime.errors import ApiError
from tests.controlplane.kind_cases import KindCase, Mutation, Rule, differences
from tests.controlplane.kind_stories import for_kinds_with
from tests.controlplane.played_jobs import HELD, PlayedJob, held_queue, open_queues, queue_elsewhere, submit
from tests.controlplane.stage import Stage


@for_kinds_with("validation")
async def test_requests_are_accepted_rejected_or_defaulted_by_the_rules_of_their_kind(
    stage: Stage, case: KindCase
) -> None:
    await open_queues(stage, case)
    await held_queue(stage, case)
    await queue_elsewhere(stage)
    assert case.queue(stage.names.group) == "default", "a job without queue name gets the default"
    bases: dict[str, PlayedJob] = {}
    problems: list[str] = []
    for rule in case.validation:
        if rule.when == "creation":
            problems += [f"{rule.rule}: {one}" for one in await _check_creation(stage, case, rule)]
        else:
            key = json.dumps([rule.when, rule.given], sort_keys=True)
            if key not in bases:
                bases[key] = await _existing(stage, case, rule, f"job-{len(bases)}")
            problems += [f"{rule.rule}: {one}" for one in await _check_change(bases[key], rule)]
    assert problems == []
    queue_label = f"metadata.labels[{stage.names.queue_name}]"
    unqueued = dataclasses.replace(stage, namespace="default")
    _, left_alone = await submit(unqueued, case, changes={queue_label: None}, dry_run=True)
    assert not case.suspended or differences(left_alone, case.suspended), "it is not queued there"
    for mutation in case.mutation:
        await stage.until(partial(_defaulting_differences, stage, case, mutation), [], what=mutation.rule)


async def _defaulting_differences(stage: Stage, case: KindCase, mutation: Mutation) -> list[str]:
    """Where a new job differs from the expected one; the webhook may not have observed a queue yet."""
    _, created = await submit(stage, case, changes=mutation.given, dry_run=True)
    return differences(created, {**case.suspended, **mutation.becomes})


async def _existing(stage: Stage, case: KindCase, rule: Rule, name: str) -> PlayedJob:
    """Create a job in the state in which a rule applies."""
    queue = {"queued": HELD, "running": case.queue(stage.names.group)}[rule.when]
    job, _ = await submit(stage, case, name, changes=rule.given, queue=queue)
    if rule.when == "running":
        await job.until_started()
        await job.play("started")
    return job


async def _check_creation(stage: Stage, case: KindCase, rule: Rule) -> list[str]:
    async def request(changes: Mapping[str, Any]) -> Any:
        _, created = await submit(stage, case, changes={**rule.given, **changes}, dry_run=True)
        return created

    return [*await _not_refused(request, rule), *await _not_accepted(request, rule)]


async def _check_change(job: PlayedJob, rule: Rule) -> list[str]:
    async def request(changes: Mapping[str, Any]) -> Any:
        return await job.change(changes, dry_run=True)

    return [*await _not_refused(request, rule), *await _not_accepted(request, rule)]


async def _not_refused(request: Any, rule: Rule) -> list[str]:
    try:
        await request(rule.refused)
    except ApiError as error:
        if not (error.is_invalid or error.is_forbidden):
            raise
        fits = f"{rule.field}: " in error.message and rule.message in error.message
        return [] if fits else [f"refused with {error.message!r}"]
    return [f"{dict(rule.refused)} is not refused"]


async def _not_accepted(request: Any, rule: Rule) -> list[str]:
    try:
        answer = await request(rule.accepted)
    except ApiError as error:
        return [f"{dict(rule.accepted)} is refused with {error.message!r}"]
    return differences(answer, rule.accepted)
