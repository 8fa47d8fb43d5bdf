from typing import Any

import pytest

from admitq.integrations.base import JobOutcome, RuleContext
from admitq.integrations.kinds.sparkapplication import SPARK_APPLICATION
from admitq.workloads.template_injection import PodSetInfo, inject_into_template, restore_template
from admitq_api.feature_gates import FeatureGates, Gate
from admitq_api.labels import names_for

NAMES = names_for()


def app(driver: Any = None, executor: Any = None, status: Any = None, **spec: Any) -> Any:
    return {
        "metadata": {"name": "s"},
        "spec": {
            "type": "Scala",
            "sparkVersion": "3.5.1",
            "driver": driver or {},
            "executor": executor or {},
            **spec,
        },
        "status": status or {},
    }


def template(job: Any, role: str) -> Any:
    pod_sets = SPARK_APPLICATION.list_pod_sets(job, NAMES)
    return {pod_set.name: pod_set.get_template(job) for pod_set in pod_sets}[role]


def resources(job: Any, role: str) -> Any:
    return template(job, role)["spec"]["containers"][0]["resources"]


@pytest.mark.parametrize(
    ("executor", "spec", "count"),
    [
        ({"instances": 3}, {}, 3),
        ({}, {}, 1),
        ({}, {"sparkConf": {"spark.executor.instances": "4"}}, 4),
        ({"instances": 3}, {"sparkConf": {"spark.executor.instances": "4"}}, 3),
        ({"instances": 3}, {"dynamicAllocation": {"enabled": True, "minExecutors": 5}}, 5),
        ({"instances": 3}, {"dynamicAllocation": {"enabled": True, "initialExecutors": 2}}, 3),
        ({}, {"dynamicAllocation": {"enabled": True, "initialExecutors": 2, "maxExecutors": 9}}, 2),
        ({}, {"dynamicAllocation": {"enabled": True}}, 0),
        ({"instances": 3}, {"dynamicAllocation": {"enabled": False, "minExecutors": 5}}, 3),
    ],
)
def test_spark_podsets_are_driver_and_initial_executors(executor: Any, spec: Any, count: Any) -> None:
    pod_sets = SPARK_APPLICATION.list_pod_sets(app(executor=executor, **spec), NAMES)
    assert [(pod_set.name, pod_set.count) for pod_set in pod_sets] == [("driver", 1), ("executor", count)]


PYTHON: dict[str, Any] = {"type": "Python"}


