"""Invalid objects, and changes by other programs at a bad time.

``bad_inputs.yaml`` is the table. All inputs are tried concurrently on every kind, beside a valid job.
"""

import asyncio
import dataclasses
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from admitq.integrations.kinds.pod import POD
from admitq.runtime.controller import QUARANTINE_AFTER
from admitq.runtime.errors import ApiError
from admitq_api.json_objects import value_at
from admitq_api.labels import DEFAULT_GROUP
from localcluster.installation import Installation
from localcluster.waiting import eventually
from tests.controlplane.kind_cases import KINDS, KindCase, differences, in_group, load, path_of, with_changes
from tests.controlplane.played_jobs import (
    CHECKED,
    HELD,
    PlayedJob,
    checked_queue,
    create_other,
    has_finalizers,
    held_queue,
    open_queues,
    submit,
)
from tests.controlplane.recording import Record, record_versions, sum_of_series
from tests.controlplane.stage import EVENT_SECONDS, Stage, condition_of

TABLE = Path(__file__).with_name("bad_inputs.yaml")
POD_GROUP = "pod-group"
"""Pod groups have further ways to be invalid."""

SUBJECTS = (*(one.framework for one in KINDS), POD_GROUP)
SLOWLY_CHECKED = ("jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob")
"""Kinds whose LocalQueue must stop reporting refused jobs, which takes two seconds. Jobs of the first kind
are corrected, those of the second are deleted."""
OUTCOMES_WITH_TEXT = ("refused", "unfit", "incomplete", "waits")
HOLD = "example.com/hold"
REFUSED = "JobsRefused"
RESTORED = "No matching Workload; restoring pod templates according to existent Workload"

_VARIABLE = re.compile(r"\$\{(\w+)\}")


# --- the table --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """A kind, and the fields that the table calls places."""

    name: str
    case: KindCase
    places: Mapping[str, str]

    def with_places(self, value: Any) -> Any:
        """A value of the table, with the fields of this kind for its places.

        Raises:
            KeyError: the kind has no such place.
        """
        if isinstance(value, Mapping):
            return {self.with_places(key): self.with_places(one) for key, one in value.items()}
        return _VARIABLE.sub(lambda found: self.places[found[1]], value) if isinstance(value, str) else value

    def has_places(self, changes: Mapping[str, Any]) -> bool:
        """Whether the kind has all places that are changed."""
        return all(name in self.places for text in changes for name in _VARIABLE.findall(text))


@dataclass(frozen=True)
class Trial:
    """A bad input of a kind with its outcome: a text of a message, or the expected fields of the job."""

    name: str
    changes: Mapping[str, Any]
    outcome: str
    expected: Any = ""


@dataclass(frozen=True)
class Move:
    """A change of a job by another controller, and its outcome: refused, kept, or remade."""

    changes: Mapping[str, Any]
    becomes: Mapping[str, Any]
    outcome: str
    text: str = ""


def table(group: str) -> Any:
    return yaml.load(in_group(TABLE.read_text(), group), Loader=yaml.CSafeLoader)


def subject_of(name: str, group: str) -> Subject:
    kind = POD if name == POD_GROUP else next(one for one in KINDS if one.framework == name)
    case = load(kind, group)
    if name == POD_GROUP:
        total_count = f"metadata.annotations[{group}/pod-group-total-count]"
        manifest = with_changes(case.manifest, {total_count: "1"})
        # Podsets of a group have other names.
        case = dataclasses.replace(case, manifest=manifest, started={"spec.schedulingGates": None})
    given = dict(table(group)["places"].get(name, {}))
    pod_sets = case.podSets
    if "template" not in given and pod_sets and pod_sets[-1].template:
        given["template"] = pod_sets[-1].template
    if "template" in given and "container" not in given:
        given["container"] = f"{given['template']}.spec.containers[0]"
        given["pod"] = f"{given['template']}.spec"
    if "container" in given:
        given = {"resources": f"{given['container']}.resources", "env": f"{given['container']}.env", **given}
    return Subject(name, case, {"pod_set": str(given.pop("pod_set", len(pod_sets) - 1)), **given})


def trials_of(subject: Subject, group: str) -> Iterator[Trial]:
    """All inputs of the table for a kind."""
    for row in table(group)["inputs"]:
        if not subject.has_places(row["changes"]) or subject.name in row.get("without", {}):
            continue
        changes = subject.with_places(row["changes"])
        if subject.name == POD_GROUP:
            # Values of annotations are strings.
            changes = {path: str(one) if isinstance(one, int) else one for path, one in changes.items()}
        yield Trial(row["input"].replace(" ", "-"), changes, *_outcome(row, subject))


