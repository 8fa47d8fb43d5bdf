"""Every feature gate in effect has a test with the gate enabled and a test with the gate disabled."""

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from admitq_api.feature_gates import IN_EFFECT, Gate

TESTS: Final = Path(__file__).parents[2]


class Shown(NamedTuple):
    """Tests of a gate. Each value is a path below tests/, and the name of a test or title of a scenario."""

    on: str
    off: str


def _both(place: str) -> Shown:
    """Return one test that covers the enabled and the disabled gate."""
    return Shown(place, place)


_NODE_FAILURES: Final = "unit/controllers/pods/test_failed_nodes.py: test_unhealthy_nodes_and_waiting_pods"
_SWITCHED_OFF: Final = "unit/webhooks/test_workloads.py: test_disabled_gate_disables_its_validation_rule"

SHOWN: Final = {
    Gate.ADMISSION_FAIR_SHARING: Shown(
        "scenarios/admission-fair-sharing.yaml: LocalQueues are ordered by past usage",
        "scenarios/admission-fair-sharing.yaml: Without gate AdmissionFairSharing past usage does not count",
    ),
    Gate.ADMISSION_GATED_BY: Shown(
        "unit/controllers/workload/test_pending.py: test_gated_workload_reports_its_admission_gates",
        "unit/webhooks/test_job_changes.py: test_admission_gates_are_not_validated_without_the_feature_gate",
    ),
    Gate.ASSIGN_QUEUE_LABELS_FOR_PODS: Shown(
        "unit/workloads/test_template_injection.py: test_info_has_marks_of_podset_queues_and_workload",
        "unit/workloads/test_template_injection.py: test_disabled_marks_are_not_injected",
    ),
    Gate.CLEANUP_PROVISIONING_REQUESTS_ON_EVICTION: _both(
        "unit/controllers/provisioning/test_requests.py: test_request_is_deleted_when_workload_needs_no_nodes"
    ),
    Gate.CONCURRENT_ADMISSION: _both(
        "unit/webhooks/test_queues.py: test_concurrent_admission_policy_is_validated_only_with_the_gate"
    ),
    Gate.CUSTOM_METRIC_LABELS: _both("unit/test_settings.py: test_custom_labels_need_their_gate"),
    Gate.DEFER_RAY_SERVICE_FINALIZATION: _both(
        "unit/controllers/job/test_job_references.py: "
        "test_ray_service_with_redis_cleanup_keeps_its_workload_until_it_is_gone"
    ),
    Gate.DISABLE_WAIT_FOR_PODS_READY: Shown(
        "unit/translate/test_settings.py: test_admission_is_not_blocked_if_pods_ready_is_disabled",
        "unit/translate/test_settings.py: test_core_settings_follow_configuration",
    ),
    Gate.ELASTIC_JOBS: Shown(
        "unit/controllers/job/test_slices_growing.py: "
        "test_growing_job_gets_second_slice_beside_running_slice",
        "unit/controllers/job/test_slices_growing.py: test_elastic_job_gets_ordinary_workload_without_gate",
    ),
    Gate.FAILURE_RECOVERY_POLICY: Shown(
        "unit/controllers/pods/test_failure_recovery.py: test_pod_is_failed_then_deleted_then_reported",
        "unit/controllers/test_small_controllers.py: test_settings_are_read_from_configuration",
    ),
    Gate.FAIR_SHARING_PREEMPT_WITHIN_NOMINAL: Shown(
        "scenarios/fair-sharing.yaml: Within nominal quota a borrowing sibling does not prevent reclaiming",
        "scenarios/fair-sharing.yaml: "
        "Without FairSharingPreemptWithinNominal a borrowing sibling prevents reclaiming",
    ),
    Gate.FAIR_SHARING_PRIORITIZE_NON_BORROWING: Shown(
        "unit/core/test_fair_sharing.py: test_tournament_orders_two_heads_by_share_priority_time_and_uid",
        "scenarios/fair-sharing.yaml: "
        "Without FairSharingPrioritizeNonBorrowing heads that do not borrow are ordered by share",
    ),
    Gate.FAST_QUOTA_RELEASE_IN_POD_INTEGRATION: _both(
        "unit/controllers/job/test_replacement_pods.py: "
        "test_fast_quota_release_does_not_wait_for_deleted_pods"
    ),
    Gate.FINISH_ORPHANED_WORKLOADS: Shown(
        "unit/controllers/workload/test_finishing.py: test_workload_without_owner_is_finished_and_released",
        "unit/controllers/workload/test_finishing.py: "
        "test_deleted_orphaned_workload_is_released_unfinished_without_feature_gate",
    ),
    Gate.FLAVOR_FUNGIBILITY: Shown(
        "scenarios/fungibility.yaml: By default a later flavor that fits is preferred to preempting",
        "scenarios/fungibility.yaml: "
        "Without flavorFungibility the first flavor that fits is taken even if it needs borrowing",
    ),
    Gate.FLAVOR_FUNGIBILITY_PRESERVE_SCAN_PROGRESS: Shown(
        "unit/core/test_cycle.py: test_head_that_lost_continues_with_next_flavor_only_when_gate_is_on",
        "scenarios/fungibility.yaml: "
        "Without FlavorFungibilityPreserveScanProgress a scan starts over whenever quota changed",
    ),
    Gate.LOCAL_QUEUE_METRICS: _both(
        "unit/test_settings.py: test_metrics_of_local_queues_and_cohorts_need_their_gates"
    ),
    Gate.LWS_IMMUTABLE_GROUP_SIZE: _both(
        "unit/webhooks/test_serving_kinds.py: test_requests_and_size_of_leader_worker_groups_are_immutable"
    ),
    Gate.METRICS_FOR_COHORTS: _both(
        "unit/test_settings.py: test_metrics_of_local_queues_and_cohorts_need_their_gates"
    ),
    Gate.METRIC_FOR_WORKLOAD_CREATION_LATENCY: _both(
        "unit/controllers/job/test_workload_creation.py: "
        "test_workload_creation_latency_is_reported_only_with_feature_gate"
    ),
    Gate.MULTIKUEUE: _both(
        "unit/webhooks/test_job_mutation.py: test_managed_by_of_job_is_set_for_multikueue_queue"
    ),
    Gate.PARTIAL_ADMISSION: Shown(
        "scenarios/partial-admission.yaml: The largest count that fits is admitted",
        "scenarios/partial-admission.yaml: Without partial admission minCount is ignored",
    ),
    Gate.POD_INTEGRATION_VALIDATE_GROUP_OWNER: _both(
        "unit/controllers/job/test_group_ownership.py: "
        "test_workload_without_controller_belongs_to_the_group_that_names_it"
    ),
    Gate.PRIORITIZE_PREEMPTOR_WORKLOADS: Shown(
        "scenarios/fair-sharing.yaml: With PrioritizePreemptorWorkloads preemptors precede lower shares",
        "scenarios/fair-sharing.yaml: "
        "Without PrioritizePreemptorWorkloads a lower share precedes a preemptor",
    ),
    Gate.PRIORITY_BOOST: _both(
        "unit/translate/test_priorities.py: test_priority_boost_is_added_to_priority_if_allowed"
    ),
    Gate.PRIORITY_SORTING_WITHIN_COHORT: _both(
        "unit/core/test_cycle.py: test_priority_orders_heads_of_cohort_only_when_gate_is_on"
    ),
    Gate.QUOTA_CHECK_STRATEGY: Shown(
        "scenarios/requests.yaml: With IgnoreUndeclared undeclared resources are ignored",
        "scenarios/requests.yaml: Without QuotaCheckStrategy IgnoreUndeclared has no effect",
    ),
    Gate.RECLAIMABLE_PODS: Shown(
        "scenarios/requests.yaml: Reclaimable pods are not counted before admission",
        "scenarios/requests.yaml: Without ReclaimablePods reclaimable pods are counted",
    ),
    Gate.RECOMPUTE_ASSIGNMENT_UPON_TARGETS_OVERLAP: Shown(
        "scenarios/preemption-cycle.yaml: Of two heads with one target the second searches for another",
        "scenarios/preemption-cycle.yaml: Without a second search the other head waits for the next cycle",
    ),
    Gate.REJECT_UPDATES_WITH_INVALID_ON_FLAVORS: _both(
        "unit/webhooks/test_queues.py: test_stored_invalid_on_flavors_is_tolerated_unless_the_gate_rejects_it"
    ),
    Gate.REMOVE_FINALIZERS_WITH_STRICT_PATCH: _both(
        "unit/controllers/test_plan.py: test_only_own_finalizer_is_removed_and_only_from_same_object"
    ),
    Gate.SCHEDULING_EQUIVALENCE_HASHING: Shown(
        "scenarios/best-effort-fifo.yaml: A hundred equal workloads are evaluated once",
        "scenarios/best-effort-fifo.yaml: "
        "Without SchedulingEquivalenceHashing equal workloads are evaluated and reported one by one",
    ),
    Gate.SHORT_WORKLOAD_NAMES: Shown(
        "unit/integrations/test_workload_names.py: test_workload_name_can_be_limited_to_length_of_a_label",
        "unit/controllers/test_small_controllers.py: test_settings_are_read_from_configuration",
    ),
    Gate.SKIP_ANCESTOR_CHECK_FOR_DELETED_WORKLOADS: _both(
        "unit/webhooks/test_job_mutation.py: test_update_of_job_in_deletion_is_accepted_despite_missing_owner"
    ),
    Gate.SKIP_REASSIGNMENT_FOR_POD_OWNED_WORKLOADS: _both(
        "unit/controllers/job/test_single_pods.py: "
        "test_evicted_running_pod_is_requeued_only_when_reassignment_is_not_skipped"
    ),
    Gate.SPARK_APPLICATION_INTEGRATION: _both(
        "unit/integrations/test_registry.py: test_kind_with_feature_gate_is_selected_only_with_the_gate"
    ),
    Gate.TAS_ASSIGNMENTS_ENCODING_BY_HOSTNAME_PREFIX: _both(
        "unit/workloads/test_admission_patches.py: "
        "test_gate_decides_whether_host_prefixes_have_their_own_slices"
    ),
    Gate.ELASTIC_JOBS_WITH_TAS: Shown(
        "unit/core/test_kept_places.py: test_job_that_grows_keeps_its_places",
        "unit/core/test_kept_places.py: test_without_the_gate_all_pods_are_placed_beside_those_that_run",
    ),
    Gate.TAS_BALANCED_PLACEMENT: _both(
        "unit/core/test_flavor_topology.py: test_balanced_placement_gives_equal_shares_of_few_domains"
    ),
    Gate.TAS_FAILED_NODE_REPLACEMENT: _both(
        "unit/core/test_second_pass.py: test_workload_with_pods_on_a_failed_host_needs_a_second_pass"
    ),
    Gate.TAS_FAILED_NODE_REPLACEMENT_FAIL_FAST: Shown(
        "unit/core/test_failed_hosts.py: test_without_another_place_the_workload_is_evicted",
        "unit/core/test_failed_hosts.py: test_without_the_gate_the_search_is_repeated",
    ),
    Gate.TAS_HANDLE_OVERLAPPING_FLAVORS: _both(
        "unit/core/test_placing.py: test_flavors_with_the_same_hosts_share_them_only_with_the_gate"
    ),
    Gate.TAS_PROFILE_MIXED: Shown(
        "unit/core/test_flavor_topology.py: test_places",
        "unit/core/test_flavor_topology.py: test_without_the_small_gaps_first_large_gaps_are_filled_first",
    ),
    Gate.TAS_RECOMPUTE_ASSIGNMENT_WITHIN_CYCLE: Shown(
        "unit/core/test_placing.py: test_heads_of_two_trees_do_not_share_a_place",
        "unit/core/test_placing.py: "
        "test_without_the_gate_the_second_head_is_evaluated_again_in_the_next_cycle",
    ),
    Gate.TAS_MULTI_LAYER_TOPOLOGY: Shown(
        "unit/workloads/test_topology_annotations.py: test_topology_request_has_fields_of_annotations",
        "unit/workloads/test_topology_annotations.py: test_layers_of_slices_are_ignored_without_feature_gate",
    ),
    Gate.TAS_REPLACE_NODE_NOT_READY_OVER_FIXED_TIME: _both(_NODE_FAILURES),
    Gate.TAS_REPLACE_NODE_ON_NODE_TAINTS: _both(_NODE_FAILURES),
    Gate.TAS_REPLACE_NODE_ON_POD_TERMINATION: _both(_NODE_FAILURES),
    Gate.TAS_RESPECT_NODE_AFFINITY_PREFERRED: _both(
        "unit/core/test_flavor_topology.py: test_preferred_nodes_come_first_only_with_the_gate"
    ),
    Gate.TAS_VALIDATE_WORKLOAD_SLICE_SIZE: _both(_SWITCHED_OFF),
    Gate.TOPOLOGY_AWARE_SCHEDULING: Shown(
        "unit/webhooks/test_topology_requests.py: test_elastic_job_may_only_use_unconstrained_topology",
        "unit/webhooks/test_topology_requests.py: test_topology_annotations_are_ignored_without_feature_gate",
    ),
    Gate.UNADMITTED_WORKLOADS_EXPLICIT_STATUS: Shown(
        "unit/controllers/workload/test_pending.py: test_pending_workload_reports_reason",
        "unit/controllers/workload/test_pending.py: test_new_workload_in_active_queue_causes_no_write",
    ),
    Gate.UNADMITTED_WORKLOADS_OBSERVABILITY: Shown(
        "unit/controllers/workload/test_pending.py: test_pending_workload_reports_reason",
        "unit/controllers/workload/test_queue_stops.py: "
        "test_reservation_is_released_as_inadmissible_without_detailed_reasons",
    ),
    Gate.VALIDATE_RAY_AND_SPARK_JOB_UPDATES: _both(
        "unit/integrations/test_sparkapplication.py: "
        "test_d23_spark_update_is_validated_if_managed_or_previously_queued_with_the_gate"
    ),
    Gate.WORKLOAD_IDENTIFIER_ANNOTATIONS: _both(
        "unit/controllers/job/test_prebuilt.py: "
        "test_feature_gate_decides_whether_annotation_or_label_names_workload"
    ),
    Gate.VISIBILITY_ON_DEMAND: Shown(
        "controlplane/test_visibility.py: test_workloads_have_positions_in_both_queues",
        "unit/app/test_components.py: test_visibility_api_does_not_start_without_its_feature_gate",
    ),
    Gate.WORKLOAD_PRIORITY_CLASS_DEFAULTING: _both(
        "unit/webhooks/test_job_mutation.py: "
        "test_job_without_priority_class_gets_default_with_or_without_queue"
    ),
    Gate.WORKLOAD_REQUEST_USE_MERGE_PATCH: _both(
        "unit/controllers/test_foreign_admissions.py: test_a2_gate_decides_how_the_admission_is_written"
    ),
    Gate.WORKLOAD_VALIDATE_RESOURCES_NON_NEGATIVE: _both(_SWITCHED_OFF),
    Gate.WORKLOAD_VALIDATION_FOR_POD_SET_METADATA: _both(_SWITCHED_OFF),
}


def test_every_gate_in_effect_has_tests() -> None:
    assert SHOWN.keys() == IN_EFFECT


@pytest.mark.parametrize("gate", sorted(SHOWN))
def test_listed_tests_of_gate_exist(gate: Gate) -> None:
    for place in SHOWN[gate]:
        file, name = place.split(": ", 1)
        lines = (TESTS / file).read_text().splitlines()
        written = (
            rf"(async )?def {re.escape(name)}\(.*" if file.endswith(".py") else f"title: {re.escape(name)}"
        )
        assert any(re.fullmatch(written, line) for line in lines), place
