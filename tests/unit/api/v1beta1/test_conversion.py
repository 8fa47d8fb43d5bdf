"""Between v1beta1 and v1beta2: the table of cases, what does not fit, and that round trips lose nothing."""

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
from admitq_api.v1beta1.conversion import MAX_ANNOTATION_BYTES, ConversionError, convert
from admitq_api.v1beta1.differences import PLURALS, list_converted_crds, list_differences
from admitq_api.v1beta1.topology_encoding import (
    MAX_LISTED_DOMAINS,
    MAX_SLICE_DOMAINS,
    MalformedAssignment,
    create_slices,
    list_domains,
)

NAMES: Final = names_for(COMPAT_GROUP)
OLDER, NEWER = "v1beta1", "v1beta2"
TABLE = Path(__file__).parents[3] / "controlplane" / "cases" / "versions.yaml"
CASES: Final[list[dict[str, Any]]] = yaml.safe_load(
    TABLE.read_text(encoding="utf-8").replace("${group}", COMPAT_GROUP)
)


def obj(kind: str, version: str, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": f"{COMPAT_GROUP}/{version}",
        "kind": kind,
        "metadata": {"name": "one", "uid": "u"},
        **content,
    }


def content(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key not in ("apiVersion", "kind", "metadata")}


def annotated(version: str, at: list[Any], value: Any) -> dict[str, Any]:
    text = orjson.dumps({"version": version, "fields": [{"at": at, "value": value}]}).decode()
    return {"name": "one", "annotations": {NAMES.other_version: text, "mine": "kept"}}


def test_every_kind_is_converted() -> None:
    assert {kind.__name__: kind.plural for kind in KINDS} == PLURALS
    assert set(list_differences(NAMES)) == set(PLURALS)
    assert {case["kind"] for case in CASES} == set(PLURALS)
    assert list_converted_crds(NAMES) == tuple(NAMES.crd_name(kind.plural) for kind in KINDS)
    assert list_converted_crds(names_for(DEFAULT_GROUP)) == ()


@pytest.mark.parametrize("case", [pytest.param(case, id=case["it"]) for case in CASES])
def test_the_table(case: dict[str, Any]) -> None:
    kind, newer = case["kind"], obj(case["kind"], NEWER, case["newer"])
    if "older" in case:
        older = obj(kind, OLDER, case["older"])
        given = copy.deepcopy(older)
        assert convert(older, NEWER, NAMES) == newer
        assert older == given, "what is given stays as it is"
    read = convert(newer, OLDER, NAMES)
    assert content(read) == case.get("read", case.get("older"))
    assert newer == obj(kind, NEWER, case["newer"]), "what is given stays as it is"
    assert convert(read, NEWER, NAMES) == newer


def test_an_object_in_the_version_that_is_asked_for_is_that_object() -> None:
    metadata = annotated(OLDER, ["spec", "priorityClassName"], "x")
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
def test_what_is_none_of_ours_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConversionError, match="cannot be converted to"):
        convert(given, NEWER, NAMES)


def test_a_version_that_is_not_served_is_refused() -> None:
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
def test_a_class_that_cannot_be_referred_to_comes_back(older: dict[str, Any], newer: dict[str, Any]) -> None:
    up = convert(obj("Workload", OLDER, {"spec": older}), NEWER, NAMES)
    assert up["spec"] == newer
    assert convert(up, OLDER, NAMES)["spec"] == {key: value for key, value in older.items() if value}


@pytest.mark.parametrize(
    ("claimed", "read"),
    [
        # A reference that v1beta2 has not: a rule refuses to make one while quota is reserved.
        ({"priorityClassSource": "scheduling.k8s.io/priorityclass", "priorityClassName": "x"}, {}),
        # What v1beta1 does not take, and would refuse to write again.
        ({"priorityClassSource": "unheard-of"}, {}),
        ({"priorityClassSource": ["unheard-of"]}, {}),
        ({"priorityClassName": "No Name"}, {}),
        ({"priorityClassName": "x"}, {"priorityClassName": "x"}),
    ],
)
def test_what_was_not_set_aside_is_not_put_back(claimed: dict[str, Any], read: dict[str, Any]) -> None:
    fields = [{"at": ["spec", field], "value": value} for field, value in claimed.items()]
    text = orjson.dumps({"version": OLDER, "fields": fields}).decode()
    stored = obj("Workload", NEWER, {"spec": {}})
    stored["metadata"]["annotations"] = {NAMES.other_version: text}
    assert convert(stored, OLDER, NAMES) == obj("Workload", OLDER, {"spec": read})


