"""Protected marks of pods and jobs: what counts as a change, and which accounts may make it."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest

from admitq.integrations.base import Integration
from admitq.integrations.kinds.appwrapper import APP_WRAPPER
from admitq.integrations.kinds.deployment import DEPLOYMENT
from admitq.integrations.kinds.job import JOB
from admitq.integrations.kinds.pod import POD
from admitq.integrations.kinds.raycluster import RAY_CLUSTER
from admitq.integrations.kinds.sparkapplication import SPARK_APPLICATION
from admitq_webhooks.validate.marks import JOB_MARKS, MARKS
from localcluster.folders import REPOSITORY
from tests.unit.webhooks.support import NAMES, QUEUE, Answer, FakeLookups, a_job, handlers, post, review

GATES = (NAMES.admission_gate, NAMES.topology_gate, NAMES.elastic_gate)
LABELS = {QUEUE: "q", NAMES.managed: "true", NAMES.podset: "main", NAMES.pod_group_name: "g"}
ANNOTATIONS = {
    NAMES.role_hash: "main",
    NAMES.workload: "w",
    NAMES.workload_slice_name: "w",
    NAMES.pod_suspending_parent: "deployment",
    NAMES.pod_group_total_count: "3",
    NAMES.pod_group_fast_admission: "true",
    NAMES.pod_group_serving: "true",
}
ADMIN = ("anna", "update workloads.admitq.dev/status", "team")


def a_pod(
    labels: Mapping[str, str] = LABELS,
    annotations: Mapping[str, str] = ANNOTATIONS,
    gates: tuple[str, ...] = GATES,
    owner: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "p", "labels": {**labels}, "annotations": {**annotations}}
    if owner is not None:
        metadata["ownerReferences"] = [{"controller": True, "name": "o", "uid": "o", **owner}]
    spec = {"containers": [{"name": "c"}], "schedulingGates": [{"name": gate} for gate in gates]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def without(fields: Mapping[str, str], key: str) -> dict[str, str]:
    return {name: value for name, value in fields.items() if name != key}


async def change(
    old: Any,
    new: Any,
    *,
    user: str = "anna",
    lookups: FakeLookups | None = None,
    gvk: tuple[str, str, str] = ("", "v1", "Pod"),
    integrations: tuple[Integration, ...] = (JOB, POD, RAY_CLUSTER),
    aspect: str = "",
    **request: Any,
) -> Answer:
    path = NAMES.webhook_path("validate", *gvk) + aspect
    handler = handlers(lookups, integrations, integrations=integrations)[path]
    body = review(new, old, gvk=gvk, userInfo={"username": user, "groups": ["team"]}, **request)
    status, response = await post(handler, path, body)
    return Answer(status, orjson.loads(response), new)


def rejection_message(field: str) -> str:
    return (
        f"{field}: Forbidden: this field protects quota, so this account may not change it; keep the field "
        "as it is, or delete the object and create another; accounts that may change the field: admitq, the "
        "controllers that own the object, and accounts that may update workloads/status in this namespace"
    )


CHANGES = [
    *(
        (f"metadata.labels[{key}]", a_pod(labels=without(LABELS, key)))
        for key in (NAMES.managed, NAMES.podset)
    ),
    *((f"metadata.annotations[{key}]", a_pod(annotations=without(ANNOTATIONS, key))) for key in ANNOTATIONS),
    *(
        (f"metadata.labels[{key}]", a_pod(labels={**LABELS, key: "x"}))
        for key in (NAMES.podset, NAMES.pod_group_name)
    ),
    *((f"metadata.annotations[{key}]", a_pod(annotations={**ANNOTATIONS, key: "x"})) for key in ANNOTATIONS),
    *(
        (f"spec.schedulingGates[{key}]", a_pod(gates=tuple(gate for gate in GATES if gate != key)))
        for key in GATES
    ),
]


@pytest.mark.parametrize(("field", "new"), CHANGES)
async def test_mark_change_of_managed_pod_by_ordinary_user_is_rejected(field: str, new: Any) -> None:
    lookups = FakeLookups()
    answer = await change(a_pod(), new, lookups=lookups)
    assert answer.message == rejection_message(field)
    assert lookups.accesses == [ADMIN]


@pytest.mark.parametrize("new", [new for _, new in CHANGES])
async def test_mark_change_of_managed_pod_by_admitq_needs_no_access_review(new: Any) -> None:
    lookups = FakeLookups()
    answer = await change(a_pod(), new, user="system:serviceaccount:admitq-system:manager", lookups=lookups)
    assert "this field protects quota" not in str(answer.body)
    assert lookups.accesses == []


async def test_removal_of_label_and_gates_reports_both_fields() -> None:
    answer = await change(a_pod(), a_pod(labels={QUEUE: "q"}, gates=()))
    assert f"metadata.labels[{NAMES.managed}]: Forbidden" in answer.message
    assert f"spec.schedulingGates[{NAMES.admission_gate}]: Forbidden" in answer.message


@pytest.mark.parametrize("key", [NAMES.pod_suspending_parent, NAMES.pod_group_total_count, NAMES.role_hash])
async def test_mark_added_to_managed_pod_is_rejected(key: str) -> None:
    answer = await change(a_pod(annotations=without(ANNOTATIONS, key)), a_pod())
    assert f"metadata.annotations[{key}]: Forbidden" in answer.message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (a_pod(), a_pod(labels={**LABELS, "example.com/mine": "x"})),
        (a_pod(annotations={}, gates=()), a_pod(annotations={"example.com/mine": "x"}, gates=())),
        (a_pod({QUEUE: "q"}, {}, ()), a_pod({QUEUE: "q", NAMES.managed: "true"}, {}, ())),
        (a_pod({}, {NAMES.pod_group_total_count: "3"}, ()), a_pod({}, {}, ())),
        (a_pod({}, {}, ("example.com/gate",)), a_pod({}, {}, ())),
    ],
    ids=["foreign label", "foreign annotation", "managed label is added", "unmanaged pod", "foreign gate"],
)
async def test_pod_change_without_marks_is_accepted_without_access_review(old: Any, new: Any) -> None:
    lookups = FakeLookups()
    assert (await change(old, new, lookups=lookups)).allowed
    assert lookups.accesses == []


async def test_marks_of_elastic_job_pod_cannot_be_removed() -> None:
    labels, annotations = {NAMES.podset: "main"}, {NAMES.workload_slice_name: "w"}
    old = a_pod(labels, annotations, (NAMES.elastic_gate,))
    answer = await change(old, a_pod({}, {}, ()))
    for field in (
        f"metadata.labels[{NAMES.podset}]",
        f"metadata.annotations[{NAMES.workload_slice_name}]",
        f"spec.schedulingGates[{NAMES.elastic_gate}]",
    ):
        assert f"{field}: Forbidden" in answer.message


async def test_marks_can_be_added_to_unmanaged_pod_without_access_review() -> None:
    lookups = FakeLookups()
    marked = a_pod({NAMES.podset: "main"}, {NAMES.workload_slice_name: "w"}, ())
    assert (await change(a_pod({}, {}, ()), marked, lookups=lookups)).allowed
    assert lookups.accesses == []


MANAGED_POD = a_pod(labels={QUEUE: "q", NAMES.managed: "true"}, annotations={})


@pytest.mark.parametrize(
    ("owner", "permitted", "allowed"),
    [
        (None, ADMIN, True),
        (None, ("anna", "update workloads.admitq.dev/status", "other"), False),
        (None, ("anna", "update workloads.admitq.dev", "team"), False),
        (None, ("bert", "update workloads.admitq.dev/status", "team"), False),
        (("apps/v1", "ReplicaSet"), ("anna", "update replicasets.apps/status", "team"), True),
        (("apps/v1", "ReplicaSet"), ("anna", "update replicasets.apps", "team"), False),
        (("ray.io/v1", "RayCluster"), ("anna", "update rayclusters.ray.io/status", "team"), True),
        (("example.com/v1", "Fox"), ("anna", "update foxes.example.com/status", "team"), False),
        (("v1", "Pod"), ("anna", "update pods/status", "team"), False),
        (None, ("anna", "update pods/status", "team"), False),
    ],
)
async def test_marks_are_changed_only_by_administrator_or_controller_of_owner(
    owner: tuple[str, str] | None, permitted: tuple[str, str, str], allowed: bool
) -> None:
    plurals = {"ReplicaSet": "replicasets", "RayCluster": "rayclusters", "Fox": "foxes", "Pod": "pods"}
    lookups = FakeLookups(permitted={permitted}, plurals=plurals)
    reference = None if owner is None else {"apiVersion": owner[0], "kind": owner[1]}
    old, new = (
        a_pod(MANAGED_POD["metadata"]["labels"], {}, GATES, reference),
        a_pod({QUEUE: "q"}, {}, (), reference),
    )
    assert (await change(old, new, lookups=lookups)).allowed is allowed


async def test_owner_added_by_the_same_change_grants_no_access() -> None:
    lookups = FakeLookups(
        permitted={("anna", "update replicasets.apps/status", "team")}, plurals={"ReplicaSet": "replicasets"}
    )
    new = a_pod({QUEUE: "q"}, {}, (), {"apiVersion": "apps/v1", "kind": "ReplicaSet"})
    assert not (await change(MANAGED_POD, new, lookups=lookups)).allowed


async def test_owner_without_controller_flag_grants_no_access() -> None:
    lookups = FakeLookups(
        permitted={("anna", "update replicasets.apps/status", "team")}, plurals={"ReplicaSet": "replicasets"}
    )
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": False}
    old, new = a_pod(MANAGED_POD["metadata"]["labels"], {}, GATES, owner), a_pod({}, {}, (), owner)
    assert not (await change(old, new, lookups=lookups)).allowed


async def test_mark_change_fails_while_access_cannot_be_reviewed() -> None:
    class WithoutAccessReviews(FakeLookups):
        async def is_allowed(self, user: Any, access: Any) -> bool:
            self.unavailable = True
            return await super().is_allowed(user, access)

    answer = await change(a_pod(), a_pod(labels={}, gates=()), lookups=WithoutAccessReviews())
    assert answer.response["status"]["code"] == 503
    assert answer.message == "the API server does not answer; try again"


@pytest.mark.parametrize(
    "user",
    ["", "admitq-system", "system:serviceaccount:admitq-system", "system:serviceaccount:team:admitq-system"],
)
async def test_user_name_similar_to_admitq_account_is_not_trusted(user: str) -> None:
    assert not (await change(a_pod(), a_pod(labels={}), user=user)).allowed


async def test_suspending_parent_cannot_be_removed_if_pod_kind_is_only_implied() -> None:
    labels, annotations = {QUEUE: "q", NAMES.managed: "true"}, {NAMES.pod_suspending_parent: "deployment"}
    old, new = a_pod(labels, annotations), a_pod({}, {}, ())
    answer = await change(
        old, new, integrations=(DEPLOYMENT, replace(POD, ownership=replace(POD.ownership, is_implied=True)))
    )
    assert f"metadata.annotations[{NAMES.pod_suspending_parent}]: Forbidden" in answer.message


# --- pods of jobs -------------------------------------------------------------------------------------

JOB_POD_LABELS = {NAMES.podset: "main", "batch.kubernetes.io/controller-uid": "o", "mine": "x", "tier": "y"}
JOB_OWNER = {"apiVersion": "batch/v1", "kind": "Job"}
ONLY_MARKS: Any = {"aspect": "-marks", "integrations": (JOB,)}


def job_pod(
    labels: Mapping[str, str] = JOB_POD_LABELS, owner: Any = JOB_OWNER, phase: str = "Running"
) -> Any:
    return {**a_pod(labels, {}, (), owner), "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("new", "field"),
    [
        (
            job_pod(without(JOB_POD_LABELS, "batch.kubernetes.io/controller-uid")),
            "batch.kubernetes.io/controller-uid",
        ),
        (
            job_pod({**JOB_POD_LABELS, "batch.kubernetes.io/controller-uid": "z"}),
            "batch.kubernetes.io/controller-uid",
        ),
        (job_pod(without(JOB_POD_LABELS, "tier")), "tier"),
        (job_pod({**JOB_POD_LABELS, "tier": "z"}), "tier"),
        (job_pod(without(JOB_POD_LABELS, NAMES.podset)), NAMES.podset),
    ],
)
async def test_selector_labels_of_job_pod_cannot_be_changed(new: Any, field: str) -> None:
    selector = {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["y"]}]}
    lookups = FakeLookups(objects={"o": {"spec": {"selector": selector}}})
    answer = await change(job_pod(), new, lookups=lookups, **ONLY_MARKS)
    assert answer.message == rejection_message(f"metadata.labels[{field}]")


@pytest.mark.parametrize("owner", [None, {**JOB_OWNER, "uid": "other"}, {**JOB_OWNER, "controller": False}])
async def test_controller_reference_of_job_pod_cannot_be_removed(owner: Any) -> None:
    answer = await change(job_pod(), job_pod(owner=owner), **ONLY_MARKS)
    assert answer.message == rejection_message("metadata.ownerReferences")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (job_pod(), job_pod(without(JOB_POD_LABELS, "mine"))),
        (job_pod(), job_pod({**JOB_POD_LABELS, "example.com/more": "x"})),
        (job_pod(owner=None), job_pod()),
        (job_pod(phase="Succeeded"), job_pod({NAMES.podset: "main"}, None, "Succeeded")),
        (job_pod(without(JOB_POD_LABELS, NAMES.podset)), job_pod({}, None)),
    ],
    ids=["label of the user removed", "label of the user added", "adopted", "ended", "job not admitted"],
)
async def test_job_pod_change_that_keeps_pod_with_its_job_is_accepted(old: Any, new: Any) -> None:
    lookups = FakeLookups(objects={"o": {"spec": {"selector": {"matchLabels": {"tier": "y"}}}}})
    assert (await change(old, new, lookups=lookups, **ONLY_MARKS)).allowed
    assert lookups.accesses == []


async def test_job_controller_and_administrator_may_detach_pod_from_job() -> None:
    for permitted in (ADMIN, ("anna", "update jobs.batch/status", "team")):
        lookups = FakeLookups(permitted={permitted}, plurals={"Job": "jobs"})
        assert (await change(job_pod(), job_pod({}, None), lookups=lookups, **ONLY_MARKS)).allowed


async def test_change_of_unprefixed_label_fails_while_job_cannot_be_read() -> None:
    class WithoutObjects(FakeLookups):
        async def get_object(self, group: str, version: str, kind: str, namespace: str, name: str) -> Any:
            self.unavailable = True
            return await super().get_object(group, version, kind, namespace, name)

    answer = await change(
        job_pod(), job_pod(without(JOB_POD_LABELS, "mine")), lookups=WithoutObjects(), **ONLY_MARKS
    )
    assert answer.response["status"]["code"] == 503


@pytest.mark.parametrize("status", ["status", ""])
async def test_marks_are_protected_without_pod_integration_and_in_status_subresource(
    status: str,
) -> None:
    gated = a_pod({NAMES.podset: "main"}, {NAMES.workload: "w"}, (NAMES.elastic_gate,))
    answer = await change(gated, a_pod({}, {}, ()), subResource=status, **ONLY_MARKS)
    for field in (
        f"metadata.labels[{NAMES.podset}]",
        f"metadata.annotations[{NAMES.workload}]",
        f"spec.schedulingGates[{NAMES.elastic_gate}]",
    ):
        assert f"{field}: Forbidden" in answer.message


# --- jobs -------------------------------------------------------------------------------------------


def a_ray_cluster(
    suspend: bool, labels: Mapping[str, str] | None = None, gates: tuple[str, ...] = (), **metadata: Any
) -> dict[str, Any]:
    template = {
        "metadata": {"labels": labels or {}},
        "spec": {"containers": [{"name": "c"}], "schedulingGates": [{"name": gate} for gate in gates]},
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "r", "labels": {QUEUE: "q"}, **metadata},
        "spec": {
            "suspend": suspend,
            "headGroupSpec": {"template": {"spec": {"containers": [{"name": "h"}]}}},
            "workerGroupSpecs": [{"groupName": "w", "replicas": 1, "template": template}],
        },
    }


RAY: Any = {"gvk": ("ray.io", "v1", "RayCluster")}
MARKED_LABELS = {NAMES.podset: "w"}


@pytest.mark.parametrize("labels", [{}, {NAMES.podset: "head"}])
async def test_template_marks_of_running_job_cannot_be_changed(labels: Mapping[str, str]) -> None:
    lookups = FakeLookups()
    old, new = a_ray_cluster(False, MARKED_LABELS), a_ray_cluster(False, labels)
    answer = await change(old, new, lookups=lookups, **RAY)
    field = f"spec.workerGroupSpecs[0].template.metadata.labels[{NAMES.podset}]"
    assert answer.message == rejection_message(field)
    assert not (await change(old, new, lookups=FakeLookups(permitted=set()), **RAY)).allowed


async def test_template_gate_of_running_job_cannot_be_removed() -> None:
    old, new = a_ray_cluster(False, gates=(NAMES.elastic_gate,)), a_ray_cluster(False)
    answer = await change(old, new, **RAY)
    assert answer.message == rejection_message(
        f"spec.workerGroupSpecs[0].template.spec.schedulingGates[{NAMES.elastic_gate}]"
    )


@pytest.mark.parametrize(("before", "after"), [(True, True), (False, True), (True, False)])
async def test_template_marks_can_be_changed_if_job_is_suspended_before_or_after(
    before: bool, after: bool
) -> None:
    lookups = FakeLookups()
    assert (
        await change(a_ray_cluster(before, MARKED_LABELS), a_ray_cluster(after), lookups=lookups, **RAY)
    ).allowed
    assert lookups.accesses == []


async def test_controller_of_job_kind_may_change_template_marks() -> None:
    lookups = FakeLookups(
        permitted={("anna", "update rayclusters.ray.io/status", "team")},
        plurals={"RayCluster": "rayclusters"},
    )
    assert (
        await change(a_ray_cluster(False, MARKED_LABELS), a_ray_cluster(False), lookups=lookups, **RAY)
    ).allowed


async def test_stopping_annotation_of_job_is_removed_only_by_admitq() -> None:
    job: Any = {"gvk": ("batch", "v1", "Job")}
    labels, stopping = {QUEUE: "q"}, {NAMES.stopping: "true"}
    old, new = a_job(labels=labels, annotations=stopping, suspend=True), a_job(labels=labels, suspend=True)
    answer = await change(old, new, **job)
    assert answer.message == rejection_message(f"metadata.annotations[{NAMES.stopping}]")
    assert (await change(new, old, **job)).allowed
    assert (await change(old, new, user="system:serviceaccount:admitq-system:m", **job)).allowed


def an_app_wrapper(
    infos: Any, wrapped: Mapping[str, Any] | None = None, suspend: bool = False
) -> dict[str, Any]:
    template = {"metadata": {**(wrapped or {})}, "spec": {"containers": [{"name": "c"}]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": "a", "labels": {QUEUE: "q"}},
        "spec": {
            "suspend": suspend,
            "components": [{"template": service}, {"template": job, "podSetInfos": infos}],
        },
    }


def a_spark_application(labels: Mapping[str, str], **role: Any) -> dict[str, Any]:
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "a", "labels": {QUEUE: "q"}},
        "spec": {"driver": {"labels": labels, **role}, "executor": {"instances": 1}},
    }


def an_autoscaling_cluster(labels: Mapping[str, str]) -> dict[str, Any]:
    elastic = {NAMES.elastic_job: "true"}
    cluster = a_ray_cluster(False, MARKED_LABELS, annotations=elastic)
    cluster["spec"]["enableInTreeAutoscaling"] = True
    cluster["spec"]["headGroupSpec"]["template"]["metadata"] = {"labels": labels}
    return cluster


APP: Any = {"gvk": ("workload.codeflare.dev", "v1beta2", "AppWrapper"), "integrations": (JOB, APP_WRAPPER)}
SPARK: Any = {
    "gvk": ("sparkoperator.k8s.io", "v1beta2", "SparkApplication"),
    "integrations": (JOB, SPARK_APPLICATION),
}
INFO = {
    "labels": {NAMES.podset: "a-0"},
    "annotations": {NAMES.workload: "w"},
    "schedulingGates": [{"name": NAMES.topology_gate}],
}
COMPONENT = "spec.components[1]"
IN_TEMPLATE = f"{COMPONENT}.template.spec.template.metadata"
IN_INFO = f"{COMPONENT}.podSetInfos[0]"
MARK_CHANGES_OF_BUILT_TEMPLATES: Any = [
    (APP, an_app_wrapper([INFO], {"labels": MARKED_LABELS}), f"{IN_TEMPLATE}.labels[{NAMES.podset}]"),
    (APP, an_app_wrapper([{**INFO, "labels": {}}]), f"{IN_INFO}.labels[{NAMES.podset}]"),
    (APP, an_app_wrapper([{**INFO, "labels": MARKED_LABELS}]), f"{IN_INFO}.labels[{NAMES.podset}]"),
    (APP, an_app_wrapper([{**INFO, "annotations": {}}]), f"{IN_INFO}.annotations[{NAMES.workload}]"),
    (
        APP,
        an_app_wrapper([INFO], {"annotations": {NAMES.workload: "other"}}),
        f"{IN_TEMPLATE}.annotations[{NAMES.workload}]",
    ),
    (
        APP,
        an_app_wrapper([{**INFO, "schedulingGates": []}]),
        f"{IN_INFO}.schedulingGates[{NAMES.topology_gate}]",
    ),
    (SPARK, a_spark_application({}), f"spec.driver.labels[{NAMES.podset}]"),
    (SPARK, a_spark_application({NAMES.podset: "executor"}), f"spec.driver.labels[{NAMES.podset}]"),
    (
        RAY,
        an_autoscaling_cluster({NAMES.podset: "w"}),
        f"spec.headGroupSpec.template.metadata.labels[{NAMES.podset}]",
    ),
]


def stored_job(kind: Any) -> dict[str, Any]:
    if kind is APP:
        return an_app_wrapper([INFO])
    return (
        a_spark_application({NAMES.podset: "driver"})
        if kind is SPARK
        else an_autoscaling_cluster({NAMES.podset: "head"})
    )


@pytest.mark.parametrize(("kind", "new", "field"), MARK_CHANGES_OF_BUILT_TEMPLATES)
async def test_marks_of_template_built_from_several_fields_cannot_be_changed(
    kind: Any, new: Any, field: str
) -> None:
    answer = await change(stored_job(kind), new, **kind)
    assert answer.message == rejection_message(field)
    assert (await change(stored_job(kind), new, lookups=FakeLookups(permitted={ADMIN}), **kind)).allowed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (an_app_wrapper([INFO]), an_app_wrapper([INFO], {"labels": {"own": "x"}})),
        (an_app_wrapper([INFO]), an_app_wrapper([{**INFO, "nodeSelector": {"pool": "spot"}}])),
        (an_app_wrapper([]), an_app_wrapper([INFO], suspend=True)),
        (an_app_wrapper([INFO], suspend=True), an_app_wrapper([{}], {"labels": MARKED_LABELS}, suspend=True)),
    ],
    ids=["label of the user", "node selector", "suspended by the update", "suspended before"],
)
async def test_app_wrapper_change_without_marks_needs_no_access_review(old: Any, new: Any) -> None:
    lookups = FakeLookups()
    assert (await change(old, new, lookups=lookups, **APP)).allowed
    assert lookups.accesses == []


# --- the guide --------------------------------------------------------------------------------------


def test_guide_lists_every_mark_and_its_kind() -> None:
    text = (REPOSITORY / "docs" / "guides" / "protected-marks.md").read_text()
    listed = re.findall(r"^\| `<group>/([a-z-]+)` \| ([a-z ]+) \|", text, re.MULTILINE)
    rows = [getattr(type(NAMES), mark.attribute) for mark in MARKS]
    assert listed == [(row.suffix, row.kind) for row in rows]
    assert all(
        f"`<group>/{getattr(type(NAMES), name).suffix}` of a job" in text.replace("\n", " ")
        for name in JOB_MARKS
    )
