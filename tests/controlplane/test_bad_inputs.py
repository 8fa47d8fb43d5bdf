"""What becomes of objects that say what makes no sense, or that others change at a bad moment.

``bad_inputs.yaml`` is the table: each input is tried on every kind, all at once, and a healthy job of the
kind runs beside them.
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
from tests.controlplane.kind_cases import (
    CHECKED,
    HELD,
    KINDS,
    KindCase,
    PlayedJob,
    checked_queue,
    create_other,
    differences,
    has_finalizers,
    held_queue,
    in_group,
    load,
    open_queues,
    path_of,
    submit,
    with_changes,
)
from tests.controlplane.recording import Record, recorded, total
from tests.controlplane.stage import Stage, condition_of

TABLE = Path(__file__).with_name("bad_inputs.yaml")
POD_GROUP = "pod-group"
"""Pods of a group are spoiled in ways of their own."""

SUBJECTS = (*(one.framework for one in KINDS), POD_GROUP)
UNTIL_SILENT = ("jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob")
"""Kinds with a work queue that must become empty, which takes two seconds: jobs of one kind are changed back,
those of the other deleted."""
WITH_WORDS = ("refused", "unfit", "incomplete", "waits")
HOLD = "example.com/hold"
REFUSED = "JobsRefused"
RESTORED = "No matching Workload; restoring pod templates according to existent Workload"

_VARIABLE = re.compile(r"\$\{(\w+)\}")


# --- the table --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """A kind, and where it says what is spoiled."""

    name: str
    case: KindCase
    places: Mapping[str, str]

    def filled(self, value: Any) -> Any:
        """A value of the table with the places of this kind.

        Raises:
            KeyError: the kind has no such place.
        """
        if isinstance(value, Mapping):
            return {self.filled(key): self.filled(one) for key, one in value.items()}
        return _VARIABLE.sub(lambda found: self.places[found[1]], value) if isinstance(value, str) else value

    def has_places(self, changes: Mapping[str, Any]) -> bool:
        """Whether the kind has all that is to be changed."""
        return all(name in self.places for text in changes for name in _VARIABLE.findall(text))


@dataclass(frozen=True)
class Trial:
    """A bad input of a kind and what becomes of it: the outcome, and the words or the fields that tell."""

    name: str
    changes: Mapping[str, Any]
    outcome: str
    told: Any = ""


@dataclass(frozen=True)
class Move:
    """A change that another controller makes of a job, and what it comes to: refused, kept, or remade."""

    changes: Mapping[str, Any]
    becomes: Mapping[str, Any]
    outcome: str
    told: str = ""


def table(group: str) -> Any:
    return yaml.safe_load(in_group(TABLE.read_text(), group))


def subject_of(name: str, group: str) -> Subject:
    kind = POD if name == POD_GROUP else next(one for one in KINDS if one.framework == name)
    case = load(kind, group)
    if name == POD_GROUP:
        total_count = f"metadata.annotations[{group}/pod-group-total-count]"
        manifest = with_changes(case.manifest, {total_count: "1"})
        # Its podsets have other names.
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
    """All that is tried of a kind."""
    for row in table(group)["inputs"]:
        if not subject.has_places(row["changes"]) or subject.name in row.get("without", {}):
            continue
        changes = subject.filled(row["changes"])
        if subject.name == POD_GROUP:
            # Annotations are texts.
            changes = {path: str(one) if isinstance(one, int) else one for path, one in changes.items()}
        yield Trial(row["input"].replace(" ", "-"), changes, *_outcome(row, subject))


def moves_of(subject: Subject, group: str, when: str) -> Iterator[Move]:
    """What another controller changes, one after the other, of a job that is suspended or runs."""
    for row in table(group)["operator"]:
        changes = row.get(when, {})
        if not changes or not subject.has_places(changes) or subject.name not in row.get("only", SUBJECTS):
            continue
        changes = subject.filled(changes)
        words = next((one for one, kinds in row.get("refused", {}).items() if subject.name in kinds), "")
        if words:
            yield Move(changes, {}, "refused", words)
            continue
        kept = "kept" if subject.name in row.get("kept", ()) else "remade"
        yield Move(changes, row.get("becomes", changes), kept)


def _outcome(row: Mapping[str, Any], subject: Subject) -> tuple[str, Any]:
    for outcome in WITH_WORDS:
        for words, kinds in row.get(outcome, {}).items():
            if subject.name in kinds:
                return outcome, subject.filled(words)
    if subject.name in row.get("nothing", ()):
        return "nothing", ""
    return "runs", row.get("runs", {}).get(subject.name, subject.case.started)


def test_table_has_one_result_for_each_kind_and_input() -> None:
    told = table(DEFAULT_GROUP)
    known = {"input", "changes", "nothing", "runs", "without", *WITH_WORDS}
    assert set(told["places"]) == set(SUBJECTS)
    assert [one in told["fixed"] for one in UNTIL_SILENT] == [False, True]
    for row in told["inputs"]:
        assert set(row) <= known
        listed = [kind for outcome in WITH_WORDS for kinds in row.get(outcome, {}).values() for kind in kinds]
        listed += [*row.get("nothing", ()), *row.get("runs", {}), *row.get("without", {})]
        assert set(listed) <= set(SUBJECTS), row["input"]
        assert max(Counter(listed).values(), default=1) == 1, row["input"]
    for row in told["operator"]:
        assert set(row) <= {"change", "only", "suspended", "running", "becomes", "refused", "kept"}
        listed = [
            *(kind for kinds in row.get("refused", {}).values() for kind in kinds),
            *row.get("kept", ()),
        ]
        assert set(listed) <= set(row.get("only", SUBJECTS)), row["change"]
        assert max(Counter(listed).values(), default=1) == 1, row["change"]


# --- what is tried ----------------------------------------------------------------------------------


class Scene:
    """Bad and healthy jobs of one kind on a stage."""

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
        """Create a job; in a group of its name, if it is a group's."""
        changed = dict(changes)
        named = changed.get("metadata.name")
        if self.subject.name == POD_GROUP:
            changed[f"metadata.annotations[{self.stage.names.pod_group_name}]"] = named or name
        return await submit(self.stage, self.case, None if named else name, changes=changed, queue=queue)

    async def problem(self, trial: Trial) -> str:
        """What was otherwise than the table tells; empty if nothing was."""
        try:
            job, created = await self.submit(trial.name, trial.changes)
        except ApiError as error:
            as_told = trial.outcome == "refused" and trial.told in error.message and has_its_class(error)
            return "" if as_told else f"{trial.name}: refused: {error}"
        if trial.outcome == "refused":
            return f"{trial.name}: it is not refused"
        try:
            await self._comes_to(trial, job, created)
        except AssertionError as error:
            return f"{trial.name}: {error}"
        return ""

    async def _comes_to(self, trial: Trial, job: PlayedJob, created: dict[str, Any]) -> None:
        match trial.outcome:
            case "runs":
                started = await job.until(trial.told)
                assert lost(created, started) == [], "unchanged fields are kept"
            case "waits":
                reason, _, words = trial.told.partition(": ")
                await self._until_waiting(job, reason, words)
            case "unfit" | "incomplete":
                await self._until_warned(job, trial.told)
                assert await self.stage.workloads(job.name) == []
                if trial.outcome == "unfit":
                    self.in_quarantine.add(job.name)
            case _:
                await self.left_alone(trial)

    async def left_alone(self, trial: Trial) -> None:
        """Look that nothing is made of an object, and nothing told of it."""
        assert await self.stage.workloads(trial.name) == []
        assert await self.stage.events(self.case.integration.kind, trial.name) == []

    async def _until_waiting(self, job: PlayedJob, reason: str, words: str) -> None:
        async def seen() -> bool:
            status, found, message = condition_of(await job.workload(), "QuotaReserved") or ("", "", "")
            assert (status, found) == ("False", reason), (status, found, message)
            assert words in message, message
            return True

        await eventually(seen, what=f"{job.name} to wait for {reason}")

    async def _until_warned(self, job: PlayedJob, words: str) -> None:
        async def told() -> bool:
            events = await self.stage.events(self.case.integration.kind, job.name)
            assert any(reason == "ErrWorkloadCompose" and words in note for reason, note in events), events
            return True

        await eventually(told, what=f"{job.name} to be told: {words}")

    async def until_quarantined(self, count: int) -> None:
        """Wait until so many keys of the kind are in quarantine."""
        controller = self.case.integration.framework

        async def look() -> float:
            return await total(self._installation, "quarantined_keys", controller=controller)

        await self.stage.until(look, float(count), what=f"keys of {controller} in quarantine")

    async def until_queue_tells(self, count: int) -> None:
        """Wait until the queue of the kind's jobs tells of so many that are left alone, if of any."""
        queue, resource = self.case.queue(self.stage.names.group), self.stage.kinds.local_queues

        async def look() -> str:
            status, reason, message = (
                condition_of(await self.stage.get(resource, queue), REFUSED) or ("",) * 3
            )
            return f"{status} {reason} {message.partition('.')[0]}".strip()

        jobs = "1 job is" if count == 1 else f"{count} jobs are"
        wanted = f"True Quarantined {jobs} left alone until changed" if count else ""
        await self.stage.until(look, wanted, what=f"{queue} to tell of {count} jobs")

    async def falls_silent(self) -> str:
        """What the queue of the kind's jobs still tells when all of them are mended."""
        try:
            await self.until_queue_tells(0)
        except AssertionError as error:
            return str(error)
        return ""

    async def let_go(self, name: str, *, reserved: bool) -> str:
        """What is held for a job that is deleted before it starts, and that something else keeps."""
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

    async def spoiled(self, trial: Trial) -> str:
        """What becomes otherwise of a job that is made unfit while it waits: nothing of it is admitted."""
        name = "spoiled"
        job, _ = await self.submit(name, {}, HELD)
        try:
            await job.until_condition("QuotaReserved", "False", "Suspended")
            await job.change(trial.changes)
            self.in_quarantine.add(name)
            await self._until_warned(job, trial.told)
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
        """Whether pods of the kind are queued, and not its objects."""
        return "delete" in self.case.cannot and self.case.integration is not POD

    async def operated(self, moves: Mapping[str, Sequence[Move]]) -> str:
        """What goes wrong where another controller writes into a job that has quota, and then runs."""
        name = "operated"
        job, _ = await self.submit(name, {}, CHECKED)
        wanted = dict(self.case.started)
        try:
            await eventually(lambda: self._is_held(job), what=f"quota of {name}")
            for when, listed in moves.items():
                for move in listed:
                    await self._moved(job, move, when)
                    wanted |= move.becomes
                await self._until_passed(job, wanted)
            assert self.serves or len(self._workloads_of(name)) == 1 + remakes(moves)
        except (ApiError, AssertionError) as error:
            return f"{name}: {error}"
        return ""

    async def _moved(self, job: PlayedJob, move: Move, when: str) -> None:
        before = self._workloads_of(job.name)
        refused = await refusal_of(job, move.changes)
        assert bool(refused) == (move.outcome == "refused"), refused or f"{dict(move.changes)} is not refused"
        assert move.told in refused, refused
        if move.outcome == "remade":
            [name] = {one["metadata"]["name"] for one in self._record.of(job.name)}
            gone = f"Deleted not matching Workload: {self.stage.namespace}/{name}"
            told = ("Stopped", RESTORED) if when == "running" else ("DeletedWorkload", gone)
            await self.stage.until_told(self.case.integration.kind, job.name, *told)
            await eventually(
                lambda: self._workloads_of(job.name) > before,
                what=f"another Workload for {dict(move.changes)}",
            )

    def _workloads_of(self, name: str) -> set[str]:
        """The identities of all Workloads that there were of a job."""
        return {one["metadata"]["uid"] for one in self._record.of(name)}

    async def _checked(self, job: PlayedJob) -> list[dict[str, Any]]:
        """The Workloads of a job that go through a check: all that do, where pods are queued for it."""
        if not self.serves:
            return await self.stage.workloads(job.name)
        listed, _ = await self.stage.client.list(self.stage.kinds.workloads, self.stage.namespace)
        return [one for one in listed if one["spec"]["queueName"] == CHECKED]

    async def _is_held(self, job: PlayedJob) -> bool:
        told = [condition_of(one, "Admitted") or ("", "", "") for one in await self._checked(job)]
        return [one[1] for one in told[:1]] == ["UnsatisfiedAdmissionChecks"]

    async def _until_passed(self, job: PlayedJob, wanted: Mapping[str, Any]) -> None:
        """Let the checks of a job's Workloads pass, whichever they are, until the job is as wanted."""
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

    async def mended(self, trial: Trial, *, fixed: bool) -> str:
        """What keeps a job from running that is changed back; one that cannot be changed is deleted."""
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
        """What failed for no reason, by the logs: nothing but Workloads that were refused may."""
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
        # A change has it tried anew, and what serves is changed by its own controller, too.
        often = {name: count for name, count in times.items() if count > 4 * QUARANTINE_AFTER}
        return [*found, *(f"{name} was tried {count} times" for name, count in often.items())]


