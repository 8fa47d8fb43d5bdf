"""The case files of kinds with a real operator, and jobs that it runs.

``cases/README.md`` describes the files.
"""

import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from admitq.runtime.resources import PODS
from admitq_api.json_objects import value_at
from admitq_api.labels import DEFAULT_GROUP
from localcluster import operator_builds, operator_table
from localcluster.waiting import eventually
from tests.controlplane.kind_cases import KINDS, KindCase, PodSetCase, in_group, load, with_changes
from tests.controlplane.played_jobs import PlayedJob
from tests.controlplane.stage import Stage, condition_of

FOLDER = Path(__file__).parent / "cases"
QUEUE = "lq"


@dataclass(frozen=True, kw_only=True)
class End:
    """Which pods end, so that the job ends."""

    given: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """Fields of the job."""
    pods: str = ""
    """A label selector of these pods; by default all."""
    message: str = ""
    """The message of the ended Workload, if it differs from that of the case without operators.
    ``{namespace}`` in it is that of the job."""
    annotated: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """``pods``, a label selector, and their ``annotations``, which decide what programs in them answer."""
    exitCode: int = 1  # noqa: N815 as in the YAML
    """The exit code of the containers of failed pods."""
    within: float = 60.0
    """Seconds until the job has ended or restarted."""


@dataclass(frozen=True, kw_only=True)
class Restart(End):
    """Which pods fail, so that the operator restarts the job."""

    until: Mapping[str, Any]
    """Fields of the restarted job."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """A change of the size of a job."""

    given: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """Fields of the job before."""
    change: Mapping[str, Any]
    podSets: Mapping[str, int]  # noqa: N815 as in the YAML
    """The counts of the Workload's podsets after it."""
    pods: int
    """The number of pods after it."""


@dataclass(frozen=True, kw_only=True)
class Partial:
    """A job that is admitted with fewer pods."""

    given: Mapping[str, Any]
    quota: Mapping[str, Any]
    counts: Mapping[str, int]
    pods: int


@dataclass(frozen=True, kw_only=True)
class OperatorCase:
    """The cases of one kind with its operator."""

    name: str
    kind: KindCase
    """The kind, with a manifest of the operator's samples."""
    operators: tuple[str, ...]
    pods: int
    """The number of pods of a running job."""
    quota: Mapping[str, Any]
    """The amounts that one job requests."""
    succeeded: End = dataclasses.field(default_factory=End)
    failed: End = dataclasses.field(default_factory=End)
    restart: Restart | None = None
    scale: Size | None = None
    partial: Partial | None = None
    placed: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """Fields of a job with pods that have ranks."""
    notReady: Mapping[str, Any] = dataclasses.field(  # noqa: N815 as in the YAML
        default_factory=dict[str, Any]
    )
    """Fields of a job with pods that do not become ready; by default an annotation of each template."""
    cannot: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Stories that are not possible for the kind, each with the reason."""

    def __str__(self) -> str:
        return self.name


_PARTS: Mapping[str, Any] = {
    "succeeded": End,
    "failed": End,
    "restart": Restart,
    "scale": Size,
    "partial": Partial,
}


def names() -> list[str]:
    """The names of the cases."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def operators_of(name: str) -> tuple[str, ...]:
    """The operators that a case needs."""
    return tuple(_given(name, DEFAULT_GROUP)["operators"])


def excluded_stories(name: str) -> Mapping[str, str]:
    """The stories that are not possible for a case, each with the reason."""
    return _given(name, DEFAULT_GROUP).get("cannot", {})


def has_story(name: str, story: str) -> bool:
    """Whether a story applies to a case."""
    given = _given(name, DEFAULT_GROUP)
    optional = {"restart", "scale", "partial"}
    return story not in excluded_stories(name) and (story not in optional or story in given)


def load_case(name: str, group: str) -> OperatorCase:
    """The cases of a kind, with labels of an API group. Its operators must be built."""
    given = dict(_given(name, group))
    framework = given.pop("framework")
    (integration,) = (one for one in KINDS if one.framework == framework)
    kind = load(integration, group)
    manifest = given.pop("manifest", None)
    if isinstance(manifest, Mapping):
        kind = dataclasses.replace(kind, manifest=load_sample(manifest, kind))
    changes = {
        f"metadata.labels[{group}/queue-name]": QUEUE,
        **given.pop("changes", {}),
    }
    kind = dataclasses.replace(kind, manifest=with_changes(kind.manifest, changes))
    if "podSets" in given:
        kind = dataclasses.replace(kind, podSets=tuple(PodSetCase(**one) for one in given.pop("podSets")))
    if "objects" in given:
        kind = dataclasses.replace(kind, objects=tuple(given.pop("objects")))
    for key, cls in _PARTS.items():
        if key in given:
            given[key] = cls(**given[key])
    given["operators"] = tuple(given["operators"])
    return OperatorCase(name=name, kind=kind, **given)


@cache
def _given(name: str, group: str) -> dict[str, Any]:
    return yaml.load(in_group((FOLDER / f"{name}.yaml").read_text(), group), Loader=yaml.CSafeLoader)


def load_sample(given: Mapping[str, str], kind: KindCase) -> dict[str, Any]:
    """The first object of the kind in a sample of an operator."""
    operator = operator_table.named(given["operator"])
    (build,) = operator_builds.build([operator], lambda _: None).values()
    text = (build.samples / given["file"]).read_text()
    for document in yaml.load_all(text, Loader=yaml.CSafeLoader):
        if document and document["kind"] == kind.integration.kind:
            return document
    raise LookupError(f"{given['file']} has no {kind.integration.kind}")


