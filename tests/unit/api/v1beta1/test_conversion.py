"""Conversion between v1beta1 and v1beta2: a table of cases, malformed objects, and round trips."""

import copy
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from admitq_api.crds import KINDS
from admitq_api.labels import COMPAT_GROUP, DEFAULT_GROUP, names_for
from admitq_api.stored_fields import MalformedField
from admitq_api.v1beta1.conversion import MAX_ANNOTATION_BYTES, ConversionError, convert
from admitq_api.v1beta1.differences import PLURALS, list_converted_crds, list_differences
from admitq_api.v1beta1.topology_encoding import (
    MAX_LISTED_DOMAINS,
    create_slices,
    list_domains,
)

NAMES: Final = names_for(COMPAT_GROUP)
OLDER, NEWER = "v1beta1", "v1beta2"
TABLE = Path(__file__).parents[3] / "controlplane" / "cases" / "versions.yaml"
CASES: Final[list[dict[str, Any]]] = yaml.load(
    TABLE.read_text(encoding="utf-8").replace("${group}", COMPAT_GROUP), Loader=yaml.CSafeLoader
)


def obj(kind: str, version: str, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": f"{COMPAT_GROUP}/{version}",
        "kind": kind,
        "metadata": {"name": "one", "uid": "u"},
        **content,
    }


def content(converted: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in converted.items() if key not in ("apiVersion", "kind", "metadata")}


def annotated_metadata(version: str, at: list[Any], value: Any) -> dict[str, Any]:
    text = orjson.dumps({"version": version, "fields": [{"at": at, "value": value}]}).decode()
    return {"name": "one", "annotations": {NAMES.other_version: text, "mine": "kept"}}


def test_every_kind_is_converted() -> None:
    assert {kind.__name__: kind.plural for kind in KINDS} == PLURALS
    assert set(list_differences(NAMES)) == set(PLURALS)
    assert {case["kind"] for case in CASES} == set(PLURALS)
    assert list_converted_crds(NAMES) == tuple(NAMES.crd_name(kind.plural) for kind in KINDS)
    assert list_converted_crds(names_for(DEFAULT_GROUP)) == ()


@pytest.mark.parametrize("case", [pytest.param(case, id=case["it"]) for case in CASES])
def test_conversion_follows_table_of_cases(case: dict[str, Any]) -> None:
    kind, newer = case["kind"], obj(case["kind"], NEWER, case["newer"])
    if "older" in case:
        older = obj(kind, OLDER, case["older"])
        given = copy.deepcopy(older)
        assert convert(older, NEWER, NAMES) == newer
        assert older == given, "the conversion modified its input"
    converted_back = convert(newer, OLDER, NAMES)
    assert content(converted_back) == case.get("read", case.get("older"))
    assert newer == obj(kind, NEWER, case["newer"]), "the conversion modified its input"
    assert convert(converted_back, NEWER, NAMES) == newer


def test_conversion_to_same_version_returns_object_unchanged() -> None:
    metadata = annotated_metadata(OLDER, ["spec", "priorityClassName"], "x")
    given = {**obj("Workload", NEWER, {}), "metadata": metadata}
    assert convert(given, NEWER, NAMES) == given


@pytest.mark.parametrize(
    "given",
    [
        {"apiVersion": f"{COMPAT_GROUP}/v1beta1", "kind": "Pod"},
        {"apiVersion": f"{COMPAT_GROUP}/v1alpha1", "kind": "Workload"},
        {"apiVersion": "v1beta1", "kind": "Workload"},
        {"apiVersion": ["v1beta1"], "kind": {}},
        {},
    ],
)
def test_conversion_rejects_objects_of_other_groups_versions_and_kinds(given: dict[str, Any]) -> None:
    with pytest.raises(ConversionError, match="cannot be converted to"):
        convert(given, NEWER, NAMES)


def test_conversion_to_version_that_is_not_served_is_rejected() -> None:
    with pytest.raises(ConversionError, match="v1alpha1"):
        convert(obj("Cohort", OLDER, {}), "v1alpha1", NAMES)
    default = names_for(DEFAULT_GROUP)
    with pytest.raises(ConversionError, match="v1beta1"):
        convert({"apiVersion": default.api_version, "kind": "Cohort"}, OLDER, default)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ({"priorityClassName": "x"}, {}),
        ({"priorityClassName": "x", "priorityClassSource": ""}, {}),
        ({"priorityClassSource": "scheduling.k8s.io/priorityclass"}, {}),
    ],
)
def test_priority_class_without_v1beta2_reference_survives_round_trip(
    older: dict[str, Any], newer: dict[str, Any]
) -> None:
    up = convert(obj("Workload", OLDER, {"spec": older}), NEWER, NAMES)
    assert up["spec"] == newer
    assert convert(up, OLDER, NAMES)["spec"] == {key: value for key, value in older.items() if value}


