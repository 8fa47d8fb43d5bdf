from dataclasses import replace
from typing import Any

import pytest

from admitq.integrations.base import JobOutcome, RuleContext
from admitq.integrations.kinds.trainjob import TRAIN_JOB
from admitq.integrations.references import ObjectReference, OwnerKind
from admitq_api.json_objects import value_at, with_value
from admitq_api.labels import names_for
from admitq_webhooks.mutate.jobs import mutate_job
from tests.unit.webhooks.support import OPERATOR, FakeLookups, policy

NAMES = names_for()
RULES = RuleContext(NAMES)
MANAGER = NAMES.trainjob_manager
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def entry(name: str = "node", step: str | None = "trainer", replicas: Any = None, **spec: Any) -> Any:
    container = {"name": name, "image": "runtime:1", "resources": {"requests": {"cpu": 1}}}
    template: Any = {"spec": {"template": {"spec": {"containers": [container]}}, **spec}}
    if step is not None:
        template["metadata"] = {"labels": {STEP: step}}
    return {"name": name, "template": template, **({} if replicas is None else {"replicas": replicas})}


def runtime(*entries: Any, policy: Any = None) -> Any:
    spec = {"template": {"spec": {"replicatedJobs": list(entries) or [entry()]}}}
    return {"spec": {**spec, **({} if policy is None else {"mlPolicy": policy})}}


def job(runtime_object: Any = None, status: Any = None, metadata: Any = None, **spec: Any) -> Any:
    raw = {
        "metadata": {"name": "t", "namespace": "ns", **(metadata or {})},
        "spec": {"runtimeRef": {"name": "torch"}, **spec},
        "status": status or {},
    }
    [reference] = TRAIN_JOB.templates.list_references(raw)
    return TRAIN_JOB.templates.resolve(raw, {reference: runtime_object or runtime()})


def counts(trained: Any) -> dict[str, int]:
    return {pod_set.name: pod_set.count for pod_set in TRAIN_JOB.list_pod_sets(trained, NAMES)}


def template(trained: Any, name: str = "node") -> Any:
    pod_sets = TRAIN_JOB.list_pod_sets(trained, NAMES)
    return next(pod_set.get_template(trained) for pod_set in pod_sets if pod_set.name == name)


def container(trained: Any, name: str = "node") -> Any:
    return template(trained, name)["spec"]["containers"][0]


# --- the runtime ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "kind", "namespace"),
    [
        ({"name": "torch"}, "ClusterTrainingRuntime", ""),
        ({"name": "torch", "kind": "ClusterTrainingRuntime"}, "ClusterTrainingRuntime", ""),
        ({"name": "torch", "kind": "TrainingRuntime"}, "TrainingRuntime", "ns"),
        ({"name": "torch", "kind": "Another"}, "Another", ""),
    ],
)
def test_trainjob_references_its_runtime(reference: Any, kind: str, namespace: str) -> None:
    trained = {"metadata": {"namespace": "ns"}, "spec": {"runtimeRef": reference}}
    owner = OwnerKind("trainer.kubeflow.org", "v1alpha1", kind)
    assert TRAIN_JOB.templates.list_references(trained) == (ObjectReference(owner, namespace, "torch"),)


def test_trainjob_without_runtime_has_no_podsets() -> None:
    raw = {"spec": {"runtimeRef": {"name": "torch"}}}
    assert TRAIN_JOB.templates.resolve(raw, {}) == raw
    assert TRAIN_JOB.list_pod_sets(raw, NAMES) == []