async def refusal_of(job: PlayedJob, changes: Mapping[str, Any]) -> str:
    """The words in which a change is refused; empty if it is not."""
    try:
        await job.change(changes)
    except ApiError as error:
        return error.message if has_its_class(error) else f"of another class: {error}"
    return ""


def has_its_class(error: ApiError) -> bool:
    """Whether a refusal is of the class that its origin has (semantics, Admission webhooks).

    Webhooks, others' too, are told by the API server to have forbidden; types and rules of its own to have
    found an object invalid, or what cannot be read of one to be a bad request.
    """
    if error.message.startswith("admission webhook"):
        return (error.status, error.reason) == (403, "Forbidden")
    return (error.status, error.reason) in {(422, "Invalid"), (400, "BadRequest")}


def is_rolled_out(obj: dict[str, Any]) -> bool:
    """Whether all replicas are of the latest template, where an object tells that."""
    generation, replicas = obj["metadata"].get("generation"), value_at(obj, ("spec", "replicas"))
    status = value_at(obj, ("status",), {})
    return status.get("observedGeneration", generation) == generation and (
        "readyReplicas" not in status or status.get("updatedReplicas") == replicas
    )


def remakes(moves: Mapping[str, Sequence[Move]]) -> int:
    """How many changes make another Workload."""
    return sum(one.outcome == "remade" for listed in moves.values() for one in listed)


