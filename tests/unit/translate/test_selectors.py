"""The namespaces of managed jobs."""

import pytest

from admitq.core.model import LabelSelector, SelectorOperator, SelectorRequirement
from admitq.core.selectors import matches
from admitq.translate.selectors import select_managed_namespaces
from admitq_api.configuration import load_configuration
from admitq_api.namespaces import NAMESPACE_NAME
from tests.unit.translate.builders import HEAD

EXCLUDED = SelectorRequirement(NAMESPACE_NAME, SelectorOperator.NOT_IN, ("kube-system", "queues"))

TEAM = SelectorRequirement("team", SelectorOperator.EXISTS)


@pytest.mark.parametrize(
    ("given", "requirements"),
    [
        pytest.param("{}", (EXCLUDED,), id="all namespaces"),
        pytest.param(
            "{matchExpressions: [{key: team, operator: Exists}]}", (TEAM, EXCLUDED), id="some namespaces"
        ),
        pytest.param(
            "{matchExpressions: [{key: kubernetes.io/metadata.name, operator: Exists}]}",
            (SelectorRequirement(NAMESPACE_NAME, SelectorOperator.EXISTS), EXCLUDED),
            id="requirement on name",
        ),
        pytest.param(
            "{matchExpressions: "
            "[{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, queues]}]}",
            (EXCLUDED,),
            id="equal to the excluded namespaces",
        ),
    ],
)
def test_managed_namespaces_exclude_kube_system_and_own_namespace(
    given: str, requirements: tuple[SelectorRequirement, ...]
) -> None:
    configuration = load_configuration(f"{HEAD}namespace: queues\nmanagedJobsNamespaceSelector: {given}\n")
    selector = select_managed_namespaces(configuration)
    assert selector == LabelSelector(requirements)
    for namespace in ("kube-system", "queues"):
        assert not matches(selector, {NAMESPACE_NAME: namespace, "team": "a"})
    assert matches(selector, {NAMESPACE_NAME: "other", "team": "a"})
