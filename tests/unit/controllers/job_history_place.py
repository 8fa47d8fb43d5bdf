"""A namespace in which the controllers of jobs and Workloads decide in turn."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from admitq.controllers.job import members
from admitq.controllers.job.case import Ancestor, JobCase, Lookups
from admitq.controllers.job.steps import decide_job
from admitq.controllers.plan import Action, ActionPlan, Create, Delete, Patch, RemoveFinalizer, has_finalizer
from admitq.controllers.settings import ControllerSettings
from admitq.controllers.workload.case import WorkloadInputs
from admitq.controllers.workload.steps import decide_workload
from admitq.integrations.base import CompositionOptions, Integration
from admitq.integrations.ownership import get_controller, is_group_workload
from admitq_api.json_objects import value_at, with_value
from tests.unit.controllers.builders import (
    KINDS,
    NAMES,
    apply_patch,
    cluster_queue,
    instant,
    local_queue,
    timestamp,
)
from tests.unit.integrations.examples import RUNTIME

MAX_ROUNDS = 30
"""The number of rounds after which no controller may write."""

FLAVOR: dict[str, Any] = {
    "metadata": {"name": "f"},
    "spec": {"nodeLabels": {"pool": "spot"}, "tolerations": [{"key": "spot", "operator": "Exists"}]},
}


def _describe_patch(patch: dict[str, Any]) -> Any:
    """Return a patch with its conditions in short form, and without its version."""
    status = dict(patch.get("status") or {})
    if listed := status.get("conditions"):
        status["conditions"] = " ".join(
            f"{item['type']}={item['status']}:{item.get('reason')}" for item in listed
        )
    others = {key: value for key, value in patch.items() if key not in {"status", "metadata"}}
    metadata = {
        key: value for key, value in (patch.get("metadata") or {}).items() if key != "resourceVersion"
    }
    return others | {"metadata": metadata, "status": status}


@dataclass
class Place:
    """A namespace with one job, its Workloads and its queues."""

    kind: Integration
    settings: ControllerSettings
    objects: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """The job, or its pods."""
    workloads: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    local_queue: dict[str, Any] | None = field(default_factory=local_queue)
    cluster_queue: dict[str, Any] | None = field(default_factory=cluster_queue)
    flavor: dict[str, Any] | None = field(default_factory=lambda: FLAVOR)
    runtime: dict[str, Any] | None = field(default_factory=lambda: RUNTIME)
    ancestor: Ancestor | None = None
    seconds: float = 10
    version: int = 100
    log: list[str] = field(default_factory=list[str])

    # --- inputs of decisions ----------------------------------------------------------------------

    def job(self) -> Any:
        """Return the job; a job that consists of pods is composed of them."""
        composition = self.kind.composition
        if composition is None:
            return next(iter(self.objects.values()), None)
        present = [obj for obj in self.objects.values() if composition.is_member(obj, NAMES)]
        if not present:
            return None
        moment = CompositionOptions(
            instant(self.seconds), deleted_pods_release_quota=self.settings.pods.fast_quota_release
        )
        return composition.compose(present, NAMES, moment)

    def case(self) -> JobCase:
        """Return the inputs of the job controller."""
        job = self.job()
        group = value_at(job, ("group",), "") if self.kind.composition else ""
        if group:
            group_workload = members.find_group_workload(
                job or {}, self.workloads.get(group), NAMES, validate=True
            )
            workloads = () if group_workload is None else (group_workload,)
        else:
            # The Workload of a group without pods is found by its name.
            workloads = tuple(
                obj
                for obj in self.workloads.values()
                if get_controller(obj) is not None or (job is None and is_group_workload(obj, NAMES))
            )
        references = () if job is None or self.runtime is None else self.kind.templates.list_references(job)
        resolved = {reference: self.runtime for reference in references if self.runtime is not None}
        missing = (
            () if job is None or self.runtime is not None else tuple(self.kind.templates.list_references(job))
        )
        return JobCase(
            integration=self.kind,
            names=NAMES,
            kinds=KINDS,
            settings=self.settings,
            now=instant(self.seconds),
            job=None if job is None else self.kind.templates.resolve(job, resolved),
            workloads=workloads,
            lookups=self.lookups(),
            ancestor=self.ancestor,
            missing=missing,
        )

    def lookups(self) -> Lookups:
        classes = {name: {"metadata": {"name": name}, "value": 7} for name in ("high", "low")}
        return Lookups(
            flavor=lambda name: self.flavor if name == "f" else None,
            workload_priority_class=classes.get,
            priority_class=classes.get,
            priority_classes=lambda: (),
            workload=self.workloads.get,
        )

    def workload_inputs(self) -> WorkloadInputs:
        """Return the inputs of the Workload controller."""
        queue = self.cluster_queue
        return WorkloadInputs(
            names=NAMES,
            kinds=KINDS,
            settings=self.settings,
            local_queue=self.local_queue,
            cluster_queue=queue,
            cluster_queue_name="cq",
            cluster_queue_active=queue is not None and queue["spec"]["stopPolicy"] == "None",
        )

    # --- execution of plans -----------------------------------------------------------------------

    def settle(self) -> None:
        """Run all controllers until none writes anything."""
        for _ in range(MAX_ROUNDS):
            if not any([*map(self.execute, self.decisions())]):
                return
        raise AssertionError("controllers do not stop writing:\n" + "\n".join(self.log[-12:]))

    def decisions(self) -> Iterator[ActionPlan]:
        """Return the plans of all controllers; each decides after the writes of the previous plan."""
        yield decide_job(self.case())
        for name in list(self.workloads):
            if (workload := self.workloads.get(name)) is not None:
                yield self.plan_for_workload(workload)

    def plan_for_workload(self, workload: dict[str, Any]) -> ActionPlan:
        """Return the plan of the Workload controller."""
        inputs = self.workload_inputs()
        annotation = value_at(workload, ("metadata", "annotations", NAMES.workload_slice_replacement_for), "")
        original = self.workloads.get(annotation.rpartition("/")[2])
        return decide_workload(workload, replace(inputs, original=original), instant(self.seconds))

    def execute(self, plan: ActionPlan) -> bool:
        """Execute a plan; return whether it wrote anything."""
        written = [self.write(action) for action in plan.actions]
        return any(written)

    def write(self, action: Action) -> bool:
        match action:
            case Create(_, obj):
                metadata = {
                    "uid": f"uid-{len(self.log)}",
                    "creationTimestamp": timestamp(self.seconds),
                    "generation": 1,
                }
                assert obj["metadata"]["name"] not in self.workloads
                self.store(self.workloads, {**obj, "metadata": {**obj["metadata"], **metadata}})
                self.log.append(f"create {obj['metadata']['name']}")
            case Patch(resource, obj, steps):
                collection = self.of(resource.kind)
                name = obj["metadata"]["name"]
                assert collection[name]["metadata"]["resourceVersion"] == obj["metadata"]["resourceVersion"]
                for step in steps:
                    self.store(collection, apply_patch(collection[name], step.patch))
                    self.log.append(f"patch {resource.kind} {name} {_describe_patch(step.patch)}")
            case RemoveFinalizer(resource, obj, finalizer):
                collection, own_finalizer = self.of(resource.kind), finalizer or NAMES.finalizer
                if (stored_object := collection.get(obj["metadata"]["name"])) is None or not has_finalizer(
                    stored_object, own_finalizer
                ):
                    return False
                left = [name for name in stored_object["metadata"]["finalizers"] if name != own_finalizer]
                self.store(collection, with_value(stored_object, ("metadata", "finalizers"), left))
                self.log.append(f"free {obj['metadata']['name']}")
            case Delete(resource, obj):
                collection = self.of(resource.kind)
                if (stored_object := collection.get(obj["metadata"]["name"])) is not None:
                    self.delete(collection, stored_object)
                self.log.append(f"delete {obj['metadata']['name']}")
            case _:
                return False
        return True

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        return self.workloads if kind == "Workload" else self.objects

    def delete(self, collection: dict[str, dict[str, Any]], obj: dict[str, Any]) -> None:
        self.store(collection, with_value(obj, ("metadata", "deletionTimestamp"), timestamp(self.seconds)))

    def store(self, collection: dict[str, dict[str, Any]], obj: Any) -> None:
        """Store an object; a deleted object without finalizers is removed."""
        metadata = obj["metadata"]
        self.version += 1
        before: dict[str, Any] = collection.get(metadata["name"]) or obj
        generation = metadata.get("generation", 1) + (before["spec"] != obj["spec"])
        obj = {
            **obj,
            "metadata": {**metadata, "resourceVersion": str(self.version), "generation": generation},
        }
        collection[metadata["name"]] = obj
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            del collection[metadata["name"]]
            self.collect()

    def stored(self) -> tuple[dict[str, dict[str, Any]], ...]:
        """Return all collections of objects."""
        return (self.objects, self.workloads)

    def collect(self) -> None:
        """Delete objects without an existing owner, as the garbage collector does."""
        alive = {obj["metadata"]["uid"] for collection in self.stored() for obj in collection.values()}
        for collection in self.stored():
            for obj in list(collection.values()):
                owners = value_at(obj, ("metadata", "ownerReferences"), [])
                is_owned = not owners or any(owner["uid"] in alive for owner in owners)
                if not is_owned and "deletionTimestamp" not in obj["metadata"]:
                    self.delete(collection, obj)