def test_an_annotation_that_makes_them_too_many_is_left_out() -> None:
    """The API server takes no object with more than 256 KiB of them, and so no list that one is in."""
    for room, fits in ((0, False), (200, True)):
        stored = obj("ClusterQueue", NEWER, {"spec": {"concurrentAdmissionPolicy": POLICY}})
        large = "x" * (MAX_ANNOTATION_BYTES - len(NAMES.other_version) - len("mine") - room)
        stored["metadata"]["annotations"] = {"mine": large}
        annotations = convert(stored, OLDER, NAMES)["metadata"]["annotations"]
        assert (NAMES.other_version in annotations) == fits
        assert annotations["mine"] == large


def test_names_of_checks_count_where_both_are_given() -> None:
    strategy = {"admissionChecks": [{"name": "one"}, {"name": "two", "onFlavors": ["any"]}]}
    for names, expected in ((["two"], {"admissionChecks": [{"name": "two"}]}), ([], strategy)):
        spec = {"admissionChecks": names, "admissionChecksStrategy": strategy}
        up = convert(obj("ClusterQueue", OLDER, {"spec": spec}), NEWER, NAMES)
        assert up["spec"] == {"admissionChecksStrategy": expected}


def test_names_of_checks_come_back_within_a_request_alone() -> None:
    spec, listed = {"admissionChecks": ["one"]}, {"admissionChecks": [{"name": "one"}]}
    for version, read in (("7", spec), ("", {})):
        written = obj("ClusterQueue", OLDER, {"spec": spec})
        written["metadata"]["resourceVersion"] = version
        up = convert(written, NEWER, NAMES)
        assert up["spec"] == {"admissionChecksStrategy": listed}
        assert ("annotations" in up["metadata"]) == bool(version)
        down = convert(up, OLDER, NAMES)
        assert down["spec"] == {"admissionChecksStrategy": listed, **read}
        assert "annotations" not in down["metadata"]
        # Values that a user puts there are not shown when the object is read.
        up["metadata"]["resourceVersion"] = ""
        assert convert(up, OLDER, NAMES)["spec"] == {"admissionChecksStrategy": listed}


POLICY_FIELD: Final = "concurrentAdmissionPolicy"
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
def test_of_the_annotation_only_what_is_carried_so_is_taken(
    kind: str, given: dict[str, Any], at: Any, value: Any, spec: dict[str, Any]
) -> None:
    older = {**obj(kind, OLDER, {"spec": given}), "metadata": annotated(NEWER, at, value)}
    up = convert(older, NEWER, NAMES)
    assert up["spec"] == spec
    assert up["metadata"] == {"name": "one", "annotations": {"mine": "kept"}}
    assert "status" not in up


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version":"v1beta2","fields":5}', 5, None, '"\\ud800"'])
def test_an_annotation_that_says_nothing_is_dropped(text: Any) -> None:
    older = obj("ClusterQueue", OLDER, {"spec": {}})
    older["metadata"]["annotations"] = {NAMES.other_version: text}
    assert convert(older, NEWER, NAMES) == obj("ClusterQueue", NEWER, {"spec": {}})


def test_what_was_left_in_an_object_of_the_same_version_means_nothing() -> None:
    """As when a file that was read in v1beta1 is applied as v1beta2, and the policy is taken away later."""
    metadata = annotated(NEWER, ["spec", "concurrentAdmissionPolicy"], POLICY)
    stored = {**obj("ClusterQueue", NEWER, {"spec": {}}), "metadata": metadata}
    down = convert(stored, OLDER, NAMES)
    assert down["metadata"] == {"name": "one", "annotations": {"mine": "kept"}}
    assert convert(down, NEWER, NAMES)["spec"] == {}


# --- where pods go ------------------------------------------------------------------------------------

names = st.text(alphabet="abc-1", min_size=1, max_size=5)
counts = st.integers(min_value=1, max_value=9)