@pytest.mark.parametrize(
    ("runtime_object", "trainer", "expected"),
    [
        (runtime(), None, {"node": 1}),
        (runtime(policy={"torch": {}}), None, {"node": 1}),
        (runtime(policy={"numNodes": 3, "torch": {}}), None, {"node": 3}),
        (runtime(policy={"numNodes": 3, "torch": {}}), {"numNodes": 5}, {"node": 5}),
        (runtime(policy={"numNodes": 3}), {"numNodes": 0}, {"node": 0}),
        (runtime(policy={"numNodes": 3}), {"numNodes": "many"}, {"node": 3}),
        (runtime(entry(parallelism=4, completions=2)), None, {"node": 4}),
        (runtime(entry(replicas=7)), {"numNodes": 2}, {"node": 2}),
        (runtime(entry("other", None, replicas=2, parallelism=3)), {"numNodes": 9}, {"other": 6}),
        (
            runtime(entry("dataset-initializer", "dataset-initializer", replicas=2), entry()),
            {"numNodes": 2},
            {"dataset-initializer": 1, "node": 2},
        ),
        (
            runtime(entry("launcher"), entry("node", None), policy={"mpi": {}}),
            {"numNodes": 4},
            {"launcher": 1, "node": 4},
        ),
        (
            runtime(entry("launcher"), entry("node", None), policy={"mpi": {"runLauncherAsNode": True}}),
            {"numNodes": 4},
            {"launcher": 1, "node": 3},
        ),
        (
            runtime(entry("launcher"), entry("node", None), policy={"mpi": {"runLauncherAsNode": True}}),
            {"numNodes": 1},
            {"launcher": 1, "node": 1},
        ),
    ],
)
def test_trainjob_podsets_are_those_of_the_created_jobset(
    runtime_object: Any, trainer: Any, expected: Any
) -> None:
    assert counts(job(runtime_object, trainer=trainer)) == expected


@pytest.mark.parametrize("replicas", [0, -1])
def test_b11_replicated_job_without_replicas_counts_as_one_replica(replicas: int) -> None:
    runtime_object = runtime(entry(replicas=replicas), entry("other", None, replicas=replicas, parallelism=3))
    assert counts(job(runtime_object)) == {"node": 1, "other": 3}


def test_trainjob_trainer_overrides_container_of_runtime() -> None:
    trainer = {
        "image": "mine:2",
        "command": ["python"],
        "args": ["train.py"],
        "env": [{"name": "LR", "value": "1"}],
        "resourcesPerNode": {"requests": {"cpu": 8}, "limits": {"nvidia.com/gpu": 1}},
    }
    runtime_object = runtime(entry(), policy={"torch": {}})
    assert container(job(runtime_object, trainer=trainer)) == {
        "name": "node",
        "image": "mine:2",
        "command": ["python"],
        "args": ["train.py"],
        "env": [{"name": "LR", "value": "1"}],
        "resources": {"requests": {"cpu": 8}, "limits": {"nvidia.com/gpu": 1}},
    }


@pytest.mark.parametrize(
    ("as_node", "cpu"), [(False, {"launcher": 1, "node": 1}), (True, {"launcher": 1, "node": 8})]
)
def test_mpi_runtime_nodes_get_resources_only_if_launcher_is_a_node(as_node: bool, cpu: Any) -> None:
    runtime_object = runtime(
        entry("launcher"), entry("node", None), policy={"mpi": {"runLauncherAsNode": as_node}}
    )
    trained = job(runtime_object, trainer={"resourcesPerNode": {"requests": {"cpu": 8}}})
    assert {name: container(trained, name)["resources"]["requests"]["cpu"] for name in cpu} == cpu


def test_trainjob_trainer_does_not_change_other_containers() -> None:
    runtime_object = runtime(entry("other"))
    trained = job(runtime_object, trainer={"image": "mine:2", "resourcesPerNode": {"requests": {"cpu": 8}}})
    assert container(trained, "other") == container(job(runtime_object), "other")


@pytest.mark.parametrize(
    ("name", "part"), [("dataset-initializer", "dataset"), ("model-initializer", "model")]
)
def test_trainjob_initializer_gets_storage_uri_and_environment(name: str, part: str) -> None:
    initializer = {"storageUri": "hf://x", "env": [{"name": "A", "value": "b"}]}
    trained = job(runtime(entry(name, name), entry()), initializer={part: initializer})
    assert container(trained, name)["env"] == [
        {"name": "STORAGE_URI", "value": "hf://x"},
        {"name": "A", "value": "b"},
    ]