def moves_of(subject: Subject, group: str, when: str) -> Iterator[Move]:
    """The changes of another controller, in order, for a suspended or a running job."""
    for row in table(group)["operator"]:
        changes = row.get(when, {})
        if not changes or not subject.has_places(changes) or subject.name not in row.get("only", SUBJECTS):
            continue
        changes = subject.with_places(changes)
        words = next((one for one, kinds in row.get("refused", {}).items() if subject.name in kinds), "")
        if words:
            yield Move(changes, {}, "refused", words)
            continue
        kept = "kept" if subject.name in row.get("kept", ()) else "remade"
        yield Move(changes, row.get("becomes", changes), kept)


def _outcome(row: Mapping[str, Any], subject: Subject) -> tuple[str, Any]:
    for outcome in OUTCOMES_WITH_TEXT:
        for words, kinds in row.get(outcome, {}).items():
            if subject.name in kinds:
                return outcome, subject.with_places(words)
    if subject.name in row.get("nothing", ()):
        return "nothing", ""
    return "runs", row.get("runs", {}).get(subject.name, subject.case.started)


def test_table_has_one_result_for_each_kind_and_input() -> None:
    rows = table(DEFAULT_GROUP)
    known = {"input", "changes", "nothing", "runs", "without", *OUTCOMES_WITH_TEXT}
    assert set(rows["places"]) == set(SUBJECTS)
    assert [one in rows["fixed"] for one in SLOWLY_CHECKED] == [False, True]
    for row in rows["inputs"]:
        assert set(row) <= known
        listed = [
            kind
            for outcome in OUTCOMES_WITH_TEXT
            for kinds in row.get(outcome, {}).values()
            for kind in kinds
        ]
        listed += [*row.get("nothing", ()), *row.get("runs", {}), *row.get("without", {})]
        assert set(listed) <= set(SUBJECTS), row["input"]
        assert max(Counter(listed).values(), default=1) == 1, row["input"]
    for row in rows["operator"]:
        assert set(row) <= {"change", "only", "suspended", "running", "becomes", "refused", "kept"}
        listed = [
            *(kind for kinds in row.get("refused", {}).values() for kind in kinds),
            *row.get("kept", ()),
        ]
        assert set(listed) <= set(row.get("only", SUBJECTS)), row["change"]
        assert max(Counter(listed).values(), default=1) == 1, row["change"]


# --- trials -----------------------------------------------------------------------------------------