@st.composite
def spelled(draw: st.DrawFn) -> dict[str, Any]:
    width = draw(st.integers(1, 3))
    values = st.lists(names, min_size=width, max_size=width)
    domain = st.fixed_dictionaries({"values": values, "count": counts})
    levels = draw(st.lists(names, min_size=width, max_size=width))
    return {"levels": levels, "domains": draw(st.lists(domain, min_size=1, max_size=6))}


@st.composite
def sliced(draw: st.DrawFn) -> dict[str, Any]:
    """Any form that readers must accept, not only the one that is written here."""
    width, slices = draw(st.integers(1, 3)), []
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 3))

        def each(one: st.SearchStrategy[Any], size: int = count) -> st.SearchStrategy[list[Any]]:
            return st.lists(one, min_size=size, max_size=size)

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


@given(spelled())
def test_domains_come_back_from_slices_as_they_were(assignment: dict[str, Any]) -> None:
    assert list_domains(create_slices(assignment)) == assignment


@given(sliced())
def test_slices_of_any_form_mean_the_same_after_a_round_trip(assignment: dict[str, Any]) -> None:
    domains = list_domains(assignment)
    assert list_domains(create_slices(domains)) == domains
    assert sum(one["domainCount"] for one in assignment["slices"]) == len(domains["domains"])


def test_more_domains_than_a_slice_holds_are_split() -> None:
    domains = [{"values": [f"n{number}"], "count": 1} for number in range(MAX_SLICE_DOMAINS + 1)]
    slices = create_slices({"levels": ["host"], "domains": domains})["slices"]
    assert [one["domainCount"] for one in slices] == [MAX_SLICE_DOMAINS, 1]
    assert slices[1]["valuesPerLevel"] == [{"universal": f"n{MAX_SLICE_DOMAINS}"}]


def a_slice(**changed: Any) -> dict[str, Any]:
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
        a_slice(domainCount=MAX_LISTED_DOMAINS + 1),
        a_slice(domainCount=True),
        a_slice(domainCount="1"),
        a_slice(valuesPerLevel=[]),
        a_slice(valuesPerLevel=[{"universal": "a"}, {"universal": "b"}]),
        a_slice(valuesPerLevel=[{"individual": {"roots": ["a", "b"]}}]),
        a_slice(valuesPerLevel=[{"individual": {"roots": [1]}}]),
        a_slice(valuesPerLevel=[{"individual": {"roots": ["a"], "prefix": 1}}]),
        a_slice(valuesPerLevel=[{"individual": ["a"]}]),
        a_slice(valuesPerLevel=["a"]),
        a_slice(podCounts={"individual": [1, 2]}),
        a_slice(podCounts={"individual": ["1"]}),
        a_slice(podCounts=1),
        {"levels": 5, "slices": a_slice()["slices"]},
        {"levels": ["rack"], "slices": {}},
    ],
)
def test_slices_that_cannot_be_read_stay_as_they_are(given: dict[str, Any]) -> None:
    with pytest.raises(MalformedAssignment):
        list_domains(given)
    status = {"admission": {"podSetAssignments": [{"topologyAssignment": given}]}}
    stored = obj("Workload", NEWER, {"status": status})
    read = convert(stored, OLDER, NAMES)
    assert content(read) == content(stored)
    assert convert(read, NEWER, NAMES) == stored


@pytest.mark.parametrize(
    "domains",
    [[], {}, [5], [{"values": ["a"]}], [{"values": ["a", "b"], "count": 1}], [{"values": [1], "count": 1}]],
)
def test_domains_that_cannot_be_read_stay_as_they_are(domains: Any) -> None:
    given = {"levels": ["rack"], "domains": domains}
    status = {"admission": {"podSetAssignments": [{"topologyAssignment": given}]}}
    older = obj("Workload", OLDER, {"status": status})
    assert content(convert(older, NEWER, NAMES)) == content(older)


# --- whatever it is -----------------------------------------------------------------------------------

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
def test_no_object_is_too_odd_to_be_converted(
    kind: str, version: str, rest: dict[str, Any], metadata: Any
) -> None:
    other = NEWER if version == OLDER else OLDER
    given = {**obj(kind, version, rest), "metadata": metadata}
    before = copy.deepcopy(given)
    there = convert(given, other, NAMES)
    assert there["apiVersion"] == f"{COMPAT_GROUP}/{other}"
    assert given == before
    orjson.dumps(convert(there, version, NAMES))