def lost(before: Any, after: Any, path: str = "") -> list[str]:
    """Fields of an object that another version of it has not any more."""
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


async def lives(scene: Scene, group: str) -> list[Awaitable[str]]:
    """What happens to good jobs of a kind at a bad moment; objects that serve are never held themselves."""
    await checked_queue(scene.stage, scene.case)
    moves = {when: [*moves_of(scene.subject, group, when)] for when in ("suspended", "running")}
    found: list[Awaitable[str]] = [scene.operated(moves)]
    if scene.serves:
        return found
    found += [
        scene.let_go("deleted-at-once", reserved=False),
        scene.let_go("deleted-with-quota", reserved=True),
    ]
    unfit = [one for one in trials_of(scene.subject, group) if one.outcome == "unfit"]
    if unfit and scene.subject.name not in table(group)["fixed"]:
        await held_queue(scene.stage, scene.case)
        found.append(scene.spoiled(unfit[0]))
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
    async with recorded(stage) as record:
        await play(Scene(stage, subject, admitq_running, record), group)


async def play(scene: Scene, group: str) -> None:
    """Try all inputs at once; then run a healthy job, and mend what is in quarantine."""
    trials = [*trials_of(scene.subject, group)]
    lived = await lives(scene, group)
    wrong = await asyncio.gather(*map(scene.problem, trials), *lived)
    healthy, _ = await scene.submit("healthy", {})
    await healthy.until_started()
    assert [one for one in wrong if one] == []
    for one in trials:
        if one.outcome == "nothing":
            await scene.left_alone(one)

    unfit = [one for one in trials if one.outcome == "unfit"]
    await scene.until_quarantined(len(unfit))
    await scene.until_queue_tells(len(unfit))
    fixed = scene.subject.name in table(group)["fixed"]
    mended = [scene.mended(one, fixed=fixed) for one in unfit]
    if scene.subject.name in UNTIL_SILENT:
        mended.append(scene.falls_silent())
    wrong = await asyncio.gather(*mended)
    assert [one for one in wrong if one] == []
    await scene.until_quarantined(0)
    assert scene.failures() == []