def patched(manager: str, pod_template: Any, name: str = "node") -> Any:
    template = {"spec": {"template": pod_template}}
    spec = {"replicatedJobs": [{"name": name, "template": template}]}
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": spec}}}


def test_trainjob_runtime_patches_are_applied_in_order() -> None:
    first = {
        "metadata": {"labels": {"a": "1", "b": "1"}},
        "spec": {
            "nodeSelector": {"pool": "x"},
            "tolerations": [{"key": "one"}],
            "containers": [{"name": "node", "env": [{"name": "A", "value": "1"}]}],
            "volumes": [{"name": "v"}],
        },
    }
    second = {
        "metadata": {"labels": {"b": "2"}},
        "spec": {
            "tolerations": [{"key": "two"}],
            "containers": [{"name": "node", "env": [{"name": "A", "value": "2"}, {"name": "B"}]}],
            "schedulingGates": [{"name": "g"}],
        },
    }
    other_job = patched("c", {"spec": {"nodeSelector": {"pool": "y"}}}, "another")
    patches = [patched("a", first), patched("b", second), other_job]
    pod_template = template(job(runtimePatches=patches))
    assert pod_template["metadata"] == {"labels": {"a": "1", "b": "2"}}
    spec = pod_template["spec"]
    assert spec["nodeSelector"] == {"pool": "x"}
    assert spec["tolerations"] == [{"key": "two"}]
    assert spec["volumes"] == [{"name": "v"}]
    assert spec["schedulingGates"] == [{"name": "g"}]
    [node] = spec["containers"]
    assert node["image"] == "runtime:1"
    assert node["env"] == [{"name": "A", "value": "2"}, {"name": "B"}]


# --- injection ------------------------------------------------------------------------------------


def inject(trained: Any) -> Any:
    for pod_set in TRAIN_JOB.list_pod_sets(trained, NAMES):
        pods = pod_set.get_template(trained)
        pods = with_value(pods, ("metadata", "labels", NAMES.podset), pod_set.name)
        pods = with_value(pods, ("spec", "nodeSelector", "pool"), "spot")
        pods = with_value(
            pods, ("spec", "tolerations"), [*(value_at(pods, ("spec", "tolerations")) or ()), {"key": "t"}]
        )
        pods = with_value(pods, ("spec", "schedulingGates"), [{"name": "topology"}])
        trained = TRAIN_JOB.templates.with_template(trained, pod_set, pods, NAMES)
    return trained


def test_trainjob_injection_is_the_last_runtime_patch() -> None:
    user_patch = patched(
        "example.com/me", {"spec": {"nodeSelector": {"arch": "arm"}, "tolerations": [{"key": "o"}]}}
    )
    trained = job(
        runtime(entry(), entry("other", None)), runtimePatches=[{"manager": MANAGER, "time": "x"}, user_patch]
    )
    started = inject(trained)
    assert started["spec"]["runtimePatches"][0] == user_patch
    own_patch = started["spec"]["runtimePatches"][1]
    assert (own_patch["manager"], own_patch["time"]) == (MANAGER, "x")
    node, other = own_patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert node == {
        "name": "node",
        "template": {
            "spec": {
                "template": {
                    "metadata": {"labels": {NAMES.podset: "node"}},
                    "spec": {
                        "nodeSelector": {"pool": "spot"},
                        "tolerations": [{"key": "o"}, {"key": "t"}],
                        "schedulingGates": [{"name": "topology"}],
                    },
                }
            }
        },
    }
    assert other["name"] == "other"
    assert template(started)["spec"]["nodeSelector"] == {"arch": "arm", "pool": "spot"}
    assert inject(started)["spec"]["runtimePatches"][0] == user_patch


def test_trainjob_restore_empties_the_own_runtime_patch() -> None:
    trained = job(runtimePatches=[{"manager": MANAGER}])
    started = inject(trained)
    [pod_set] = TRAIN_JOB.list_pod_sets(started, NAMES)
    assert TRAIN_JOB.templates.with_template(started, pod_set, template(trained), NAMES) == trained


