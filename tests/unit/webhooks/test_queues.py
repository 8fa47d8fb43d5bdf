"""Validation of ClusterQueues, Cohorts and ResourceFlavors."""

from typing import Any

import pytest

from tests.unit.webhooks.support import NAMES, call_own_webhook


def quota(name: str = "cpu", nominal: Any = "10", **limits: Any) -> dict[str, Any]:
    return {"name": name, "nominalQuota": nominal, **limits}


def flavor(name: str = "spot", *quotas: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "resources": list(quotas or [quota()])}


def group(*flavors: dict[str, Any], covered: list[str] | None = None) -> dict[str, Any]:
    return {"coveredResources": covered or ["cpu"], "flavors": list(flavors or [flavor()])}


def a_queue(*groups: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "q"}, "spec": {"resourceGroups": list(groups or [group()]), **spec}}


def group_of_resources(count: int, start: int = 0) -> dict[str, Any]:
    """Return a group with one flavor that has `count` resources."""
    names = [f"r{number}" for number in range(start, start + count)]
    return group(flavor(f"f{start}", *(quota(name) for name in names)), covered=names)


IN_COHORT = {"cohortName": "all"}

VALID_QUEUES = [
    a_queue(),
    {"metadata": {"name": "q"}, "spec": {}},
    a_queue(namespaceSelector={}),
    a_queue(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}),
    a_queue(group(flavor("f", quota(borrowingLimit="0", lendingLimit="10"))), **IN_COHORT),
    a_queue(group(flavor("f", quota(nominal=0)))),
    a_queue(
        group(flavor("f", quota("cpu"), quota("memory", "1Gi")), covered=["cpu", "memory"]),
        group(flavor("g", quota("nvidia.com/gpu")), covered=["nvidia.com/gpu"]),
    ),
    a_queue(fairSharing={"weight": "0"}),
    a_queue(fairSharing={"weight": "2n"}),
    a_queue(preemption={"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}),
    a_queue(preemption={"borrowWithinCohort": {"policy": "Never"}}),
    a_queue(
        flavorFungibility={
            "whenCanBorrow": "TryNextFlavor",
            "whenCanPreempt": "TryNextFlavor",
            "preference": "BorrowingOverPreemption",
        }
    ),
    a_queue(
        admissionChecksStrategy={"admissionChecks": [{"name": "c", "onFlavors": ["spot"]}, {"name": "d"}]}
    ),
]


@pytest.mark.parametrize("queue", VALID_QUEUES)
async def test_valid_cluster_queue_is_accepted_on_create_and_update(queue: dict[str, Any]) -> None:
    assert (await call_own_webhook("validate", "ClusterQueue", queue)).allowed
    assert (await call_own_webhook("validate", "ClusterQueue", queue, a_queue())).allowed


@pytest.mark.parametrize("text", ["1E", "20P", "1e30", "8Ei", "1e1000000"])
async def test_c16_quota_beyond_int64_is_accepted(text: str) -> None:
    limits = quota(nominal=text, borrowingLimit=text, lendingLimit=text)
    assert (
        await call_own_webhook("validate", "ClusterQueue", a_queue(group(flavor("f", limits)), **IN_COHORT))
    ).allowed


async def test_c16_lending_limit_above_nominal_quota_is_rejected_beyond_int64() -> None:
    limits = quota(nominal="1E", lendingLimit="2E")
    answer = await call_own_webhook(
        "validate", "ClusterQueue", a_queue(group(flavor("f", limits)), **IN_COHORT)
    )
    assert not answer.allowed


RESOURCES = "spec.resourceGroups[0].flavors[0].resources"

INVALID_QUEUES: list[tuple[dict[str, Any], str, str]] = [
    (a_queue(cohortName="No Name"), "spec.cohortName", "lower case"),
    (
        a_queue(group(flavor("f", quota("cpu"), quota("memory")), covered=["memory", "cpu"])),
        f"{RESOURCES}[0].name",
        "must match the name in coveredResources; memory is expected",
    ),
    (a_queue(group(flavor(), covered=["cpu", "memory"])), RESOURCES, "same number of resources"),
    (
        a_queue(group(flavor("f", quota(nominal="-1")))),
        f"{RESOURCES}[0].nominalQuota",
        "greater than or equal",
    ),
    (a_queue(group(flavor("f", quota(nominal="lots")))), f"{RESOURCES}[0].nominalQuota", "not a quantity"),
    (a_queue(group(flavor("f", {"name": "cpu"}))), f"{RESOURCES}[0].nominalQuota", "Required value"),
    (
        a_queue(group(flavor("f", quota(borrowingLimit="-1"))), **IN_COHORT),
        f"{RESOURCES}[0].borrowingLimit",
        "greater than or equal",
    ),
    (
        a_queue(group(flavor("f", quota(lendingLimit="11"))), **IN_COHORT),
        f"{RESOURCES}[0].lendingLimit",
        "less than or equal to the nominalQuota",
    ),
    (
        a_queue(group(flavor("f", quota(borrowingLimit="1")))),
        f"{RESOURCES}[0].borrowingLimit",
        "must be nil when cohort is empty; set spec.cohortName",
    ),
    (
        a_queue(group(flavor("f", quota(lendingLimit="1")))),
        f"{RESOURCES}[0].lendingLimit",
        "must be nil when cohort is empty",
    ),
    (
        a_queue(group(flavor("f")), group(flavor("f", quota("memory")), covered=["memory"])),
        "spec.resourceGroups[1].flavors[0].name",
        "Duplicate value",
    ),
    (
        a_queue(group(flavor("f")), group(flavor("g"))),
        "spec.resourceGroups[1].coveredResources[0]",
        "Duplicate value",
    ),
    (
        a_queue(group(flavor("f", quota("c p u")), covered=["c p u"])),
        "spec.resourceGroups[0].coveredResources[0]",
        "name part",
    ),
    (a_queue(group(flavor("Spot"))), "spec.resourceGroups[0].flavors[0].name", "lower case"),
    (
        a_queue(*(group_of_resources(60, 100 * place) for place in range(5))),
        "spec.resourceGroups",
        "at most 256 items",
    ),
    (
        a_queue(*(group(*(flavor(f"f{g}-{n}") for n in range(60)), covered=[f"r{g}"]) for g in range(5))),
        "spec.resourceGroups",
        "at most 256 items",
    ),
    (
        a_queue(
            group(
                *(flavor(f"f{n}", *(quota(f"r{m}") for m in range(33))) for n in range(16)),
                covered=[f"r{m}" for m in range(33)],
            )
        ),
        "spec.resourceGroups[0].flavors",
        "at most 512 items",
    ),
    (
        a_queue(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "Near"}]}),
        "spec.namespaceSelector.matchExpressions[0].operator",
        "Unsupported value",
    ),
    (
        a_queue(namespaceSelector={"matchLabels": {"no key": "v"}}),
        "spec.namespaceSelector.matchLabels",
        "name part",
    ),
    (a_queue(fairSharing={"weight": "-1"}), "spec.fairSharing.weight", "greater than or equal to 0"),
    (a_queue(fairSharing={"weight": "1n"}), "spec.fairSharing.weight", "either 0 or greater than 1e-9"),
    (a_queue(fairSharing={"weight": "heavy"}), "spec.fairSharing.weight", "not a quantity"),
    (
        a_queue(
            preemption={"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "LowerPriority"}}
        ),
        "spec.preemption",
        "cannot be set together",
    ),
    (
        a_queue(
            flavorFungibility={
                "whenCanBorrow": "TryNextFlavor",
                "whenCanPreempt": "MayStopSearch",
                "preference": "x",
            }
        ),
        "spec.flavorFungibility.preference",
        "both TryNextFlavor",
    ),
    (
        a_queue(flavorFungibility={"preference": "BorrowingOverPreemption"}),
        "spec.flavorFungibility.preference",
        "both TryNextFlavor",
    ),
    (
        a_queue(admissionChecksStrategy={"admissionChecks": [{"name": "c", "onFlavors": ["spot", "gone"]}]}),
        "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[1]",
        "use one of spot",
    ),
]