class Scene:
    """Invalid and valid jobs of one kind on a stage."""

    def __init__(self, stage: Stage, subject: Subject, installation: Installation, record: Record) -> None:
        self.stage, self.subject, self.case = stage, subject, subject.case
        self._record = record
        self._installation = installation
        logs = (installation.log("manager"), installation.log("webhook"))
        self._logs = {log: log.stat().st_size for log in logs}
        self.in_quarantine: set[str] = set()

    async def submit(
        self, name: str, changes: Mapping[str, Any], queue: str | None = None
    ) -> tuple[PlayedJob, dict[str, Any]]:
        """Create a job, or a pod in a group of the same name."""
        changed = dict(changes)
        named = changed.get("metadata.name")
        if self.subject.name == POD_GROUP:
            changed[f"metadata.annotations[{self.stage.names.pod_group_name}]"] = named or name
        return await submit(self.stage, self.case, None if named else name, changes=changed, queue=queue)

    async def problem(self, trial: Trial) -> str:
        """Try an input; return how the result differs from the table, or an empty text."""
        try:
            job, created = await self.submit(trial.name, trial.changes)
        except ApiError as error:
            is_expected = (
                trial.outcome == "refused" and trial.expected in error.message and has_its_class(error)
            )
            return "" if is_expected else f"{trial.name}: refused: {error}"
        if trial.outcome == "refused":
            return f"{trial.name}: it is not refused"
        try:
            await self._check_outcome(trial, job, created)
        except AssertionError as error:
            return f"{trial.name}: {error}"
        return ""

    async def _check_outcome(self, trial: Trial, job: PlayedJob, created: dict[str, Any]) -> None:
        match trial.outcome:
            case "runs":
                started = await job.until(trial.expected)
                assert lost(created, started) == [], "unchanged fields are kept"
            case "waits":
                reason, _, words = trial.expected.partition(": ")
                await self._until_waiting(job, reason, words)
            case "unfit" | "incomplete":
                await self._until_warned(job, trial.expected)
                assert await self.stage.workloads(job.name) == []
                if trial.outcome == "unfit":
                    self.in_quarantine.add(job.name)
            case _:
                await self.check_left_unmanaged(trial)

    async def check_left_unmanaged(self, trial: Trial) -> None:
        """Check that an object has no Workload and no event."""
        assert await self.stage.workloads(trial.name) == []
        assert await self.stage.events(self.case.integration.kind, trial.name) == []

    async def _until_waiting(self, job: PlayedJob, reason: str, words: str) -> None:
        async def is_waiting() -> bool:
            status, found, message = condition_of(await job.workload(), "QuotaReserved") or ("", "", "")
            assert (status, found) == ("False", reason), (status, found, message)
            assert words in message, message
            return True

        await eventually(is_waiting, what=f"{job.name} to wait for {reason}")

    async def _until_warned(self, job: PlayedJob, words: str) -> None:
        async def is_reported() -> bool:
            events = await self.stage.events(self.case.integration.kind, job.name)
            assert any(reason == "ErrWorkloadCompose" and words in note for reason, note in events), events
            return True

        await eventually(is_reported, timeout=EVENT_SECONDS, what=f"event about {job.name}: {words}")

    async def until_quarantined(self, count: int) -> None:
        """Wait until ``count`` keys of the kind are in quarantine."""
        controller = self.case.integration.framework

        async def quarantined_keys() -> float:
            return await sum_of_series(self._installation, "quarantined_keys", controller=controller)

        await self.stage.until(quarantined_keys, float(count), what=f"keys of {controller} in quarantine")

    async def until_queue_reports(self, count: int) -> None:
        """Wait until the LocalQueue reports ``count`` quarantined jobs, or has no such condition for 0."""
        queue, resource = self.case.queue(self.stage.names.group), self.stage.kinds.local_queues

        async def condition() -> str:
            status, reason, message = (
                condition_of(await self.stage.get(resource, queue), REFUSED) or ("",) * 3
            )
            return f"{status} {reason} {message.partition('.')[0]}".strip()

        jobs = "1 job is" if count == 1 else f"{count} jobs are"
        wanted = f"True Quarantined {jobs} left alone until changed" if count else ""
        await self.stage.until(condition, wanted, what=f"{queue} to report {count} jobs")

    async def until_queue_reports_nothing(self) -> str:
        """Wait until the LocalQueue reports no refused job; return the error, or an empty text."""
        try:
            await self.until_queue_reports(0)
        except AssertionError as error:
            return str(error)
        return ""

    async def delete_before_start(self, name: str, *, reserved: bool) -> str:
        """Delete a job with a finalizer before it starts; it must hold no quota and never start."""
        job, _ = await self.submit(name, {"metadata.finalizers": [HOLD]}, CHECKED)
        try:
            if reserved:
                await job.until_condition("Admitted", "False", "UnsatisfiedAdmissionChecks")
            await self.stage.client.delete(
                self.case.resource, job.name, self.stage.namespace, propagation="Background"
            )
            await self.stage.until(lambda: self._held(job), [], what=f"nothing to be held for {name}")
            terminating = await job.get()
        except AssertionError as error:
            return f"{name}: {error}"
        kept = await self.stage.client.merge_patch(
            self.case.resource, job.name, {"metadata": {"finalizers": None}}, self.stage.namespace
        )
        return "" if differences(terminating, self.case.suspended) == [] else f"{name} was started: {kept}"

    async def make_invalid_while_waiting(self, trial: Trial) -> str:
        """Make a waiting job invalid; its Workload must be deleted."""
        name = "made-invalid"
        job, _ = await self.submit(name, {}, HELD)
        try:
            await job.until_condition("QuotaReserved", "False", "Suspended")
            await job.change(trial.changes)
            self.in_quarantine.add(name)
            await self._until_warned(job, trial.expected)
            await self.stage.until(lambda: self.stage.workloads(name), [], what=f"no Workload of {name}")
            await self.stage.client.delete(self.case.resource, name, self.stage.namespace)
        except (ApiError, AssertionError) as error:
            return f"{name}: {error}"
        return ""

    async def _held(self, job: PlayedJob) -> list[str]:
        found = await self.stage.workloads(job.name)
        return [
            one["metadata"]["name"]
            for one in found
            if has_finalizers(one) or not condition_of(one, "Finished")
        ]

    @property
    def serves(self) -> bool:
        """Whether the pods of the kind are queued instead of its objects."""
        return "delete" in self.case.cannot and self.case.integration is not POD

    async def apply_moves(self, moves: Mapping[str, Sequence[Move]]) -> str:
        """Let another controller change a job that has quota, and again while it runs."""
        name = "operated"
        job, _ = await self.submit(name, {}, CHECKED)
        wanted = dict(self.case.started)
        try:
            await eventually(lambda: self._is_held(job), what=f"quota of {name}")
            for when, listed in moves.items():
                for move in listed:
                    await self._apply_move(job, move, when)
                    wanted |= move.becomes
                await self._until_passed(job, wanted)
            assert self.serves or len(self._workloads_of(name)) == 1 + remakes(moves)
        except (ApiError, AssertionError) as error:
            return f"{name}: {error}"
        return ""

    async def _apply_move(self, job: PlayedJob, move: Move, when: str) -> None:
        before = self._workloads_of(job.name)
        refused = await refusal_of(job, move.changes)
        assert bool(refused) == (move.outcome == "refused"), refused or f"{dict(move.changes)} is not refused"
        assert move.text in refused, refused
        if move.outcome == "remade":
            [name] = {one["metadata"]["name"] for one in self._record.versions_of(job.name)}
            deleted = f"Deleted not matching Workload: {self.stage.namespace}/{name}"
            event = ("Stopped", RESTORED) if when == "running" else ("DeletedWorkload", deleted)
            await self.stage.until_event(self.case.integration.kind, job.name, *event)
            await eventually(
                lambda: self._workloads_of(job.name) > before,
                what=f"another Workload for {dict(move.changes)}",
            )

    def _workloads_of(self, name: str) -> set[str]:
        """The UIDs of all Workloads that a job has had."""
        return {one["metadata"]["uid"] for one in self._record.versions_of(name)}

    async def _checked(self, job: PlayedJob) -> list[dict[str, Any]]:
        """The Workloads of a job with a check; for serving kinds all Workloads with a check."""
        if not self.serves:
            return await self.stage.workloads(job.name)
        listed, _ = await self.stage.client.list(self.stage.kinds.workloads, self.stage.namespace)
        return [one for one in listed if one["spec"]["queueName"] == CHECKED]

    async def _is_held(self, job: PlayedJob) -> bool:
        admitted = [condition_of(one, "Admitted") or ("", "", "") for one in await self._checked(job)]
        return [one[1] for one in admitted[:1]] == ["UnsatisfiedAdmissionChecks"]

    async def _until_passed(self, job: PlayedJob, wanted: Mapping[str, Any]) -> None:
        """Set all checks of a job's Workloads to Ready until the job has the wanted fields."""
        workloads = self.stage.kinds.workloads

        async def passed() -> bool:
            for workload in await self._checked(job):
                listed = value_at(workload, ("status", "admissionChecks"), [])
                if any(one["state"] == "Pending" for one in listed):
                    ready = {"status": {"admissionChecks": [{**one, "state": "Ready"} for one in listed]}}
                    await self.stage.change(workloads, workload["metadata"]["name"], ready, "status")
            found = await job.get()
            assert differences(found, wanted) == [], differences(found, wanted)
            return is_rolled_out(found)

        await eventually(passed, what=f"{job.name} to run")

    async def correct(self, trial: Trial, *, fixed: bool) -> str:
        """Correct an invalid job, which must then run; an immutable one is deleted instead."""
        job = PlayedJob(self.stage, self.case, trial.name)
        if fixed:
            await self.stage.client.delete(self.case.resource, job.name, self.stage.namespace)
            return ""
        back = {path: value_at(self.case.manifest, path_of(path)) for path in trial.changes}
        try:
            await job.change(back)
            await job.until_started()
        except (ApiError, AssertionError) as error:
            return f"{trial.name} is changed back: {error}"
        return ""

    def failures(self) -> list[str]:
        """Exceptions in the logs other than refused Workloads of quarantined jobs, and too many retries."""
        found: list[str] = []
        times: Counter[str] = Counter()
        for path, start in self._logs.items():
            with path.open("rb") as log:
                log.seek(start)
                lines = [line for line in log.read().splitlines() if self.stage.namespace.encode() in line]
            for line in map(json.loads, lines):
                if "exception" not in line:
                    continue
                last = line["exception"].splitlines()[-1]
                key = re.fullmatch(rf"{self.stage.namespace}/(\S+)", line.get("key", ""))
                if key and key[1] in self.in_quarantine and "ApiError: 4" in last:
                    times[key[1]] += 1
                else:
                    found.append(f"{path.name}: {line['event']}: {last}")
        # Each change of an object causes further attempts. Controllers of serving kinds change them, too.
        often = {name: count for name, count in times.items() if count > 4 * QUARANTINE_AFTER}
        return [*found, *(f"{name} was tried {count} times" for name, count in often.items())]


