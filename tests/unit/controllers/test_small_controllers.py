"""Protection of objects in use, changes of priority classes, the Workload controller, and settings."""

from typing import Any

import pytest

from admitq.controllers.in_use_protection import InUseProtectionController
from admitq.controllers.priority_classes import PriorityClassController
from admitq.controllers.settings import settings_of
from admitq.controllers.workload.controller import WorkloadController
from admitq.integrations.kinds.job import JOB
from admitq.runtime.errors import ApiError
from admitq.runtime.store import Key
from admitq.workloads.host_failures import NodeFailureSettings
from admitq.workloads.template_injection import InjectedMarks
from admitq.workloads.topology_annotations import TopologyRules
from admitq_api.conditions import SECOND
from admitq_api.configuration import Configuration, load_configuration
from admitq_api.feature_gates import FeatureGates, parse_gate
from tests.unit.controllers.builders import (
    FINISHED,
    KINDS,
    NAMES,
    admitted,
    cluster_queue,
    condition,
    condition_of,
    instant,
    local_queue,
    settings_with,
    timestamp,
    workload,
)
from tests.unit.controllers.world import World, cluster_scoped

READY = condition("PodsReady", True, "Started")

DELETED = {"deletionTimestamp": timestamp(0), "finalizers": [NAMES.finalizer]}
CLASS = {"kind": "WorkloadPriorityClass", "name": "high"}


@pytest.mark.parametrize(
    ("metadata", "in_use", "calls"),
    [
        ({}, False, ["patch resourceflavors/f"]),
        ({"finalizers": [NAMES.finalizer]}, False, []),
        (DELETED, True, []),
        (DELETED, False, ["json_patch resourceflavors/f"]),
        ({"deletionTimestamp": timestamp(0), "finalizers": ["a.example/x"]}, False, []),
    ],
)
async def test_object_in_use_keeps_finalizer(metadata: object, in_use: bool, calls: list[str]) -> None:
    world = World()
    world.put(KINDS.resource_flavors, cluster_scoped("f", metadata=metadata))
    controller = InUseProtectionController(world.ctx, KINDS.resource_flavors, lambda _: in_use)
    await controller.reconcile(Key("", "f"))
    await controller.reconcile(Key("", "gone"))
    assert world.calls == calls


def unfinished(name: str, priority: int, reference: object = None) -> dict[str, object]:
    spec = {"priority": priority, "priorityClassRef": reference or CLASS}
    return workload(name=name, metadata={"uid": f"uid-{name}"}, spec=spec)


async def test_changed_priority_class_updates_its_unfinished_workloads() -> None:
    world = World()
    world.put(KINDS.workload_priority_classes, cluster_scoped("high", value=9))
    world.put(KINDS.workloads, unfinished("old", 1), unfinished("same", 9))
    world.put(KINDS.workloads, unfinished("other", 1, {"kind": "PriorityClass", "name": "high"}))
    ended = workload(FINISHED, name="ended", metadata={"uid": "e"}, spec={"priorityClassRef": CLASS})
    world.put(KINDS.workloads, ended)
    await PriorityClassController(world.ctx).reconcile(Key("", "high"))
    assert world.calls == ["patch workloads/old"]
    assert world.get(KINDS.workloads, "old")["spec"]["priority"] == 9
    await PriorityClassController(world.ctx).reconcile(Key("", "gone"))


async def test_new_workload_with_old_value_of_its_priority_class_is_updated() -> None:
    world = World()
    world.put(KINDS.workload_priority_classes, cluster_scoped("high", value=9))
    world.put(KINDS.workloads, unfinished("late", 1), unfinished("other", 1))
    controller = PriorityClassController(world.ctx)
    await controller.reconcile(Key("ns", "late"))
    await controller.reconcile(Key("ns", "gone"))
    assert world.calls == ["patch workloads/late"]
    assert world.get(KINDS.workloads, "late")["spec"]["priority"] == 9


async def test_failed_update_of_workload_does_not_prevent_other_updates() -> None:
    world = World()
    world.put(KINDS.workload_priority_classes, cluster_scoped("high", value=9))
    world.put(KINDS.workloads, unfinished("a", 1), unfinished("b", 1))
    world.client.fails["patch"] = ApiError(422, "Invalid", "no")
    with pytest.raises(ApiError):
        await PriorityClassController(world.ctx).reconcile(Key("", "high"))
    assert world.calls == ["patch workloads/a", "patch workloads/b"]