@pytest.mark.parametrize(("queue", "field", "message"), INVALID_QUEUES)
async def test_invalid_cluster_queue_is_rejected_on_create_and_update(
    queue: dict[str, Any], field: str, message: str
) -> None:
    for old in (None, a_queue()):
        answer = await call_own_webhook("validate", "ClusterQueue", queue, old)
        assert not answer.allowed
        assert f"{field}: " in answer.message
        assert message in answer.message


STALE = a_queue(admissionChecksStrategy={"admissionChecks": [{"name": "c", "onFlavors": ["gone"]}]})


async def test_stored_invalid_on_flavors_is_tolerated_unless_the_gate_rejects_it() -> None:
    held = {**STALE, "spec": {**STALE["spec"], "stopPolicy": "Hold"}}
    assert (await call_own_webhook("validate", "ClusterQueue", held, STALE)).allowed
    gates = {"RejectUpdatesToCQWithInvalidOnFlavors": True}
    assert not (await call_own_webhook("validate", "ClusterQueue", held, STALE, gates=gates)).allowed
    other_flavors = {**STALE, "spec": {**STALE["spec"], "resourceGroups": [group(flavor("new"))]}}
    assert not (await call_own_webhook("validate", "ClusterQueue", other_flavors, STALE)).allowed


@pytest.mark.parametrize("kind", ["ClusterQueue", "Cohort", "ResourceFlavor"])
async def test_invalid_object_in_deletion_can_be_updated(kind: str) -> None:
    invalid = a_queue(cohortName="No Name", parentName="No Name", nodeLabels={"no key": "v"})
    valid = a_queue()
    assert not (await call_own_webhook("validate", kind, invalid, valid)).allowed
    valid["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert (await call_own_webhook("validate", kind, invalid, valid)).allowed


@pytest.mark.parametrize("kind", ["ClusterQueue", "Cohort", "ResourceFlavor"])
async def test_invalid_stored_object_can_be_changed_in_other_fields(kind: str) -> None:
    stored = a_queue(cohortName="No Name", parentName="No Name", nodeLabels={"no key": "v"})
    with_finalizer = {**stored, "metadata": {"name": "q", "finalizers": [NAMES.finalizer]}}
    assert (await call_own_webhook("validate", kind, with_finalizer, stored)).allowed
    with_new_errors = {
        **stored,
        "spec": {**stored["spec"], "cohortName": "A B", "parentName": "A B", "nodeLabels": {"c d": "v"}},
    }
    answer = await call_own_webhook("validate", kind, with_new_errors, stored)
    assert not answer.allowed
    assert "No Name" not in answer.message
    assert not (await call_own_webhook("validate", kind, stored)).allowed


async def test_stored_invalid_on_flavors_may_be_reordered_but_not_added_to_other_check() -> None:
    flavors = [flavor("a"), flavor("b")]
    check = {"name": "c", "onFlavors": ["gone", "a"]}
    stored = a_queue(group(*flavors), admissionChecksStrategy={"admissionChecks": [check]})
    checks = [{"name": "new"}, {"name": "c", "onFlavors": ["a", "gone"]}]
    reordered = a_queue(group(*reversed(flavors)), admissionChecksStrategy={"admissionChecks": checks})
    assert (await call_own_webhook("validate", "ClusterQueue", reordered, stored)).allowed
    checks[0] = {"name": "new", "onFlavors": ["gone"]}
    answer = await call_own_webhook("validate", "ClusterQueue", reordered, stored)
    assert "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]: " in answer.message


CONCURRENT = {"ConcurrentAdmission": True}
TRY = {"migration": {"mode": "TryPreferredFlavors"}}


@pytest.mark.parametrize(
    ("queue", "message"),
    [
        (a_queue(concurrentAdmissionPolicy=TRY), ""),
        (
            a_queue(
                concurrentAdmissionPolicy={
                    "migration": {
                        "mode": "TryPreferredFlavors",
                        "constraints": {"lastAcceptableFlavorName": "spot"},
                    }
                }
            ),
            "",
        ),
        (
            a_queue(
                group(),
                group(flavor("g", quota("memory")), covered=["memory"]),
                concurrentAdmissionPolicy=TRY,
            ),
            "exactly one",
        ),
        (
            a_queue(group(*(flavor(f"f{n}") for n in range(17))), concurrentAdmissionPolicy=TRY),
            "at most 16 items",
        ),
        (a_queue(concurrentAdmissionPolicy=TRY, queueingStrategy="StrictFIFO"), "spec.queueingStrategy"),
        (
            a_queue(
                concurrentAdmissionPolicy={"migration": {"mode": "RetainFirstAdmission", "constraints": {}}}
            ),
            "only be set when mode is TryPreferredFlavors",
        ),
        (
            a_queue(
                concurrentAdmissionPolicy={
                    "migration": {
                        "mode": "TryPreferredFlavors",
                        "constraints": {"lastAcceptableFlavorName": "gone"},
                    }
                }
            ),
            'Not found: "gone"',
        ),
    ],
)
async def test_concurrent_admission_policy_is_validated_only_with_the_gate(
    queue: dict[str, Any], message: str
) -> None:
    assert (await call_own_webhook("validate", "ClusterQueue", queue)).allowed
    answer = await call_own_webhook("validate", "ClusterQueue", queue, gates=CONCURRENT)
    assert answer.allowed is (not message)
    assert message in answer.response.get("status", {}).get("message", "")


async def test_concurrent_admission_policy_is_immutable() -> None:
    answer = await call_own_webhook(
        "validate", "ClusterQueue", a_queue(), a_queue(concurrentAdmissionPolicy=TRY), gates=CONCURRENT
    )
    assert "spec.concurrentAdmissionPolicy: Invalid value: null: field is immutable" in answer.message


async def test_concurrent_admission_policy_is_compared_without_empty_parts() -> None:
    with_empty = {"migration": {**TRY["migration"], "constraints": {}}}
    stored = a_queue(concurrentAdmissionPolicy=with_empty)
    written = a_queue(concurrentAdmissionPolicy=TRY)
    assert (await call_own_webhook("validate", "ClusterQueue", written, stored, gates=CONCURRENT)).allowed


@pytest.mark.parametrize("kind", ["ClusterQueue", "ResourceFlavor"])
async def test_new_object_gets_finalizer_once(kind: str) -> None:
    answer = await call_own_webhook(
        "mutate", kind, {"metadata": {"name": "n", "finalizers": ["x/y"]}, "spec": {}}
    )
    assert answer.patch == [{"op": "add", "path": "/metadata/finalizers/-", "value": NAMES.finalizer}]
    assert (await call_own_webhook("mutate", kind, answer.after)).patch is None


# --- Cohorts ----------------------------------------------------------------------------------------


def a_cohort(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "c"}, "spec": spec}