async def refusal_of(job: PlayedJob, changes: Mapping[str, Any]) -> str:
    """The message with which a change is refused; empty if it is accepted."""
    try:
        await job.change(changes)
    except ApiError as error:
        return error.message if has_its_class(error) else f"of another class: {error}"
    return ""


def has_its_class(error: ApiError) -> bool:
    """Whether a refusal has the class that belongs to its origin (semantics, Admission webhooks).

    The API server reports refusals of webhooks as Forbidden, violations of schemas and CEL rules as Invalid,
    and objects that it cannot parse as BadRequest.
    """
    if error.message.startswith("admission webhook"):
        return (error.status, error.reason) == (403, "Forbidden")
    return (error.status, error.reason) in {(422, "Invalid"), (400, "BadRequest")}


def is_rolled_out(obj: dict[str, Any]) -> bool:
    """Whether all replicas have the latest template, if the status of the object has that."""
    generation, replicas = obj["metadata"].get("generation"), value_at(obj, ("spec", "replicas"))
    status = value_at(obj, ("status",), {})
    return status.get("observedGeneration", generation) == generation and (
        "readyReplicas" not in status or status.get("updatedReplicas") == replicas
    )


def remakes(moves: Mapping[str, Sequence[Move]]) -> int:
    """The number of changes after which the job gets another Workload."""
    return sum(one.outcome == "remade" for listed in moves.values() for one in listed)