def with_sample(case: OperatorCase, operator: str, file: str, group: str) -> OperatorCase:
    """Return a case with another sample of an operator, in the queue of the stories."""
    sample = load_sample({"operator": operator, "file": file}, case.kind)
    return with_manifest(case, case.kind, sample, group)


def with_manifest(case: OperatorCase, kind: KindCase, manifest: dict[str, Any], group: str) -> OperatorCase:
    """Return a case of a kind with another manifest, in the queue of the stories."""
    queued = with_changes(manifest, {f"metadata.labels[{group}/queue-name]": QUEUE})
    return dataclasses.replace(case, kind=dataclasses.replace(kind, manifest=queued))


def uids_of(objects: Iterable[Mapping[str, Any]]) -> set[str]:
    """The UIDs of objects."""
    return {one["metadata"]["uid"] for one in objects}


@dataclass(frozen=True)
class OperatedJob(PlayedJob):
    """A job that a real operator runs."""

    async def pods(self, selector: str = "") -> list[dict[str, Any]]:
        """The pods of the namespace, which has one job, without those that are being deleted."""
        found, _ = await self.stage.client.list(PODS, self.stage.namespace, label_selector=selector or None)
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    async def names_of_running_pods(self, selector: str = "") -> list[str]:
        """The names of the pods that have a node and have not ended, also while they are being deleted."""
        found, _ = await self.stage.client.list(PODS, self.stage.namespace, label_selector=selector or None)
        return [
            pod["metadata"]["name"]
            for pod in found
            if pod["spec"].get("nodeName") and pod["status"].get("phase") not in {"Succeeded", "Failed"}
        ]

    async def until_pods_run(self, count: int) -> list[dict[str, Any]]:
        """Wait until exactly this number of pods runs, and return them."""

        async def running() -> list[dict[str, Any]]:
            pods = await self.pods()
            active = [one for one in pods if one["status"].get("phase") in {"Pending", "Running"}]
            assert [one["status"]["phase"] for one in active] == ["Running"] * count
            return active

        return await eventually(running, what=f"{count} running pods of {self.name}")

    async def until_no_pods(self, selector: str = "") -> None:
        """Wait until no pod exists that the label selector selects."""

        async def names_of_pods() -> list[str]:
            return [one["metadata"]["name"] for one in await self.pods(selector)]

        await self.stage.until(names_of_pods, [], what=f"no pods of {self.name}")

    async def until_reclaimable(self, **wanted: int) -> None:
        """Wait until the Workload reports exactly these reclaimable pods, by podset."""

        async def reclaimable() -> dict[str, int]:
            listed = value_at(await self.workload(), ("status", "reclaimablePods"), [])
            return {one["name"]: one["count"] for one in listed}

        await self.stage.until(reclaimable, wanted)

    async def end_pods(self, phase: str, end: End) -> None:
        """Let running pods end, as their kubelets would report it."""
        if end.annotated:
            for pod in await self.pods(end.annotated["pods"]):
                annotations = {"metadata": {"annotations": end.annotated["annotations"]}}
                await self.stage.change(PODS, pod["metadata"]["name"], annotations)
        for pod in await self.pods(end.pods):
            if pod["status"].get("phase") == "Running":
                await self.stage.change(PODS, pod["metadata"]["name"], ended(pod, phase, end), "status")

    async def unfinished(self) -> list[dict[str, Any]]:
        """The Workloads that have not finished. A scaled job has finished ones, too."""
        return [one for one in await self.stage.workloads(self.name) if not condition_of(one, "Finished")]

    async def counts(self) -> dict[str, int]:
        """The counts of the admission, by podset."""
        (workload,) = await self.unfinished()
        listed = value_at(workload, ("status", "admission", "podSetAssignments"), [])
        return {one["name"]: one["count"] for one in listed}


async def until_pod_states(
    stage: Stage,
    read: Callable[[], Awaitable[list[dict[str, Any]]]],
    wanted: Mapping[str, int],
    *,
    gate: str,
    what: str,
) -> list[dict[str, Any]]:
    """Wait until exactly these numbers of pods are in each state, and return them.

    The state of a pod with the scheduling gate is ``held``. That of other pods is their phase.
    """
    pods: list[dict[str, Any]] = []

    def state_of(pod: Mapping[str, Any]) -> str:
        gates = value_at(pod, ("spec", "schedulingGates"), [])
        return "held" if any(one["name"] == gate for one in gates) else pod["status"]["phase"]

    async def states() -> dict[str, int]:
        pods[:] = await read()
        return dict(Counter(map(state_of, pods)))

    await stage.until(states, dict(wanted), what=what)
    return pods


def ended(pod: dict[str, Any], phase: str, end: End) -> dict[str, Any]:
    """Return the patch of a pod's status with which its kubelet would report its end."""
    code = 0 if phase == "Succeeded" else end.exitCode
    states = [
        {
            **status,
            "ready": False,
            "started": False,
            "state": {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}},
        }
        for status in pod["status"].get("containerStatuses", [])
    ]
    return {"status": {"phase": phase, "containerStatuses": states}}


async def submit(
    stage: Stage,
    case: OperatorCase,
    name: str = "j",
    *,
    changes: Mapping[str, Any] | None = None,
    **labels: str,
) -> OperatedJob:
    """Create a job from the operator's sample, as its user would."""
    obj = with_changes(case.kind.manifest, changes or {})
    metadata: dict[str, Any] = {**obj["metadata"], "name": name, "namespace": stage.namespace}
    metadata["labels"] = {**metadata["labels"], **labels}
    await stage.client.create(case.kind.resource, {**obj, "metadata": metadata})
    return OperatedJob(stage, case.kind, name)