@pytest.mark.parametrize(
    "cohort",
    [
        a_cohort(),
        a_cohort(parentName="root"),
        a_cohort(resourceGroups=[group()]),
        a_cohort(
            parentName="root",
            resourceGroups=[group(flavor("f", quota(lendingLimit="99", borrowingLimit="1")))],
        ),
        a_cohort(parentName="c"),
    ],
)
async def test_valid_cohort_is_accepted(cohort: dict[str, Any]) -> None:
    assert (await call_own_webhook("validate", "Cohort", cohort)).allowed


@pytest.mark.parametrize(
    ("cohort", "field", "message"),
    [
        (a_cohort(parentName="No Name"), "spec.parentName", "lower case"),
        (
            a_cohort(resourceGroups=[group(flavor("f", quota(borrowingLimit="1")))]),
            f"{RESOURCES}[0].borrowingLimit",
            "must be nil when parent is empty; set spec.parentName",
        ),
        (
            a_cohort(resourceGroups=[group(flavor("f", quota(lendingLimit="1")))]),
            f"{RESOURCES}[0].lendingLimit",
            "must be nil when parent is empty",
        ),
        (
            a_cohort(resourceGroups=[group(), group()]),
            "spec.resourceGroups[1].coveredResources[0]",
            "Duplicate",
        ),
        (a_cohort(fairSharing={"weight": "-1"}), "spec.fairSharing.weight", "greater than or equal to 0"),
    ],
)
async def test_invalid_cohort_is_rejected(cohort: dict[str, Any], field: str, message: str) -> None:
    answer = await call_own_webhook("validate", "Cohort", cohort)
    assert not answer.allowed
    assert f"{field}: " in answer.message
    assert message in answer.message


