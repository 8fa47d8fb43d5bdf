"""The table of attempts on fields, as data: scene, object, field, way of writing, subresource and end."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from admitq_api.labels import DEFAULT_GROUP
from tests.adversary.calls import (
    NO_RIGHT,
    OF_CUSTOM_KINDS,
    REMOVALS,
    REPLACEMENTS,
    Allowed,
    Attempt,
    End,
    NoEffect,
    Path,
    Refused,
    Undone,
    Way,
)
from tests.adversary.scenes import OF_OTHER_PROJECTS
from tests.controlplane.kind_cases import load, path_of


def label(name: str) -> Path:
    """The path of a label of admitq."""
    return ("metadata", "labels", f"{{names.{name}}}")


def annotation(name: str) -> Path:
    """The path of an annotation of admitq."""
    return ("metadata", "annotations", f"{{names.{name}}}")


MARK: Final = Refused(403, ("Forbidden: this field protects quota",))
"""The refusal of a change of a protected mark; it names the field as well."""


def rows(
    scene: str,
    target: str,
    fields: Iterable[Path],
    ways: Iterable[Way],
    end: End,
    *,
    value: Any = "forged",
    subresources: Iterable[str] = ("",),
) -> Iterator[Attempt]:
    """Every field in every way through every subresource, with the same end."""
    all_fields, all_ways = list(fields), list(ways)
    for subresource in subresources:
        for field in all_fields:
            for way in all_ways:
                written = "" if way in REMOVALS else value
                yield Attempt(scene, target, field, way, end, written, subresource)


def _marks() -> Iterator[Attempt]:
    """Marks of pods cannot be changed or removed, and none can be added to managed pods."""
    charged = [label("managed"), label("podset"), annotation("workload"), annotation("role_hash")]
    further = [
        annotation("pod_suspending_parent"),
        annotation("workload_slice_name"),
        label("pod_group_name"),
        annotation("pod_group_total_count"),
        annotation("pod_group_serving"),
        annotation("pod_group_fast_admission"),
    ]
    yield from rows("running-pod", "pod", charged, Way, MARK)
    yield from rows("running-pod", "pod", further, REPLACEMENTS, MARK)
    yield from rows("waiting-pod", "pod", [label("managed"), annotation("role_hash")], Way, MARK)
    yield from rows(
        "waiting-pod", "pod", [("spec", "schedulingGates", 0)], [Way.JSON_REMOVE, Way.PUT_WITHOUT], MARK
    )
    topology = Refused(403, ("/topology]: Forbidden: this field protects quota",))
    yield from rows(
        "waiting-pod", "pod", [("spec", "schedulingGates", 1)], [Way.JSON_REMOVE, Way.PUT_WITHOUT], topology
    )
    gates = [("spec", "schedulingGates")]
    yield from rows("waiting-pod", "pod", gates, [Way.JSON_REMOVE, Way.MERGE_NULL, Way.PUT_WITHOUT], MARK)
    yield from rows("waiting-pod", "pod", gates, [Way.MERGE, Way.JSON_REPLACE, Way.PUT], MARK, value=[])
    grouped = [label("pod_group_name"), annotation("pod_group_total_count"), annotation("role_hash")]
    yield from rows("running-group", "pod", grouped, Way, MARK)
    yield from rows(
        "running-deployment", "pod", [label("managed"), annotation("pod_suspending_parent")], Way, MARK
    )


IMMUTABLE: Final = Refused(403, ("field is immutable",))
"""The refusal of a change of the requests of serving pods."""
IN_MANY_WAYS: Final = (Way.JSON_REMOVE, Way.JSON_REPLACE, Way.MERGE, Way.STRATEGIC_NULL, Way.PUT)
ON_SERVING_PODS: Final = (
    label("managed"),
    annotation("pod_suspending_parent"),
    annotation("role_hash"),
    annotation("pod_group_name"),
    annotation("pod_group_total_count"),
)
"""Marks of the pods of a StatefulSet or LeaderWorkerSet."""


def _stateful_sets() -> Iterator[Attempt]:
    """Pods of a StatefulSet keep their marks, and its number of pods and their requests do not change."""
    scene = "running-statefulset"
    yield from rows(scene, "pod", ON_SERVING_PODS, IN_MANY_WAYS, MARK)
    yield from rows(scene, "statefulset", [label("queue_name")], REPLACEMENTS, Refused(403, ("queue-name",)))
    replicas = [("spec", "replicas")]
    yield from rows(scene, "statefulset", replicas, REPLACEMENTS, IMMUTABLE, value=2)
    yield from rows(
        scene, "statefulset", replicas, [Way.MERGE, Way.STRATEGIC], IMMUTABLE, value=3, subresources=["scale"]
    )
    yield from _templates_that_serve(scene, "statefulset", ("spec", "template"))


def _leader_worker_sets() -> Iterator[Attempt]:
    """The same of the groups of a LeaderWorkerSet; their size does not change either."""
    scene = "running-leaderworkerset"
    yield from rows(scene, "pod", ON_SERVING_PODS, [Way.JSON_REMOVE, Way.MERGE, Way.PUT], MARK)
    removals = [way for way in REMOVALS if way in OF_CUSTOM_KINDS]
    replacements = [way for way in REPLACEMENTS if way in OF_CUSTOM_KINDS]
    queue = Refused(403, ("queue-name",))
    yield from rows(scene, "leaderworkerset", [label("queue_name")], removals, queue)
    group = ("spec", "leaderWorkerTemplate")
    ways = [way for way in replacements if way != Way.APPLY]
    yield from rows(scene, "leaderworkerset", [(*group, "size")], ways, IMMUTABLE, value=9)
    for template in ("leaderTemplate", "workerTemplate"):
        yield from _templates_that_serve(scene, "leaderworkerset", (*group, template))


def _templates_that_serve(scene: str, target: str, template: Path) -> Iterator[Attempt]:
    """Requests of a template do not change, and its marks are written again."""
    requests = [(*template, "spec", "containers", 0, "resources", "requests", "cpu")]
    yield from rows(scene, target, requests, [Way.JSON_REPLACE, Way.PUT], IMMUTABLE, value="9")
    marks = [(*template, "metadata", "annotations", "{names.pod_suspending_parent}")]
    yield from rows(scene, target, marks, [Way.JSON_REMOVE, Way.MERGE_NULL, Way.PUT_WITHOUT], NoEffect())


def _marks_of_job_pods() -> Iterator[Attempt]:
    """Pods of admitted jobs keep their marks, and the labels and references of their job's controller."""
    kept = [
        label("podset"),
        annotation("workload"),
        ("metadata", "labels", "batch.kubernetes.io/controller-uid"),
    ]
    yield from rows("running-job", "pod", kept, Way, MARK)
    removals = [Way.JSON_REMOVE, Way.MERGE_NULL, Way.PUT_WITHOUT]
    yield from rows("running-job", "pod", [("metadata", "ownerReferences")], removals, MARK)
    chain = [label("podset"), annotation("workload_slice_name")]
    yield from rows("elastic-job", "waiting", chain, Way, MARK)
    gates = [("spec", "schedulingGates")]
    yield from rows("elastic-job", "waiting", gates, removals, MARK)
    emptied = [Way.MERGE, Way.JSON_REPLACE, Way.PUT]
    yield from rows("elastic-job", "waiting", gates, emptied, MARK, value=[])