@pytest.mark.parametrize(
    ("role", "fields", "spec", "memory"),
    [
        ("driver", {}, {}, 1024 + 384),
        ("driver", {"memory": "512m"}, {}, 512 + 384),
        ("driver", {"memory": "10g"}, {}, 10240 + 1024),
        ("driver", {"memory": "10g"}, PYTHON, 10240 + 4096),
        ("driver", {"memory": "10g"}, {"type": "R"}, 10240 + 4096),
        ("driver", {"memory": "10g"}, {"type": "Java", "memoryOverheadFactor": "0.25"}, 10240 + 2560),
        ("driver", {"memory": "10g", "memoryOverhead": "100m"}, {"memoryOverheadFactor": "0.5"}, 10240 + 100),
        ("driver", {"memory": "10g", "memoryOverhead": "100"}, {}, 10240 + 100),
        ("driver", {"memory": "2048"}, {}, 2048 + 384),
        ("driver", {"memory": "2G"}, {}, 2048 + 384),
        ("driver", {"memory": "1500k"}, {}, 1 + 384),
        ("driver", {"memory": "1tb"}, {}, 2**20 + 104857),
        ("driver", {"memory": "2Gi"}, {}, 2048 + 384),
        ("driver", {"memory": "lots"}, {}, 1024 + 384),
        ("driver", {"memory": "9" * 5000}, {}, 1024 + 384),
        ("driver", {"memory": "10g"}, {"memoryOverheadFactor": "much"}, 10240 + 1024),
        ("driver", {"memory": "10g"}, {"memoryOverheadFactor": "nan"}, 10240 + 1024),
        ("driver", {"memory": "10g"}, {"type": ["Java"]}, 10240 + 4096),
        ("driver", {}, {"sparkConf": {"spark.driver.memory": "3g"}}, 3072 + 384),
        ("driver", {"memory": "2g"}, {"sparkConf": {"spark.driver.memory": "3g"}}, 2048 + 384),
        ("driver", {}, {"sparkConf": {"spark.driver.memoryOverhead": "1g"}}, 1024 + 1024),
        ("driver", {}, {"sparkConf": {"spark.driver.minMemoryOverhead": "500m"}}, 1024 + 500),
        (
            "driver",
            {"memory": "10g"},
            {"sparkConf": {"spark.driver.memoryOverheadFactor": "0.2"}},
            10240 + 2048,
        ),
        (
            "driver",
            {"memory": "10g"},
            {"memoryOverheadFactor": "0.5", "sparkConf": {"spark.kubernetes.memoryOverheadFactor": "0.2"}},
            10240 + 2048,
        ),
        (
            "driver",
            {},
            {"sparkConf": {"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "1g"}},
            1024 + 384,
        ),
        (
            "executor",
            {},
            {"sparkConf": {"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "1g"}},
            1024 + 384 + 1024,
        ),
        (
            "executor",
            {},
            {"sparkConf": {"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "1048576"}},
            1024 + 384 + 1,
        ),
        ("executor", {}, {"sparkConf": {"spark.memory.offHeap.size": "1g"}}, 1024 + 384),
        ("executor", {}, {**PYTHON, "sparkConf": {"spark.executor.pyspark.memory": "100"}}, 1024 + 409 + 100),
        ("executor", {}, {"sparkConf": {"spark.executor.pyspark.memory": "100"}}, 1024 + 384),
        ("executor", {"memory": "4g"}, {"sparkConf": {"spark.driver.memory": "9g"}}, 4096 + 409),
    ],
)
def test_spark_memory_is_heap_plus_overhead(role: Any, fields: Any, spec: Any, memory: Any) -> None:
    actual = resources(app(**{role: fields}, **spec), role)
    assert actual["requests"]["memory"] == f"{memory}Mi"
    assert actual["limits"]["memory"] == f"{memory}Mi"


@pytest.mark.parametrize(
    ("fields", "conf", "cpu", "limit"),
    [
        ({}, {}, "1", None),
        ({"cores": 3}, {}, "3", None),
        ({"cores": 3, "coreRequest": "500m"}, {}, "500m", None),
        ({"cores": 3, "coreLimit": "4"}, {}, "3", "4"),
        ({"coreLimit": "1200m"}, {}, "1", "1200m"),
        ({"coreRequest": "much", "cores": 2}, {}, "2", None),
        ({"coreLimit": "much"}, {}, "1", None),
        ({}, {"spark.executor.cores": "5"}, "5", None),
        ({"cores": 2}, {"spark.executor.cores": "5"}, "2", None),
        ({"cores": 2}, {"spark.kubernetes.executor.request.cores": "1.5"}, "1.5", None),
        ({"cores": 2}, {"spark.kubernetes.executor.limit.cores": "3"}, "2", "3"),
    ],
)
def test_spark_cpu_is_core_request_or_cores(fields: Any, conf: Any, cpu: Any, limit: Any) -> None:
    actual = resources(app(executor=fields, sparkConf=conf), "executor")
    assert (actual["requests"]["cpu"], actual["limits"].get("cpu")) == (cpu, limit)


@pytest.mark.parametrize(
    ("fields", "conf", "devices"),
    [
        ({"gpu": {"name": "example.com/gpu", "quantity": 2}}, {}, {"example.com/gpu": "2"}),
        ({"gpu": {"name": "example.com/gpu", "quantity": 0}}, {}, {}),
        ({"gpu": {"name": "", "quantity": 1}}, {}, {}),
        (
            {},
            {"spark.driver.resource.gpu.amount": "2", "spark.driver.resource.gpu.vendor": "example.com"},
            {"example.com/gpu": "2"},
        ),
        ({}, {"spark.driver.resource.gpu.amount": "2"}, {}),
        ({}, {"spark.executor.resource.gpu.amount": "2", "spark.executor.resource.gpu.vendor": "a.b"}, {}),
    ],
)
def test_spark_devices_are_in_requests_and_limits(fields: Any, conf: Any, devices: Any) -> None:
    actual = resources(app(driver=fields, sparkConf=conf), "driver")
    for part in ("requests", "limits"):
        assert {key: value for key, value in actual[part].items() if "/" in key} == devices


def test_spark_memory_limit_does_not_change_request() -> None:
    actual = resources(app(driver={"memory": "1g", "memoryLimit": "4g"}), "driver")
    assert (actual["requests"]["memory"], actual["limits"]["memory"]) == ("1408Mi", "4096Mi")


SIDECAR = {"name": "side", "image": "example.com/side:1"}
DRIVER_TEMPLATE = {
    "metadata": {"labels": {"a": "template", "b": "template"}, "annotations": {"n": "1"}},
    "spec": {
        "containers": [
            SIDECAR,
            {
                "name": "spark-kubernetes-driver",
                "resources": {"requests": {"cpu": "9", "example.com/x": "1"}},
            },
        ],
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "template"}],
        "runtimeClassName": "gvisor",
    },
}


def test_spark_role_fields_are_merged_into_its_template() -> None:
    driver = {
        "template": DRIVER_TEMPLATE,
        "labels": {"a": "field"},
        "tolerations": [{"key": "field"}],
        "nodeSelector": {"zone": "z"},
        "sidecars": [SIDECAR, {"name": "log"}],
        "initContainers": [{"name": "first"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "image": "example.com/driver:1",
    }
    merged = template(app(driver=driver, image="example.com/spark:1"), "driver")
    assert merged["metadata"] == {"labels": {"a": "field", "b": "template"}, "annotations": {"n": "1"}}
    side, spark, log = merged["spec"].pop("containers")
    assert (side, log) == (SIDECAR, {"name": "log"})
    assert (spark["name"], spark["image"]) == ("spark-kubernetes-driver", "example.com/driver:1")
    assert spark["resources"]["requests"] == {"cpu": "1", "memory": "1408Mi", "example.com/x": "1"}
    assert merged["spec"] == {
        "runtimeClassName": "gvisor",
        "nodeSelector": {"disk": "fast", "zone": "z"},
        "tolerations": [{"key": "template"}, {"key": "field"}],
        "initContainers": [{"name": "first"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
    }


def test_spark_role_without_template_has_default_container() -> None:
    job = app(image="example.com/spark:1")
    for role, name in (("driver", "spark-kubernetes-driver"), ("executor", "spark-kubernetes-executor")):
        [container] = template(job, role)["spec"]["containers"]
        assert (container["name"], container["image"]) == (name, "example.com/spark:1")


POD_SET_INFO = PodSetInfo(
    "",
    1,
    node_selector={"pool": "spot"},
    tolerations=({"key": "spot", "operator": "Exists"},),
    labels={"own": "l"},
    annotations={"own": "a"},
)


def inject(job: Any, given: PodSetInfo = POD_SET_INFO) -> Any:
    for pod_set in SPARK_APPLICATION.list_pod_sets(job, NAMES):
        job = SPARK_APPLICATION.templates.with_template(
            job, pod_set, inject_into_template(pod_set.get_template(job), given), NAMES
        )
    return job


def test_spark_injection_writes_fields_of_each_role() -> None:
    running = inject(app(driver={"labels": {"team": "a"}}))
    added = {
        "annotations": {"own": "a"},
        "nodeSelector": {"pool": "spot"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
    }
    assert running["spec"]["driver"] == {"labels": {"team": "a", "own": "l"}, **added}
    assert running["spec"]["executor"] == {"labels": {"own": "l"}, **added}


def test_spark_injection_with_common_node_selector_writes_spark_conf() -> None:
    running = inject(app(nodeSelector={"disk": "fast"}, sparkConf={"spark.ui.port": "1"}))
    assert running["spec"]["nodeSelector"] == {"disk": "fast"}
    assert "nodeSelector" not in running["spec"]["driver"]
    assert running["spec"]["sparkConf"] == {
        "spark.ui.port": "1",
        "spark.kubernetes.driver.node.selector.pool": "spot",
        "spark.kubernetes.executor.node.selector.pool": "spot",
    }
    assert template(running, "executor")["spec"]["nodeSelector"] == {"disk": "fast", "pool": "spot"}


def test_spark_injection_of_gates_creates_template_that_restore_removes() -> None:
    job = app()
    running = inject(job, PodSetInfo("", 1, scheduling_gates=("gate",)))
    assert running["spec"]["executor"]["template"] == {
        "spec": {"containers": [{"name": "spark-kubernetes-executor"}], "schedulingGates": [{"name": "gate"}]}
    }
    for pod_set in SPARK_APPLICATION.list_pod_sets(running, NAMES):
        restored = restore_template(pod_set.get_template(running), template(job, pod_set.name))
        running = SPARK_APPLICATION.templates.with_template(running, pod_set, restored, NAMES)
    assert running == job


def state(name: str, **fields: Any) -> dict[str, Any]:
    return {"applicationState": {"state": name, "errorMessage": fields.pop("message", "")}, **fields}


RETRIES = {"restartPolicy": {"type": "OnFailure", "onSubmissionFailureRetries": 2}}


@pytest.mark.parametrize(
    ("status", "spec", "outcome", "active"),
    [
        ({}, {}, None, False),
        (state(""), {}, None, False),
        (state("SUBMITTED"), {}, None, True),
        (state("RUNNING"), {}, None, True),
        (state("SUCCEEDING"), {}, None, True),
        (state("FAILING"), {}, None, True),
        (state("PENDING_RERUN"), {}, None, True),
        (state("INVALIDATING"), {}, None, True),
        (state("SUSPENDING"), {}, None, True),
        (state("SUSPENDED"), {}, None, False),
        (state("RESUMING"), {}, None, True),
        (state("UNKNOWN"), {}, None, True),
        (state("COMPLETED"), {}, JobOutcome(True, "SparkApplication completed"), False),
        (state("FAILED"), {}, JobOutcome(False, "SparkApplication failed"), False),
        (state("FAILED", message="no"), {}, JobOutcome(False, "no"), False),
        (state("SUBMISSION_FAILED", message="no"), {}, JobOutcome(False, "no"), False),
        (state("SUBMISSION_FAILED", submissionAttempts=2), RETRIES, None, False),
        (
            state("SUBMISSION_FAILED", submissionAttempts=3, message="no"),
            RETRIES,
            JobOutcome(False, "no"),
            False,
        ),
        (state("SUBMISSION_FAILED"), {"restartPolicy": {"type": "Always"}}, None, False),
    ],
)
def test_spark_outcome_and_activity_follow_application_state(
    status: Any, spec: Any, outcome: Any, active: Any
) -> None:
    job = app(status=status, **spec)
    assert SPARK_APPLICATION.find_outcome(job) == outcome
    assert SPARK_APPLICATION.is_active(job) is active


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        (state("RUNNING"), False),
        (state("RUNNING", executorState={"e1": "RUNNING", "e2": "PENDING"}), False),
        (state("RUNNING", executorState={"e1": "RUNNING", "e2": "COMPLETED"}), True),
        (state("RUNNING", executorState={"e1": "RUNNING", "e2": "FAILED", "e3": "RUNNING"}), True),
        (state("SUBMITTED", executorState={"e1": "RUNNING", "e2": "RUNNING"}), False),
    ],
)
def test_spark_application_is_ready_when_driver_and_enough_executors_run(status: Any, ready: Any) -> None:
    assert SPARK_APPLICATION.are_pods_ready(app(executor={"instances": 2}, status=status)) is ready


CONF = {"spark.dynamicAllocation.enabled": "true"}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, None),
        ({"mode": "cluster"}, None),
        ({"mode": "client"}, "spec.mode: Unsupported value"),
        ({"dynamicAllocation": {"enabled": True}}, "spec.dynamicAllocation.enabled: Forbidden"),
        ({"dynamicAllocation": {"enabled": False}}, None),
        ({"sparkConf": CONF}, "spec.sparkConf[spark.dynamicAllocation.enabled]: Forbidden"),
        ({"nodeSelector": {"a": "b"}}, None),
        ({"nodeSelector": {"a": "b"}, "sparkVersion": "3.2.4"}, "spec.nodeSelector: Forbidden"),
        ({"nodeSelector": {}, "sparkVersion": "four"}, "spec.nodeSelector: Forbidden"),
        ({"sparkVersion": "3.2.4"}, None),
        ({"sparkVersion": "4.0.0-preview1", "nodeSelector": {"a": "b"}}, None),
    ],
)
def test_unsupported_spark_spec_is_rejected_if_managed(spec: Any, field: Any) -> None:
    errors = SPARK_APPLICATION.webhook.validate_create(app(**spec), RuleContext(NAMES))
    assert [str(error).startswith(field) for error in errors] == ([] if field is None else [True])
    assert SPARK_APPLICATION.webhook.validate_create(app(**spec), RuleContext(NAMES, is_managed=False)) == []


@pytest.mark.parametrize(
    ("was_queued", "is_managed", "gate", "validated"),
    [
        (False, False, True, False),
        (False, True, True, True),
        (True, False, True, True),
        (True, False, False, False),
        (True, True, False, True),
    ],
)
def test_d23_spark_update_is_validated_if_managed_or_previously_queued_with_the_gate(
    was_queued: Any, is_managed: Any, gate: Any, validated: Any
) -> None:
    old, new = app(), app(mode="client")
    if was_queued:
        old["metadata"]["labels"] = {NAMES.queue_name: "q"}
    gates = FeatureGates({Gate.VALIDATE_RAY_AND_SPARK_JOB_UPDATES: gate})
    rules = RuleContext(NAMES, gates, is_managed=is_managed)
    assert SPARK_APPLICATION.webhook.should_validate_update(old, rules) is validated
    assert SPARK_APPLICATION.webhook.validate_update(old, new, rules)


@pytest.mark.parametrize(
    ("spec", "name", "is_child"),
    [
        ({}, "s-driver", True),
        ({}, "forged", False),
        ({}, None, False),
        ({"sparkConf": {"spark.kubernetes.driver.pod.name": "own"}}, "own", True),
        ({"sparkConf": {"spark.kubernetes.driver.pod.name": "own"}}, "s-driver", False),
        ({"driver": {"podName": "mine"}}, "mine", True),
    ],
)
def test_spark_application_creates_only_its_driver(spec: Any, name: Any, is_child: Any) -> None:
    assert SPARK_APPLICATION.may_have_created(app(**spec), {"metadata": {"name": name}}) is is_child