@pytest.mark.parametrize(
    ("annotated", "expected"),
    [
        # v1beta2 has no such reference. A validation rule rejects a new reference while quota is reserved.
        ({"priorityClassSource": "scheduling.k8s.io/priorityclass", "priorityClassName": "x"}, {}),
        # Values that v1beta1 rejects; the object could not be written again.
        ({"priorityClassSource": "unheard-of"}, {}),
        ({"priorityClassSource": ["unheard-of"]}, {}),
        ({"priorityClassName": "No Name"}, {}),
        ({"priorityClassName": "x"}, {"priorityClassName": "x"}),
    ],
)
def test_invalid_field_in_conversion_annotation_is_not_restored(
    annotated: dict[str, Any], expected: dict[str, Any]
) -> None:
    fields = [{"at": ["spec", field], "value": value} for field, value in annotated.items()]
    text = orjson.dumps({"version": OLDER, "fields": fields}).decode()
    stored = obj("Workload", NEWER, {"spec": {}})
    stored["metadata"]["annotations"] = {NAMES.other_version: text}
    assert convert(stored, OLDER, NAMES) == obj("Workload", OLDER, {"spec": expected})


def test_conversion_annotation_that_exceeds_size_limit_is_left_out() -> None:
    """The API server rejects objects with more than 256 KiB of annotations, and lists that contain them."""
    for room, fits in ((0, False), (200, True)):
        stored = obj("ClusterQueue", NEWER, {"spec": {"concurrentAdmissionPolicy": POLICY}})
        large = "x" * (MAX_ANNOTATION_BYTES - len(NAMES.other_version) - len("mine") - room)
        stored["metadata"]["annotations"] = {"mine": large}
        annotations = convert(stored, OLDER, NAMES)["metadata"]["annotations"]
        assert (NAMES.other_version in annotations) == fits
        assert annotations["mine"] == large


def test_admission_check_names_override_strategy_when_both_are_set() -> None:
    strategy = {"admissionChecks": [{"name": "one"}, {"name": "two", "onFlavors": ["any"]}]}
    for names, expected in ((["two"], {"admissionChecks": [{"name": "two"}]}), ([], strategy)):
        spec = {"admissionChecks": names, "admissionChecksStrategy": strategy}
        up = convert(obj("ClusterQueue", OLDER, {"spec": spec}), NEWER, NAMES)
        assert up["spec"] == {"admissionChecksStrategy": expected}


def test_admission_check_names_are_restored_only_within_one_request() -> None:
    spec, listed = {"admissionChecks": ["one"]}, {"admissionChecks": [{"name": "one"}]}
    for version, restored in (("7", spec), ("", {})):
        written = obj("ClusterQueue", OLDER, {"spec": spec})
        written["metadata"]["resourceVersion"] = version
        up = convert(written, NEWER, NAMES)
        assert up["spec"] == {"admissionChecksStrategy": listed}
        assert ("annotations" in up["metadata"]) == bool(version)
        down = convert(up, OLDER, NAMES)
        assert down["spec"] == {"admissionChecksStrategy": listed, **restored}
        assert "annotations" not in down["metadata"]
        # Values that a user writes into the annotation are not restored on reads.
        up["metadata"]["resourceVersion"] = ""
        assert convert(up, OLDER, NAMES)["spec"] == {"admissionChecksStrategy": listed}


POLICY: Final = {"migration": {"mode": "RetainFirstAdmission"}}
CONSTRAINTS: Final = [{"topology": "rack", "size": 2}]
ITS_CONSTRAINTS: Final = "podsetSliceRequiredTopologyConstraints"
AT_CONSTRAINTS: Final = ["spec", "podSets", {"name": "b"}, "topologyRequest", ITS_CONSTRAINTS]


