"""The objects that ``create`` creates, and its errors."""

import json
from typing import Any

import pytest
import yaml

from admitq.plugin.application import run
from admitq.plugin.new_objects import Quotas, parse_amounts, parse_taints, parse_tolerations, resource_groups
from admitq.plugin.remedies import CommandError
from admitq_api.labels import DEFAULT_GROUP, GROUPS


def created(capsys: pytest.CaptureFixture[str], *line: str, group: str = DEFAULT_GROUP) -> dict[str, Any]:
    """Return the object that a command would create."""
    arguments = ["create", *line, "--dry-run=client", f"--api-group={group}", "--output=yaml"]
    assert run(arguments) == 0
    return yaml.safe_load(capsys.readouterr().out)


def test_flavors_with_the_same_resources_share_a_group() -> None:
    groups = resource_groups(Quotas("a:cpu=1;memory=2Gi,b:memory=3Gi;cpu=0,c:gpu=4"))
    assert [(group["coveredResources"], [one["name"] for one in group["flavors"]]) for group in groups] == [
        (["cpu", "memory"], ["a", "b"]),
        (["gpu"], ["c"]),
    ]
    assert groups[0]["flavors"][1]["resources"] == [
        {"name": "cpu", "nominalQuota": "0"},
        {"name": "memory", "nominalQuota": "3Gi"},
    ]


def test_limits_are_those_of_their_flavor_and_resource() -> None:
    (group,) = resource_groups(Quotas("a:cpu=1,b:cpu=1", "a:cpu=0", "b:cpu=1"))
    assert [flavor["resources"] for flavor in group["flavors"]] == [
        [{"name": "cpu", "nominalQuota": "1", "borrowingLimit": "0"}],
        [{"name": "cpu", "nominalQuota": "1", "lendingLimit": "1"}],
    ]


def test_no_quota_is_no_group() -> None:
    assert resource_groups(Quotas()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu=1", "--x: 'cpu=1' is not FLAVOR:RESOURCE=AMOUNT\nWrite, for example, --x"),
        ("a:cpu", "--x: 'cpu' is not FLAVOR:RESOURCE=AMOUNT"),
        ("a:", "--x: 'a:' is not FLAVOR"),
        ("a:cpu=", "--x: 'cpu=' is not FLAVOR"),
        ("a:cpu=lots", "--x: 'lots' of 'cpu' is not an amount\nAmounts look like"),
        ("a:cpu=-1", "--x: '-1' of 'cpu' is not an amount"),
        ("a:cpu=1;cpu=2", "--x: 'cpu' of flavor 'a' is given twice"),
        ("a:cpu=1,a:memory=1", "--x: flavor 'a' is given twice"),
    ],
)
def test_amounts_that_are_not_valid_are_refused_with_the_option(text: str, message: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_amounts("--x", text)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("quotas", "message"),
    [
        (Quotas("a:cpu=1", "a:memory=1"), "--borrowing-limit: 'memory' of flavor 'a' has no nominal quota"),
        (Quotas("a:cpu=1", "", "b:cpu=1"), "--lending-limit: 'cpu' of flavor 'b' has no nominal quota"),
        (Quotas("a:cpu=1,b:cpu=1;memory=1"), "--nominal-quota: flavors 'a' and 'b' both have 'cpu'"),
    ],
)
def test_quotas_that_do_not_match_are_refused(quotas: Quotas, message: str) -> None:
    with pytest.raises(CommandError) as caught:
        resource_groups(quotas)
    assert str(caught.value).startswith(message)