def test_trainjob_start_writes_patch_before_it_unsuspends() -> None:
    trained = job(suspend=True, runtimePatches=[{"manager": MANAGER}])
    started = TRAIN_JOB.with_suspend(inject(trained), False)
    first, second = TRAIN_JOB.lifecycle.plan_start(trained, started, NAMES)
    assert set(first.patch["spec"]) == {"runtimePatches"}
    assert second.patch == {"spec": {"suspend": False}}
    assert [step.patch for step in TRAIN_JOB.lifecycle.plan_start(inject(trained), started, NAMES)] == [
        second.patch
    ]


def test_trainjob_stop_suspends_then_waits_then_empties_own_patch() -> None:
    active = {"jobsStatus": [{"name": "node", "active": 1}]}
    running = {**inject(job(suspend=False, runtimePatches=[{"manager": MANAGER}])), "status": active}
    [step] = TRAIN_JOB.lifecycle.plan_stop(running, running, NAMES)
    assert step.patch == {"spec": {"suspend": True}, "metadata": {"annotations": {NAMES.stopping: "true"}}}
    stopping = with_value(running, ("metadata", "annotations"), {NAMES.stopping: "true"})
    stopping = with_value(stopping, ("spec", "suspend"), True)
    assert not TRAIN_JOB.is_suspended(stopping, NAMES)
    assert TRAIN_JOB.lifecycle.plan_stop(stopping, stopping, NAMES) == ()
    [last] = TRAIN_JOB.lifecycle.plan_stop({**stopping, "status": {}}, stopping, NAMES)
    assert last.patch == {
        "spec": {"runtimePatches": [{"manager": MANAGER}]},
        "metadata": {"annotations": {NAMES.stopping: None}},
    }


def test_trainjob_stop_works_without_runtime() -> None:
    running = inject(job(suspend=False, runtimePatches=[{"manager": MANAGER}]))
    without_runtime = {key: value for key, value in running.items() if key in {"metadata", "spec", "status"}}
    assert TRAIN_JOB.list_pod_sets(without_runtime, NAMES) == []
    steps = TRAIN_JOB.lifecycle.plan_stop(without_runtime, without_runtime, NAMES)
    assert steps[-1].patch["spec"] == {"runtimePatches": [{"manager": MANAGER}]}


def test_trainjob_mutation_appends_own_runtime_patch_once() -> None:
    user_patch = {"manager": "example.com/me"}
    mutated = TRAIN_JOB.webhook.mutate_every_object({"spec": {"runtimePatches": [user_patch]}}, RULES)
    assert mutated == {"spec": {"runtimePatches": [user_patch, {"manager": MANAGER}]}}
    assert TRAIN_JOB.webhook.mutate_every_object(mutated, RULES) == mutated
    assert TRAIN_JOB.webhook.mutate_every_object({"spec": {}}, RULES) == {
        "spec": {"runtimePatches": [{"manager": MANAGER}]}
    }


@pytest.mark.parametrize(("labels", "is_suspended"), [({}, False), ({NAMES.queue_name: "q"}, True)])
async def test_new_trainjob_gets_own_runtime_patch_queued_or_not(
    labels: dict[str, str], is_suspended: bool
) -> None:
    given = job()
    given["metadata"] = {**given["metadata"], "labels": labels}
    settings = policy(integrations=(TRAIN_JOB,))
    changed = await mutate_job(given, "team", TRAIN_JOB, settings, FakeLookups())
    assert changed["spec"]["runtimePatches"] == [{"manager": MANAGER}]
    assert (value_at(changed, ("spec", "suspend")) is True) is is_suspended