async def test_workload_reports_missing_local_queue_once() -> None:
    world = World()
    world.put(KINDS.workloads, workload())
    controller = WorkloadController(world.ctx, world.core)
    await controller.reconcile(Key("ns", "job-j-1"))
    quota = condition_of(world.get(KINDS.workloads, "job-j-1"), "QuotaReserved")
    assert quota == ("False", "Misconfigured", "LocalQueue lq doesn't exist")
    assert await controller.reconcile(Key("ns", "job-j-1")) is None
    assert await controller.reconcile(Key("ns", "gone")) is None
    assert len(world.calls) == 1


@pytest.mark.parametrize(
    ("quarantined", "message"),
    [("cluster_queues", "ClusterQueue cq is inactive"), ("local_queues", "LocalQueue lq is inactive")],
)
async def test_pending_workload_is_suspended_while_its_queue_is_quarantined(
    quarantined: str, message: str
) -> None:
    world = World()
    world.put(KINDS.workloads, workload())
    queues = {"cluster_queues": cluster_queue(), "local_queues": local_queue()}
    for kind, queue in queues.items():
        inactive = [condition("Active", False, "Unknown", "spec.field: must be a list")]
        metadata = {**queue["metadata"], "uid": f"uid-{kind}", "resourceVersion": "1"}
        status = {"conditions": inactive if kind == quarantined else []}
        world.put(getattr(KINDS, kind), {**queue, "metadata": metadata, "status": status})
    await WorkloadController(world.ctx, world.core).reconcile(Key("ns", "job-j-1"))
    quota = condition_of(world.get(KINDS.workloads, "job-j-1"), "QuotaReserved")
    assert quota == ("False", "Suspended", message)


async def test_a3_execution_that_ended_is_added_up_after_the_next_reservation() -> None:
    world = World()
    world.put(KINDS.local_queues, local_queue())
    world.put(KINDS.cluster_queues, cluster_queue())
    controller = WorkloadController(world.ctx, world.core)
    versions = (
        admitted(READY, since=10),
        workload(condition("Admitted", False, "NoReservation", since=40)),
        admitted(READY, since=41),
    )
    for number, version in enumerate(versions):
        metadata = {**version["metadata"], "resourceVersion": str(number + 1)}
        world.put(KINDS.workloads, {**version, "metadata": metadata})
    await controller.reconcile(Key("ns", "job-j-1"))
    await controller.reconcile(Key("ns", "job-j-1"))
    status = world.get(KINDS.workloads, "job-j-1")["status"]
    assert status["accumulatedPastExecutionTimeSeconds"] == 30


async def test_new_leader_reconciles_again_before_it_evicts_for_pods_ready_timeout() -> None:
    world = World()
    world.put(KINDS.workloads, admitted(condition("PodsReady", False, "WaitForStart")))
    world.put(KINDS.local_queues, local_queue())
    world.put(KINDS.cluster_queues, cluster_queue())
    controller = WorkloadController(world.ctx, world.core)
    world.now = instant(1000)
    assert await controller.reconcile(Key("ns", "job-j-1")) == 30.0
    assert world.calls == []


def test_settings_are_read_from_configuration() -> None:
    configuration = load_configuration(
        f"""
apiVersion: {NAMES.config_api_version}
kind: Configuration
manageJobsWithoutQueueName: true
integrations: {{frameworks: [batch/job], labelKeysToCopy: [team]}}
waitForPodsReady:
  timeout: 5m
  requeuingStrategy: {{backoffLimitCount: 3, backoffBaseSeconds: 10, backoffMaxSeconds: 100}}
objectRetentionPolicies: {{workloads: {{afterFinished: 1h, afterDeactivatedByKueue: 0s}}}}
controller: {{groupKindConcurrency: {{Job.batch: 4}}}}
failureRecovery: {{forceDeleteAfter: 250ms}}
"""
    )
    settings = settings_of(configuration, FeatureGates(), [JOB])
    assert settings.without_queue_name is True
    assert settings.conventions.label_keys_to_copy == ("team",)
    assert settings.pods_ready is not None
    assert settings.pods_ready.timeout == settings.pods_ready.recovery_timeout == 300 * SECOND
    assert settings.pods_ready.backoff_limit == 3
    assert [settings.pods_ready.backoff_seconds(count) for count in (1, 2, 5)] == [10, 20, 100]
    assert settings.retention.after_finished == 3600 * SECOND
    assert settings.retention.after_deactivated == 0
    assert settings.concurrency == {"Job.batch": 4}
    assert settings.conventions.longest_workload_name == 253
    assert settings.force_delete_after is None
    gates = FeatureGates.parse("FailureRecoveryPolicy=true")
    assert settings_of(configuration, gates, [JOB]).force_delete_after == SECOND // 4