def test_cluster_queue_has_the_values_of_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    options = (
        "--cohort=team", "--queuing-strategy=StrictFIFO", "--namespace-selector=a=1,b=2",
        "--reclaim-within-cohort=Any", "--preemption-within-cluster-queue=LowerPriority",
        "--nominal-quota=f:cpu=1", "--nominal-quota=g:cpu=2", "--borrowing-limit=f:cpu=3",
    )  # fmt: skip
    flavors = [
        {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1", "borrowingLimit": "3"}]},
        {"name": "g", "resources": [{"name": "cpu", "nominalQuota": "2"}]},
    ]
    assert created(capsys, "cq", "q", *options) == {
        "apiVersion": f"{DEFAULT_GROUP}/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "q"},
        "spec": {
            "namespaceSelector": {"matchLabels": {"a": "1", "b": "2"}},
            "cohortName": "team",
            "queueingStrategy": "StrictFIFO",
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
        },
    }


def test_cluster_queue_without_options_admits_from_all_namespaces(capsys: pytest.CaptureFixture[str]) -> None:
    spec = created(capsys, "clusterqueue", "q")["spec"]
    assert spec == {"namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO"}


@pytest.mark.parametrize("group", GROUPS)
def test_local_queue_is_in_the_namespace_of_the_option(
    capsys: pytest.CaptureFixture[str], group: str
) -> None:
    assert created(capsys, "lq", "q", "-c", "cq", "-n", "n", group=group) == {
        "apiVersion": f"{group}/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "q", "namespace": "n"},
        "spec": {"clusterQueue": "cq"},
    }


def test_flavor_has_the_values_of_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--node-labels=a=1", "--node-labels=b=2", "--node-taints=t=x:NoSchedule", "--tolerations=t")
    assert created(capsys, "rf", "f", *options)["spec"] == {
        "nodeLabels": {"a": "1", "b": "2"},
        "nodeTaints": [{"key": "t", "value": "x", "effect": "NoSchedule"}],
        "tolerations": [{"key": "t", "operator": "Exists"}],
    }


def test_taints_and_tolerations_of_each_form_are_read() -> None:
    assert parse_taints("-x", "a:NoExecute,b=1:NoSchedule") == [
        {"key": "a", "effect": "NoExecute"},
        {"key": "b", "value": "1", "effect": "NoSchedule"},
    ]
    assert parse_tolerations("-x", "a,b:NoExecute,c=1,d=:NoSchedule") == [
        {"key": "a", "operator": "Exists"},
        {"key": "b", "operator": "Exists", "effect": "NoExecute"},
        {"key": "c", "operator": "Equal", "value": "1"},
        {"key": "d", "operator": "Equal", "value": "", "effect": "NoSchedule"},
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (("cq", "Q"), "error: NAME: 'Q': "),
        (("cq", "q", "--borrowing-limit=f:cpu=1"), "error: --borrowing-limit: a ClusterQueue without cohort"),
        (("cq", "q", "--lending-limit=f:cpu=1"), "error: --lending-limit: a ClusterQueue without cohort"),
        (("cq", "q", "--namespace-selector=a"), "error: --namespace-selector: 'a' is not KEY=VALUE"),
        (("rf", "f", "--node-labels=-a=1"), "error: --node-labels: '-a': "),
        (("rf", "f", "--node-labels=a=-1"), "error: --node-labels: '-1': "),
        (("rf", "f", "--node-taints=a"), "error: --node-taints: 'a' is not KEY[=VALUE]:EFFECT"),
        (("rf", "f", "--node-taints=:NoExecute"), "error: --node-taints: ':NoExecute' is not KEY"),
        (("rf", "f", "--node-taints=a:Never"), "error: --node-taints: 'Never' is not one of NoSchedule"),
        (("rf", "f", "--tolerations=a=-1"), "error: --tolerations: 'a=-1': "),
    ],
)
def test_option_that_is_not_valid_is_refused_by_name(
    line: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["create", *line, "--dry-run=client", f"--api-group={DEFAULT_GROUP}"]) == 1
    assert capsys.readouterr().err.startswith(message)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ((), f"resourceflavor.{DEFAULT_GROUP}/f created (dry run)\n"),
        (("-oname",), f"resourceflavor.{DEFAULT_GROUP}/f\n"),
    ],
)
def test_output_is_what_was_done_or_the_name(
    options: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["create", "rf", "f", "--dry-run=client", f"--api-group={DEFAULT_GROUP}", *options])
    assert capsys.readouterr().out == text


def test_output_can_be_json(capsys: pytest.CaptureFixture[str]) -> None:
    run(["create", "rf", "f", "--dry-run=client", f"--api-group={DEFAULT_GROUP}", "-ojson"])
    assert json.loads(capsys.readouterr().out)["metadata"] == {"name": "f"}