def _stopping() -> Iterator[Attempt]:
    """The mark of a stop stays until the stop has ended; admitq removes the mark of a tenant."""
    mark = [annotation("stopping")]
    yield from rows("stopping-job", "job", mark, Way, MARK)
    yield from rows("waiting-job", "job", mark, REPLACEMENTS, Undone(), value="true")


def _subresources() -> Iterator[Attempt]:
    """Subresources that a tenant cannot write."""
    fields = [label("managed"), annotation("role_hash")]
    yield from rows(
        "running-pod",
        "pod",
        fields,
        [Way.JSON_REMOVE, Way.MERGE_NULL, Way.PUT],
        NO_RIGHT,
        subresources=["status"],
    )
    phase = [("status", "phase")]
    yield from rows(
        "running-pod", "pod", phase, REPLACEMENTS, NO_RIGHT, value="Succeeded", subresources=["status"]
    )
    for subresource in ("resize", "ephemeralcontainers"):
        yield from rows(
            "running-pod", "pod", fields, [Way.MERGE, Way.STRATEGIC], NO_RIGHT, subresources=[subresource]
        )
    job = [("status", "active"), label("queue_name")]
    yield from rows("running-job", "job", job, REPLACEMENTS, NO_RIGHT, value=0, subresources=["status"])