@pytest.mark.parametrize(
    ("kind", "given", "at", "value", "spec"),
    [
        (
            "ClusterQueue",
            {},
            ["spec", "concurrentAdmissionPolicy"],
            POLICY,
            {"concurrentAdmissionPolicy": POLICY},
        ),
        ("ClusterQueue", {}, ["spec", "concurrentAdmissionPolicy"], {"migration": {"mode": "Other"}}, {}),
        ("ClusterQueue", {}, ["spec", "concurrentAdmissionPolicy"], "text", {}),
        ("ClusterQueue", {}, ["spec", "stopPolicy"], "Hold", {}),
        ("ClusterQueue", {}, ["spec", {"name": "x"}, "concurrentAdmissionPolicy"], POLICY, {}),
        ("ClusterQueue", {}, ["status"], {"pendingWorkloads": 1}, {}),
        ("ClusterQueue", {}, ["metadata", "finalizers"], [], {}),
        ("ClusterQueue", {}, [5, "spec"], {}, {}),
        ("ClusterQueue", {}, [], {}, {}),
        ("ClusterQueue", {}, "spec.concurrentAdmissionPolicy", POLICY, {}),
        ("MultiKueueConfig", {}, ["spec", "quotaManagement"], ["x"], {"quotaManagement": "Manual"}),
        (
            "Workload",
            {"podSets": [{"name": "a", "topologyRequest": {}}, 5, {"name": "b", "topologyRequest": {}}]},
            AT_CONSTRAINTS,
            CONSTRAINTS,
            {
                "podSets": [
                    {"name": "a", "topologyRequest": {}},
                    5,
                    {"name": "b", "topologyRequest": {ITS_CONSTRAINTS: CONSTRAINTS}},
                ]
            },
        ),
        ("Workload", {"podSets": [{"name": "a"}]}, AT_CONSTRAINTS, CONSTRAINTS, {"podSets": [{"name": "a"}]}),
        ("Workload", {"podSets": {"name": "b"}}, AT_CONSTRAINTS, CONSTRAINTS, {"podSets": {"name": "b"}}),
        (
            "Workload",
            {"podSets": [{"name": "b", "topologyRequest": {}}]},
            AT_CONSTRAINTS,
            [{"topology": "rack", "size": 0}],
            {"podSets": [{"name": "b", "topologyRequest": {}}]},
        ),
    ],
)
def test_only_known_valid_fields_are_restored_from_conversion_annotation(
    kind: str, given: dict[str, Any], at: Any, value: Any, spec: dict[str, Any]
) -> None:
    older = {**obj(kind, OLDER, {"spec": given}), "metadata": annotated_metadata(NEWER, at, value)}
    up = convert(older, NEWER, NAMES)
    assert up["spec"] == spec
    assert up["metadata"] == {"name": "one", "annotations": {"mine": "kept"}}
    assert "status" not in up


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version":"v1beta2","fields":5}', 5, None, '"\\ud800"'])
def test_malformed_conversion_annotation_is_dropped(text: Any) -> None:
    older = obj("ClusterQueue", OLDER, {"spec": {}})
    older["metadata"]["annotations"] = {NAMES.other_version: text}
    assert convert(older, NEWER, NAMES) == obj("ClusterQueue", NEWER, {"spec": {}})


def test_conversion_annotation_left_by_same_version_is_ignored() -> None:
    """A file read as v1beta1 can be applied as v1beta2; its annotation stays when the policy is removed."""
    metadata = annotated_metadata(NEWER, ["spec", "concurrentAdmissionPolicy"], POLICY)
    stored = {**obj("ClusterQueue", NEWER, {"spec": {}}), "metadata": metadata}
    down = convert(stored, OLDER, NAMES)
    assert down["metadata"] == {"name": "one", "annotations": {"mine": "kept"}}
    assert convert(down, NEWER, NAMES)["spec"] == {}


# --- topology assignments -----------------------------------------------------------------------------

names = st.text(alphabet="abc-1", min_size=1, max_size=5)
counts = st.integers(min_value=1, max_value=9)


@st.composite
def domain_assignments(draw: st.DrawFn) -> dict[str, Any]:
    width = draw(st.integers(1, 3))
    values = st.lists(names, min_size=width, max_size=width)
    domain = st.fixed_dictionaries({"values": values, "count": counts})
    levels = draw(st.lists(names, min_size=width, max_size=width))
    return {"levels": levels, "domains": draw(st.lists(domain, min_size=1, max_size=6))}


@st.composite
def slice_assignments(draw: st.DrawFn) -> dict[str, Any]:
    """Draw assignments in every form that readers must accept, not only in the form that admitq writes."""
    width, slices = draw(st.integers(1, 3)), []
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 3))

        def each(item: st.SearchStrategy[Any], size: int = count) -> st.SearchStrategy[list[Any]]:
            return st.lists(item, min_size=size, max_size=size)

        individual = st.fixed_dictionaries(
            {"roots": each(names)}, optional={"prefix": names, "suffix": names}
        )
        level = st.one_of(
            st.fixed_dictionaries({"universal": names}), st.fixed_dictionaries({"individual": individual})
        )
        pods = st.one_of(
            st.fixed_dictionaries({"universal": counts}), st.fixed_dictionaries({"individual": each(counts)})
        )
        slices.append(
            {
                "domainCount": count,
                "valuesPerLevel": draw(st.lists(level, min_size=width, max_size=width)),
                "podCounts": draw(pods),
            }
        )
    return {"levels": draw(st.lists(names, min_size=width, max_size=width)), "slices": slices}


@given(domain_assignments())
def test_topology_domains_survive_encoding_as_slices(assignment: dict[str, Any]) -> None:
    assert list_domains(create_slices(assignment)) == assignment


