import pytest

from admitq.core.model import (
    LabelSelector,
    NodeSelectorTerm,
    PodSet,
    SelectorOperator,
    SelectorRequirement,
    Taint,
    Toleration,
)
from admitq.core.selectors import accepts_nodes, find_untolerated_taint, matches, selects_namespace, tolerates

LABELS = {"zone": "west", "cores": "16", "empty": ""}
IN, NOT_IN = SelectorOperator.IN, SelectorOperator.NOT_IN
EXISTS, ABSENT = SelectorOperator.EXISTS, SelectorOperator.DOES_NOT_EXIST
MORE, LESS = SelectorOperator.GREATER_THAN, SelectorOperator.LESS_THAN


@pytest.mark.parametrize(
    ("key", "operator", "values", "holds"),
    [
        ("zone", IN, ("east", "west"), True),
        ("zone", IN, ("east",), False),
        ("other", IN, ("",), False),
        ("empty", IN, ("",), True),
        ("zone", NOT_IN, ("east",), True),
        ("zone", NOT_IN, ("west",), False),
        ("other", NOT_IN, ("west",), True),
        ("zone", EXISTS, (), True),
        ("other", EXISTS, (), False),
        ("zone", ABSENT, (), False),
        ("other", ABSENT, (), True),
        ("cores", MORE, ("8",), True),
        ("cores", MORE, ("16",), False),
        ("cores", LESS, ("32",), True),
        ("cores", LESS, ("-1",), False),
        ("zone", MORE, ("8",), False),
        ("cores", MORE, ("many",), False),
        ("cores", MORE, (), False),
        ("other", LESS, ("8",), False),
    ],
)
def test_requirement_matches_labels_by_operator(
    key: str, operator: SelectorOperator, values: tuple[str, ...], *, holds: bool
) -> None:
    assert matches(LabelSelector((SelectorRequirement(key, operator, values),)), LABELS) is holds


@pytest.mark.parametrize(
    ("bound", "more", "less"),
    [
        ("9" * 5000, False, False),
        ("-" + "9" * 5000, False, False),
        (str(2**63), False, False),
        (str(2**63 - 1), False, True),
        (str(-(2**63)), True, False),
        ("0" * 5000 + "8", True, False),
        ("+8", True, False),
        ("-", False, False),
        ("8_0", False, False),
    ],
)
def test_e_bound_of_any_length_is_compared_as_kube_scheduler_does(
    bound: str, *, more: bool, less: bool
) -> None:
    for operator, holds in ((MORE, more), (LESS, less)):
        requirement = SelectorRequirement("cores", operator, (bound,))
        assert matches(LabelSelector((requirement,)), LABELS) is holds


def test_selector_matches_only_if_all_requirements_hold() -> None:
    west, east = SelectorRequirement("zone", IN, ("west",)), SelectorRequirement("zone", IN, ("east",))
    assert not matches(LabelSelector((west, east)), LABELS)
    assert matches(LabelSelector(), LABELS)


def test_namespace_is_selected_only_if_selector_and_namespace_exist() -> None:
    assert not selects_namespace(None, {})
    assert not selects_namespace(LabelSelector(), None)
    assert selects_namespace(LabelSelector(), {})


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("spot", "Equal", "yes"), True),
        (Toleration("spot", "", "yes"), True),
        (Toleration("spot", "Equal", "no"), False),
        (Toleration("other", "Equal", "yes"), False),
        (Toleration("spot", "Exists"), True),
        (Toleration("other", "Exists"), False),
        (Toleration(operator="Exists"), True),
        (Toleration("spot", "Exists", effect="NoSchedule"), True),
        (Toleration("spot", "Exists", effect="NoExecute"), False),
        (Toleration("spot", "Gt", "yes"), False),
    ],
)
def test_toleration_matches_taint_by_key_operator_value_and_effect(
    toleration: Toleration, *, tolerated: bool
) -> None:
    assert tolerates(toleration, Taint("spot", "yes", "NoSchedule")) is tolerated


def test_first_untolerated_taint_is_found() -> None:
    taints = (
        Taint("soft", "", "PreferNoSchedule"),
        Taint("a", "", "NoSchedule"),
        Taint("b", "", "NoExecute"),
        Taint("c", "", "NoSchedule"),
    )
    assert find_untolerated_taint(taints) == taints[1]
    assert (
        find_untolerated_taint(taints, (Toleration("a", "Exists"),), (Toleration("c", "Exists"),))
        == taints[2]
    )
    assert find_untolerated_taint(taints, (Toleration(operator="Exists"),)) is None


def term(**of: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(tuple(SelectorRequirement(key, IN, (value,)) for key, value in of.items()))


@pytest.mark.parametrize(
    ("selector", "affinity", "accepted"),
    [
        ((), None, True),
        ((("zone", "west"),), None, True),
        ((("zone", "east"),), None, False),
        ((("unlabelled", "x"),), None, True),
        ((), (), True),
        ((), (term(zone="east"), term(zone="west")), True),
        ((), (term(zone="east"),), False),
        ((), (term(zone="east"), term(unlabelled="x")), True),
        ((), (term(zone="east", unlabelled="x"),), False),
        ((("zone", "west"),), (term(zone="east"),), False),
        ((("zone", "west"),), (term(zone="west"),), True),
        ((), (NodeSelectorTerm(),), True),
        ((), (term(zone="east"), NodeSelectorTerm()), True),
    ],
)
def test_nodes_are_accepted_by_keys_that_flavor_labels(
    selector: tuple[tuple[str, str], ...], affinity: tuple[NodeSelectorTerm, ...] | None, *, accepted: bool
) -> None:
    pods = PodSet("main", 1, node_selector=selector, required_node_affinity=affinity)
    assert accepts_nodes(pods, {"zone": "west"}) is accepted