def lost(before: Any, after: Any, path: str = "") -> list[str]:
    """Fields of an object that a later version of it does not have."""
    if path in {"/status", "/metadata/managedFields", "/spec/schedulingGates"}:
        return []
    if isinstance(before, Mapping):
        if not isinstance(after, Mapping):
            return [path]
        return [one for key in before for one in lost(before[key], after.get(key), f"{path}/{key}")]
    if isinstance(before, list):
        if not isinstance(after, list) or len(after) < len(before):
            return [path]
        return [
            one for number, item in enumerate(before) for one in lost(item, after[number], f"{path}/{number}")
        ]
    return [path] if after is None and before is not None else []


async def stories_of_valid_jobs(scene: Scene, group: str) -> list[Awaitable[str]]:
    """Stories of valid jobs that are changed or deleted at a bad time; serving objects are never held."""
    await checked_queue(scene.stage, scene.case)
    moves = {when: [*moves_of(scene.subject, group, when)] for when in ("suspended", "running")}
    found: list[Awaitable[str]] = [scene.apply_moves(moves)]
    if scene.serves:
        return found
    found += [
        scene.delete_before_start("deleted-at-once", reserved=False),
        scene.delete_before_start("deleted-with-quota", reserved=True),
    ]
    unfit = [one for one in trials_of(scene.subject, group) if one.outcome == "unfit"]
    if unfit and scene.subject.name not in table(group)["fixed"]:
        await held_queue(scene.stage, scene.case)
        found.append(scene.make_invalid_while_waiting(unfit[0]))
    return found


@pytest.mark.parametrize("name", SUBJECTS)
async def test_invalid_objects_are_reported_and_do_not_delay_valid_ones(
    name: str,
    stage: Stage,
    definitions: Callable[[Iterable[str]], None],
    admitq_running: Installation,
) -> None:
    group = stage.names.group
    subject = subject_of(name, group)
    definitions(subject.case.definitions)
    await open_queues(stage, subject.case)
    for other in table(group)["objects"].get(name, ()):
        await create_other(stage, other)
    async with record_versions(stage) as record:
        await play(Scene(stage, subject, admitq_running, record), group)


async def play(scene: Scene, group: str) -> None:
    """Try all inputs concurrently, run a valid job, and then correct the quarantined jobs."""
    trials = [*trials_of(scene.subject, group)]
    valid_jobs = await stories_of_valid_jobs(scene, group)
    wrong = await asyncio.gather(*map(scene.problem, trials), *valid_jobs)
    healthy, _ = await scene.submit("healthy", {})
    await healthy.until_started()
    assert [one for one in wrong if one] == []
    for one in trials:
        if one.outcome == "nothing":
            await scene.check_left_unmanaged(one)

    unfit = [one for one in trials if one.outcome == "unfit"]
    await scene.until_quarantined(len(unfit))
    await scene.until_queue_reports(len(unfit))
    fixed = scene.subject.name in table(group)["fixed"]
    corrections = [scene.correct(one, fixed=fixed) for one in unfit]
    if scene.subject.name in SLOWLY_CHECKED:
        corrections.append(scene.until_queue_reports_nothing())
    wrong = await asyncio.gather(*corrections)
    assert [one for one in wrong if one] == []
    await scene.until_quarantined(0)
    assert scene.failures() == []