async def test_trainjob_of_queued_owner_gets_own_runtime_patch_and_is_not_suspended() -> None:
    kind = {"apiVersion": "example.com/v1", "kind": "Group"}
    owner = {**kind, "metadata": {"name": "g", "uid": "u", "labels": {NAMES.queue_name: "q"}}}
    reference = {**kind, "name": "g", "uid": "u", "controller": True}
    labels = {NAMES.queue_name: "q"}
    given = job(metadata={"labels": labels, "ownerReferences": [reference]})
    settings = policy(
        integrations=(TRAIN_JOB,), external_frameworks=(OwnerKind("example.com", "v1", "Group"),)
    )
    lookups = FakeLookups(objects={"g": owner})
    changed = await mutate_job(given, "team", TRAIN_JOB, settings, lookups, None, OPERATOR)
    assert changed["spec"] == {**given["spec"], "runtimePatches": [{"manager": MANAGER}]}


@pytest.mark.parametrize(("is_managed", "count"), [(False, 16), (True, 17)])
def test_unmanaged_trainjob_gets_no_runtime_patch_beyond_the_limit(is_managed: bool, count: int) -> None:
    full = {"spec": {"runtimePatches": [{"manager": f"example.com/{index}"} for index in range(16)]}}
    mutated = TRAIN_JOB.webhook.mutate_every_object(full, replace(RULES, is_managed=is_managed))
    assert len(mutated["spec"]["runtimePatches"]) == count


# --- status ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "outcome"),
    [
        ([], None),
        ([{"type": "Suspended", "status": "True"}], None),
        ([{"type": "Complete", "status": "True", "message": "done"}], JobOutcome(True, "done")),
        ([{"type": "Failed", "status": "True", "message": "no"}], JobOutcome(False, "no")),
        ([{"type": "Failed", "status": "False"}], None),
    ],
)  # fmt: skip
def test_trainjob_outcome_follows_only_terminal_conditions(conditions: Any, outcome: Any) -> None:
    assert TRAIN_JOB.find_outcome(job(status={"conditions": conditions})) == outcome


INITIALIZER_AND_NODES = runtime(
    entry("model-initializer", "model-initializer"), entry(), policy={"numNodes": 4}
)


@pytest.mark.parametrize(
    ("statuses", "active", "ready", "reclaimable"),
    [
        ([], False, False, None),
        ([{"name": "node", "active": 1}], True, False, None),
        ([{"name": "model-initializer", "active": 1, "ready": 1}], True, False, None),
        (
            [{"name": "model-initializer", "succeeded": 1}, {"name": "node", "active": 1, "ready": 1}],
            True,
            True,
            {"model-initializer": 1},
        ),
        (
            [{"name": "model-initializer", "succeeded": 1}, {"name": "node", "succeeded": 1}],
            False,
            True,
            {"model-initializer": 1, "node": 4},
        ),
        ([{"name": "node", "failed": 1}], False, False, None),
    ],
)
def test_trainjob_state_follows_status_of_its_jobs(
    statuses: Any, active: bool, ready: bool, reclaimable: Any
) -> None:
    trained = job(INITIALIZER_AND_NODES, status={"jobsStatus": statuses})
    assert TRAIN_JOB.is_active(trained) is active
    assert TRAIN_JOB.are_pods_ready(trained) is ready
    assert TRAIN_JOB.scaling.count_reclaimable_pods(trained) == reclaimable


def test_trainjob_with_a_jobset_that_can_restart_has_no_reclaimable_pods() -> None:
    status = {"jobsStatus": [{"name": "model-initializer", "succeeded": 1}, {"name": "node", "active": 1}]}
    restartable = with_value(
        INITIALIZER_AND_NODES, ("spec", "template", "spec", "failurePolicy"), {"maxRestarts": 1}
    )
    assert TRAIN_JOB.scaling.count_reclaimable_pods(job(INITIALIZER_AND_NODES, status=status))
    assert TRAIN_JOB.scaling.count_reclaimable_pods(job(restartable, status=status)) is None


def test_trainjob_readiness_without_runtime_follows_reported_jobs() -> None:
    status = {"jobsStatus": [{"name": "node", "ready": 1}, {"name": "other", "active": 1}]}
    assert not TRAIN_JOB.are_pods_ready({"status": status})
    assert TRAIN_JOB.are_pods_ready({"status": {"jobsStatus": status["jobsStatus"][:1]}})
    assert not TRAIN_JOB.are_pods_ready({})