def _jobs() -> Iterator[Attempt]:
    """A running job stays in its queue, and a waiting one stays suspended."""
    immutable = Refused(403, ("queue-name",))
    yield from rows("running-job", "job", [label("queue_name")], Way, immutable)
    yield from rows("running-deployment", "deployment", [label("queue_name")], REPLACEMENTS, immutable)
    yield from rows("waiting-job", "job", [("spec", "suspend")], REPLACEMENTS, Undone(), value=False)
    own = [("metadata", "labels", "example.com/own")]
    yield from rows("running-job", "job", own, REPLACEMENTS, Allowed())
    yield from rows("running-pod", "pod", own, REPLACEMENTS, Allowed())
    for way in (Way.MERGE, Way.PUT):
        yield Attempt("running-job", "job", ("status", "active"), way, NoEffect(), 7)
        yield Attempt("running-pod", "pod", ("status", "phase"), way, NoEffect(), "Failed")


def _own_kinds() -> Iterator[Attempt]:
    """Tenants can read Workloads and queues but not write them."""
    ways = [way for way in REPLACEMENTS if way in OF_CUSTOM_KINDS]
    of_workload = [
        ("spec", "queueName"),
        ("spec", "active"),
        ("metadata", "ownerReferences"),
        ("metadata", "finalizers"),
    ]
    yield from rows("running-job", "workload", of_workload, ways, NO_RIGHT, value=[])
    status = [("status", "admission"), ("status", "conditions"), ("status", "reclaimablePods")]
    yield from rows("running-job", "workload", status, ways, NO_RIGHT, value=[], subresources=["status"])
    yield from rows("waiting-job", "workload", status, ways, NO_RIGHT, value=[], subresources=["status"])
    for target, field in (
        ("localqueue", ("spec", "clusterQueue")),
        ("clusterqueue", ("spec", "namespaceSelector")),
        ("resourceflavor", ("spec", "nodeLabels")),
    ):
        yield from rows("running-job", target, [field], ways, NO_RIGHT, value={})
    yield from rows(
        "running-job",
        "localqueue",
        [("status", "conditions")],
        ways,
        NO_RIGHT,
        value=[],
        subresources=["status"],
    )
    yield from rows(
        "running-job",
        "clusterqueue",
        [("status", "conditions")],
        ways,
        NO_RIGHT,
        value=[],
        subresources=["status"],
    )
    yield from rows(
        "foreign-job", "job", [label("queue_name"), ("spec", "suspend")], REPLACEMENTS, NO_RIGHT, value=False
    )


def _kinds() -> Iterator[Attempt]:
    """Jobs of other projects' kinds are held, and stay in their queue; tenants do not write their status."""
    replacements = [way for way in REPLACEMENTS if way in OF_CUSTOM_KINDS]
    removals = [way for way in REMOVALS if way in OF_CUSTOM_KINDS]
    immutable = Refused(403, ("queue-name",))
    for kind in OF_OTHER_PROJECTS:
        name, case = kind.kind.lower(), load(kind, DEFAULT_GROUP)
        for text in case.suspended:
            yield from rows(f"waiting-{name}", "job", [path_of(text)], replacements, Undone(), value=False)
        status = [("status", "conditions")]
        yield from rows(
            f"waiting-{name}",
            "job",
            status,
            (Way.MERGE, Way.PUT),
            NO_RIGHT,
            value=[],
            subresources=["status"],
        )
        yield from rows(
            f"running-{name}", "job", [label("queue_name")], (*replacements, *removals), immutable
        )
        changes = (Way.JSON_REPLACE, Way.JSON_REMOVE, Way.PUT)
        for pod_set in case.podSets[:1]:
            if (labels := pod_set.place("labels")) is not None:
                yield from rows(f"running-{name}", "job", [(*labels, "{names.podset}")], changes, MARK)
            if pod_set.template and pod_set.places:
                wrapped = (*path_of(pod_set.template), "metadata", "labels", "{names.podset}")
                yield from rows(f"running-{name}", "job", [wrapped], (Way.JSON_REPLACE, Way.PUT), MARK)


CHAPTERS: Final = {
    "marks": (*_marks(), *_stateful_sets()),
    "marks of jobs": (*_marks_of_job_pods(), *_stopping()),
    "others": (*_subresources(), *_jobs(), *_own_kinds()),
    "kinds": (*_kinds(), *_leader_worker_sets()),
}
"""The rows by chapter; each chapter runs in one arena."""

TABLE: Final = tuple(row for chapter in CHAPTERS.values() for row in chapter)