# --- ResourceFlavors --------------------------------------------------------------------------------


def a_flavor(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "f"}, "spec": spec}


TAINT = {"key": "spot", "value": "true", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    "resource_flavor",
    [
        a_flavor(),
        a_flavor(nodeLabels={"cloud.example.com/type": "spot", "empty": ""}),
        a_flavor(
            nodeTaints=[TAINT, {**TAINT, "effect": "NoExecute"}, {"key": "x", "effect": "PreferNoSchedule"}]
        ),
        a_flavor(
            tolerations=[
                {"operator": "Exists"},
                {"key": "a", "value": "b"},
                {"key": "a", "operator": "Exists"},
            ]
        ),
        a_flavor(
            tolerations=[{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]
        ),
    ],
)
async def test_valid_resource_flavor_is_accepted(resource_flavor: dict[str, Any]) -> None:
    assert (await call_own_webhook("validate", "ResourceFlavor", resource_flavor)).allowed


@pytest.mark.parametrize(
    ("resource_flavor", "field", "message"),
    [
        (a_flavor(nodeLabels={"no key": "v"}), "spec.nodeLabels", "name part"),
        (a_flavor(nodeLabels={"key": "no value!"}), "spec.nodeLabels[key]", "a valid label"),
        (a_flavor(nodeLabels={"key": "v" * 64}), "spec.nodeLabels[key]", "63"),
        (a_flavor(nodeTaints=[{**TAINT, "key": ""}]), "spec.nodeTaints[0].key", "name part"),
        (a_flavor(nodeTaints=[{**TAINT, "value": "no value!"}]), "spec.nodeTaints[0].value", "a valid label"),
        (
            a_flavor(nodeTaints=[{**TAINT, "effect": "Never"}]),
            "spec.nodeTaints[0].effect",
            "Unsupported value",
        ),
        (a_flavor(nodeTaints=[TAINT, {**TAINT, "value": "x"}]), "spec.nodeTaints[1]", "Duplicate value"),
        (a_flavor(tolerations=[{"operator": "Near"}]), "spec.tolerations[0].operator", "Unsupported value"),
        (a_flavor(tolerations=[{"value": "a"}]), "spec.tolerations[0].operator", "must be Exists"),
        (a_flavor(tolerations=[{"key": "no key!"}]), "spec.tolerations[0].key", "name part"),
        (
            a_flavor(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
            "spec.tolerations[0].operator",
            "value must be empty",
        ),
        (
            a_flavor(tolerations=[{"key": "a", "value": "no value!"}]),
            "spec.tolerations[0].value",
            "a valid label",
        ),
        (
            a_flavor(tolerations=[{"key": "a", "effect": "Never"}]),
            "spec.tolerations[0].effect",
            "Unsupported",
        ),
        (
            a_flavor(tolerations=[{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5}]),
            "spec.tolerations[0].effect",
            "must be 'NoExecute'",
        ),
    ],
)
async def test_invalid_resource_flavor_is_rejected(
    resource_flavor: dict[str, Any], field: str, message: str
) -> None:
    answer = await call_own_webhook("validate", "ResourceFlavor", resource_flavor)
    assert not answer.allowed
    assert f"{field}: " in answer.message
    assert message in answer.message
