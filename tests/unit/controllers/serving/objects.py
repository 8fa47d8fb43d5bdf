"""StatefulSets, LeaderWorkerSets, their pods, and plans of their controller."""

from typing import Any

from admitq.controllers.job.case import Lookups
from admitq.controllers.plan import ActionPlan, Patch, RecordMetric
from admitq.controllers.serving.decision import ServingCase, decide_serving
from admitq.integrations.base import Integration
from admitq.integrations.kinds.pod import POD
from admitq.integrations.kinds.statefulset import STATEFUL_SET
from admitq.integrations.workload_names import create_workload_name
from admitq_api.json_objects import with_value
from tests.unit.controllers.builders import KINDS, NAMES, SETTINGS, TEMPLATE, instant, settings_with, workload

GATES = [{"name": NAMES.admission_gate}, {"name": "example.com/own"}, {"name": NAMES.topology_gate}]

SERVING = settings_with(integrations=(POD, STATEFUL_SET))

NAME = create_workload_name("StatefulSet", "apps", "s", "uid-s")


def held_template(parent: str) -> dict[str, Any]:
    return {**TEMPLATE, "metadata": {"annotations": {NAMES.pod_suspending_parent: parent}}}


def stateful_set(replicas: int = 3, *, status: Any = None, **metadata: Any) -> dict[str, Any]:
    labels = {NAMES.queue_name: "lq", **metadata.pop("labels", {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "s", "namespace": "ns", "uid": "uid-s", "labels": labels, **metadata},
        "spec": {"replicas": replicas, "template": held_template("statefulset")},
        "status": status or {},
    }


def lws(replicas: int = 2, *, leader: bool = True, status: Any = None, **spec: Any) -> dict[str, Any]:
    template = held_template("leaderworkerset")
    group = {"size": 3, "workerTemplate": template, **({"leaderTemplate": template} if leader else {})}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {
            "name": "l",
            "namespace": "ns",
            "uid": "uid-l",
            "labels": {NAMES.queue_name: "lq"},
        },
        "spec": {"replicas": replicas, "leaderWorkerTemplate": group, **spec},
        "status": status or {},
    }


def pod(
    name: str = "s-0", *, held: bool = True, labels: Any = None, parent: str = "statefulset"
) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "uid-s", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": "3",
            "labels": {NAMES.managed: "true", **(labels or {})},
            "annotations": {NAMES.pod_suspending_parent: parent, NAMES.role_hash: "abc"},
            "ownerReferences": [owner],
        },
        "spec": {**TEMPLATE["spec"], **({"schedulingGates": GATES} if held else {"nodeName": "n"})},
        "status": {"phase": "Pending" if held else "Running"},
    }


def lws_pod(group: int, worker: int) -> dict[str, Any]:
    prefix = "leaderworkerset.sigs.k8s.io/"
    labels = {f"{prefix}name": "l", f"{prefix}group-index": str(group), f"{prefix}worker-index": str(worker)}
    return pod(f"l-{group}-{worker}", labels=labels, parent="leaderworkerset")


def owned(obj: dict[str, Any], job: dict[str, Any], index: str | None = None) -> dict[str, Any]:
    """Return the Workload with the owner and annotations that the controller of the object writes."""
    metadata = job["metadata"]
    owner = {"kind": job["kind"], "name": metadata["name"], "uid": metadata["uid"]}
    annotations = {
        NAMES.is_group_workload: "true",
        NAMES.job_owner_gvk: f"{job['apiVersion']}, Kind={job['kind']}",
        NAMES.job_owner_name: metadata["name"],
    }
    if index is not None:
        annotations[NAMES.component_workload_index] = index
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations, "ownerReferences": [owner]}}


def of_set(obj: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    result = {**obj, "metadata": {**obj["metadata"], "name": NAME}}
    pod_set = {
        "name": "main",
        "count": 3,
        "template": job["spec"]["template"],
        "topologyRequest": {"podIndexLabel": "apps.kubernetes.io/pod-index"},
    }
    result["spec"] = {**result["spec"], "podSets": [pod_set]}
    return owned(result, job)


def plan_for(
    job: dict[str, Any] | None,
    *workloads: dict[str, Any],
    pods: Any = (),
    kind: Integration = STATEFUL_SET,
    settings: Any = SETTINGS,
    classes: Any = None,
    others: Any = (),
    **fields: Any,
) -> ActionPlan:
    """Return the plan for these Workloads of the object; ``others`` do not name it in annotations."""
    assert kind.serving is not None
    by_name = {obj["metadata"]["name"]: obj for obj in (*workloads, *others)}
    lookups = Lookups(
        flavor=lambda _: None,
        workload_priority_class=(classes or {}).get,
        priority_class=lambda _: None,
        priority_classes=lambda: (),
        workload=by_name.get,
    )
    case = ServingCase(
        integration=kind,
        serving=kind.serving,
        names=NAMES,
        kinds=KINDS,
        settings=settings,
        now=instant(10),
        job=job,
        pods=tuple(pods),
        workloads=workloads,
        lookups=lookups,
        **fields,
    )
    return decide_serving(case)


def only_patch(plan: ActionPlan) -> Any:
    (action,) = (action for action in plan.actions if not isinstance(action, RecordMetric))
    assert isinstance(action, Patch)
    return action.steps[0].patch


def without_uid(job: dict[str, Any]) -> dict[str, Any]:
    """Return a Workload of the object with a name that contains no hash of its UID."""
    name = create_workload_name("StatefulSet", "apps", "s", "")
    return with_value(of_set(workload(), job), ("metadata", "name"), name)
