"""The tree of cohorts and queues with their use of quota."""

from typing import Any

from admitq.plugin.usage_tree import build_tree, queue_node, tree_document, usage_rows


def resources(field: str, **amounts: str) -> list[dict[str, str]]:
    return [{"name": name, field: amount} for name, amount in amounts.items()]


def queue(
    name: str, cohort: str = "", *, used: str = "1", quota: str = "4", pending: int = 0
) -> dict[str, Any]:
    flavors = [{"name": "f", "resources": resources("nominalQuota", cpu=quota, memory="1Gi")}]
    return {
        "metadata": {"name": name},
        "spec": {"cohortName": cohort, "resourceGroups": [{"flavors": flavors}]},
        "status": {
            "pendingWorkloads": pending,
            "reservingWorkloads": 1,
            "flavorsReservation": [{"name": "f", "resources": resources("total", cpu=used)}],
        },
    }


def cohort(name: str, parent: str = "", **quota: str) -> dict[str, Any]:
    flavors = [{"name": "g", "resources": resources("nominalQuota", **quota)}]
    return {
        "metadata": {"name": name},
        "spec": {"parentName": parent, "resourceGroups": [{"flavors": flavors}]},
    }


def test_cohorts_have_the_sums_of_what_is_below_them() -> None:
    queues = [queue("b", "team", pending=2), queue("a", "team", used="500m"), queue("alone")]
    tree = build_tree(queues, [cohort("team", "org", cpu="2"), cohort("org")])
    assert usage_rows(tree, by_flavor=False) == (
        ["NAME", "PENDING", "RESERVING", "CPU", "MEMORY"],
        [
            ["cohort/org", "2", "2", "1500m/10", "0/2Gi"],
            ["└─ cohort/team", "2", "2", "1500m/10", "0/2Gi"],
            ["   ├─ clusterqueue/a", "0", "1", "500m/4", "0/1Gi"],
            ["   └─ clusterqueue/b", "2", "1", "1/4", "0/1Gi"],
            ["clusterqueue/alone", "0", "1", "1/4", "0/1Gi"],
        ],
    )


def test_wide_table_has_a_column_for_each_flavor() -> None:
    titles, rows = usage_rows(build_tree([queue("a", "team")], [cohort("team", cpu="2")]), by_flavor=True)
    assert titles == ["NAME", "PENDING", "RESERVING", "CPU (F)", "CPU (G)", "MEMORY (F)"]
    assert rows[0][3:] == ["1/4", "0/2", "0/1Gi"]
    assert rows[1][3:] == ["1/4", "", "0/1Gi"]


def test_cohorts_without_an_object_are_roots() -> None:
    tree = build_tree([queue("a", "implicit")], [cohort("child", "missing")])
    assert [(node.name, [child.name for child in node.children]) for node in tree] == [
        ("implicit", ["a"]),
        ("missing", ["child"]),
    ]


def test_cohorts_of_a_cycle_are_shown_once_as_roots() -> None:
    cohorts = [cohort("a", "b"), cohort("b", "a"), cohort("below", "a"), cohort("self", "self")]
    tree = build_tree([], cohorts)
    assert [(node.name, [child.name for child in node.children]) for node in tree] == [
        ("a", ["below"]),
        ("b", []),
        ("self", []),
    ]


def test_use_without_quota_is_shown_alone() -> None:
    local = {**queue("lq", used="3"), "spec": {"clusterQueue": "cq"}}
    node = queue_node(local)
    assert node.kind == "localqueue"
    assert usage_rows([node], by_flavor=False)[1] == [["localqueue/lq", "0", "1", "3"]]


def test_amount_that_cannot_be_read_counts_as_none() -> None:
    assert usage_rows([queue_node(queue("a", used="lots"))], by_flavor=False)[1][0][3] == "0/4"


def test_document_has_the_tree_with_all_amounts() -> None:
    (node,) = build_tree([queue("a", "team")], [])
    document = tree_document(node)
    assert (document["kind"], document["name"], len(document["children"])) == ("cohort", "team", 1)
    assert document["children"][0] == {
        "kind": "clusterqueue",
        "name": "a",
        "pendingWorkloads": 0,
        "reservingWorkloads": 1,
        "amounts": [
            {"flavor": "f", "resource": "cpu", "reserved": "1", "nominalQuota": "4"},
            {"flavor": "f", "resource": "memory", "reserved": "0", "nominalQuota": "1Gi"},
        ],
    }