@given(slice_assignments())
def test_slices_in_any_form_list_same_domains_after_round_trip(assignment: dict[str, Any]) -> None:
    domains = list_domains(assignment)
    assert list_domains(create_slices(domains)) == domains
    assert sum(part["domainCount"] for part in assignment["slices"]) == len(domains["domains"])


def slice_assignment(**changed: Any) -> dict[str, Any]:
    return {
        "levels": ["rack"],
        "slices": [
            {
                "domainCount": 1,
                "valuesPerLevel": [{"universal": "a"}],
                "podCounts": {"universal": 1},
                **changed,
            }
        ],
    }


@pytest.mark.parametrize(
    "given",
    [
        slice_assignment(domainCount=MAX_LISTED_DOMAINS + 1),
        slice_assignment(domainCount=True),
        slice_assignment(domainCount="1"),
        slice_assignment(valuesPerLevel=[]),
        slice_assignment(valuesPerLevel=[{"universal": "a"}, {"universal": "b"}]),
        slice_assignment(valuesPerLevel=[{"individual": {"roots": ["a", "b"]}}]),
        slice_assignment(valuesPerLevel=[{"individual": {"roots": [1]}}]),
        slice_assignment(valuesPerLevel=[{"individual": {"roots": ["a"], "prefix": 1}}]),
        slice_assignment(valuesPerLevel=[{"individual": ["a"]}]),
        slice_assignment(valuesPerLevel=["a"]),
        slice_assignment(podCounts={"individual": [1, 2]}),
        slice_assignment(podCounts={"individual": ["1"]}),
        slice_assignment(podCounts=1),
        {"levels": 5, "slices": slice_assignment()["slices"]},
        {"levels": ["rack"], "slices": {}},
    ],
)
def test_malformed_slices_are_kept_unchanged(given: dict[str, Any]) -> None:
    with pytest.raises(MalformedField):
        list_domains(given)
    status = {"admission": {"podSetAssignments": [{"topologyAssignment": given}]}}
    stored = obj("Workload", NEWER, {"status": status})
    converted_back = convert(stored, OLDER, NAMES)
    assert content(converted_back) == content(stored)
    assert convert(converted_back, NEWER, NAMES) == stored


@pytest.mark.parametrize(
    "domains",
    [[], {}, [5], [{"values": ["a"]}], [{"values": ["a", "b"], "count": 1}], [{"values": [1], "count": 1}]],
)
def test_malformed_domains_are_kept_unchanged(domains: Any) -> None:
    given = {"levels": ["rack"], "domains": domains}
    status = {"admission": {"podSetAssignments": [{"topologyAssignment": given}]}}
    older = obj("Workload", OLDER, {"status": status})
    assert content(convert(older, NEWER, NAMES)) == content(older)


# --- arbitrary content --------------------------------------------------------------------------------

_WORDS = (
    "name", "spec", "status", "cohort", "cohortName", "admissionChecks", "admissionChecksStrategy",
    "flavorFungibility", "whenCanBorrow", "Borrow", "MayStopSearch", "concurrentAdmissionPolicy",
    "pendingWorkloadsStatus", "flavorUsage", "flavorsUsage", "flavors", "clusterSource", "kubeConfig",
    "quotaManagement", "Automated", "priorityClassSource", "priorityClassName", "priorityClassRef", "group",
    "kind", f"{COMPAT_GROUP}/workloadpriorityclass", COMPAT_GROUP, "WorkloadPriorityClass", "podSets",
    "topologyRequest", "podsetSliceRequiredTopologyConstraints", "admission", "podSetAssignments",
    "topologyAssignment", "levels", "domains", "slices", "values", "count", "domainCount", "valuesPerLevel",
    "podCounts", "universal", "individual", "roots", "retryDelayMinutes",
)  # fmt: skip
words = st.sampled_from(_WORDS)
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-1, 5), words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=4)),
    max_leaves=12,
)


@given(
    st.sampled_from(sorted(PLURALS)),
    st.sampled_from((OLDER, NEWER)),
    st.dictionaries(st.sampled_from(("spec", "status", "value")), anything),
    st.one_of(anything, st.fixed_dictionaries({"annotations": anything})),
)
def test_conversion_of_arbitrary_content_never_fails(
    kind: str, version: str, rest: dict[str, Any], metadata: Any
) -> None:
    other = NEWER if version == OLDER else OLDER
    given = {**obj(kind, version, rest), "metadata": metadata}
    before = copy.deepcopy(given)
    converted = convert(given, other, NAMES)
    assert converted["apiVersion"] == f"{COMPAT_GROUP}/{other}"
    assert given == before
    orjson.dumps(convert(converted, version, NAMES))