@pytest.mark.parametrize("is_on", [True, False])
def test_b10_metric_values_are_copied_from_jobs_behind_the_gate(is_on: bool) -> None:
    configuration = load_configuration(
        f"""
apiVersion: {NAMES.config_api_version}
kind: Configuration
metrics:
  customLabels:
    - {{name: tier}}
    - {{name: size, sourceKind: Workload, trackedValues: [large]}}
    - {{name: cost, sourceKind: Workload, sourceAnnotationKey: a.example/cost, trackedValues: [c7]}}
"""
    )
    gates = FeatureGates.parse(f"CustomMetricLabels={str(is_on).lower()}")
    copied = settings_of(configuration, gates, [JOB]).conventions.metric_values_to_copy
    assert copied == ((("labels", "size"), ("annotations", "a.example/cost")) if is_on else ())


@pytest.mark.parametrize(
    ("gate", "changed"),
    [
        ("AdmissionGatedBy", {"admission_gates": False}),
        ("AssignQueueLabelsForPods", {"marks": InjectedMarks(queue_labels=False)}),
        ("CleanupProvisioningRequestsOnEviction", {"clean_up_provisioning_requests": False}),
        ("DeferRayServiceFinalizationForRedisCleanup", {"defer_cleanup": False}),
        ("DisableWaitForPodsReady", {"pods_ready": None}),
        (
            "ElasticJobsViaWorkloadSlices",
            {"elastic_jobs": False, "topology_rules": TopologyRules(has_elastic_jobs=False)},
        ),
        ("FastQuotaReleaseInPodIntegration", {"fast_quota_release": True}),
        ("FinishOrphanedWorkloads", {"finish_orphaned": False}),
        ("MetricForWorkloadCreationLatency", {"creation_latency": False}),
        ("PartialAdmission", {"partial_admission": False}),
        ("PodIntegrationValidateGroupOwner", {"validate_group_owner": False}),
        ("ReclaimablePods", {"reclaimable_pods": False}),
        ("RemoveFinalizersWithStrictPatch", {"strict_finalizers": False}),
        ("ShortWorkloadNames", {"longest_workload_name": 63}),
        ("SkipReassignmentForPodOwnedWorkloads", {"skip_reassignment": False}),
        ("TASMultiLayerTopology", {"topology_rules": TopologyRules(has_layers=False)}),
        ("TASFailedNodeReplacement", {"node_failures": None}),
        (
            "TASReplaceNodeDueToNotReadyOverFixedTime",
            {"node_failures": NodeFailureSettings(after_fixed_time=True)},
        ),
        ("TASReplaceNodeOnNodeTaints", {"node_failures": NodeFailureSettings(on_taints=False)}),
        ("TASReplaceNodeOnPodTermination", {"node_failures": NodeFailureSettings(on_pod_termination=False)}),
        (
            "TopologyAwareScheduling",
            {
                "marks": InjectedMarks(workload_annotation=False, topology=False),
                "topology_rules": None,
                "node_failures": None,
            },
        ),
        ("UnadmittedWorkloadsExplicitStatus", {"explicit_pending": True}),
        ("UnadmittedWorkloadsObservability", {"detailed_reasons": False}),
        ("WorkloadIdentifierAnnotations", {"names_by_annotation": False}),
    ],
)
def test_feature_gate_changes_only_its_own_settings(gate: str, changed: Any) -> None:
    by_default = FeatureGates()
    switched = FeatureGates({parse_gate(gate): not by_default[parse_gate(gate)]})
    settings = settings_of(Configuration(), by_default, [JOB])
    assert settings_of(Configuration(), switched, [JOB]) == settings_with(settings, **changed) != settings
