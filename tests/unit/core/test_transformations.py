"""Transformations of requests, in exact amounts."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.core.settings import Resources, Transformation, TransformationOutput
from admitq.core.transformations import transform
from tests.unit.core.fractions_drawn import ratios

Outputs = dict[str, str]


def transformation(
    input_: str, outputs: Outputs, *, retain: bool = False, multiply_by: str | None = None
) -> Transformation:
    return Transformation(
        input_,
        tuple(TransformationOutput(resource, Fraction(factor)) for resource, factor in outputs.items()),
        retain,
        multiply_by,
    )


def exact(of: Outputs) -> dict[str, Fraction]:
    return {resource: Fraction(amount) for resource, amount in of.items()}


MIG = transformation("mig-1g", {"accelerator": "5", "memory": "1024"})


@pytest.mark.parametrize(
    ("transformations", "requests", "expected"),
    [
        pytest.param((), {"cpu": "1"}, {"cpu": "1"}, id="none"),
        pytest.param((MIG,), {"cpu": "1"}, {"cpu": "1"}, id="input not requested"),
        pytest.param(
            (MIG,), {"mig-1g": "2", "memory": "1"}, {"accelerator": "10", "memory": "2049"}, id="replace"
        ),
        pytest.param(
            (transformation("cpu", {"credits": "10"}, retain=True),),
            {"cpu": "3/10"},
            {"cpu": "3/10", "credits": "3"},
            id="retain",
        ),
        pytest.param(
            (transformation("cpu", {"credits": "1000"}),),
            {"cpu": "3/10"},
            {"credits": "300"},
            id="fraction of a CPU is not rounded first",
        ),
        pytest.param((transformation("cpu", {}),), {"cpu": "1", "gpu": "1"}, {"gpu": "1"}, id="no output"),
        pytest.param(
            (transformation("a", {"b": "1"}), transformation("b", {"a": "2"})),
            {"a": "3", "b": "5"},
            {"a": "10", "b": "3"},
            id="outputs are not inputs again",
        ),
        pytest.param(
            (transformation("gpu-memory", {"credits": "1"}, multiply_by="gpu"),),
            {"gpu-memory": "40", "gpu": "2"},
            {"gpu": "2", "credits": "80"},
            id="multiplied by another request",
        ),
        pytest.param(
            (transformation("gpu-memory", {"credits": "1"}, multiply_by="gpu"),),
            {"gpu-memory": "40"},
            {"credits": "40"},
            id="multiplied by resource without request",
        ),
        pytest.param(
            (transformation("gpu-memory", {"credits": "1"}, multiply_by="gpu"),),
            {"gpu-memory": "40", "gpu": "0"},
            {"gpu": "0", "credits": "0"},
            id="multiplied by request of 0",
        ),
        pytest.param(
            (transformation("a", {"c": "-2"}), transformation("b", {"c": "1"})),
            {"a": "1", "b": "5", "c": "1"},
            {"c": "4"},
            id="outputs are added up before negative amounts are removed",
        ),
        pytest.param(
            (transformation("a", {"c": "-9"}),),
            {"a": "1", "c": "1"},
            {"c": "1"},
            id="negative output does not reduce own request",
        ),
        pytest.param((), {"a": "-1"}, {"a": "0"}, id="negative request counts as 0"),
    ],
)
def test_requests_are_transformed_as_configured(
    transformations: tuple[Transformation, ...], requests: Outputs, expected: Outputs
) -> None:
    assert transform(exact(requests), Resources(transformations=transformations)) == exact(expected)


def test_excluded_resources_are_removed_before_transformations() -> None:
    settings = Resources(
        excluded_prefixes=("example.com/", "x"),
        transformations=(
            transformation("example.com/nic", {"ports": "2"}),
            transformation("cpu", {"credits": "1"}, retain=True, multiply_by="xeon"),
        ),
    )
    requests = exact({"example.com/nic": "1", "xeon": "7", "cpu": "2", "vexample.com/nic": "1"})
    assert transform(requests, settings) == exact({"cpu": "2", "credits": "2", "vexample.com/nic": "1"})


RESOURCES = ("a", "b", "c", "d")
resources = st.sampled_from(RESOURCES)
amounts = ratios(0, 5000, denominators=1000)
transformations = st.lists(
    st.builds(
        Transformation,
        resources,
        st.lists(
            st.builds(TransformationOutput, resources, ratios(-5000, 5000, denominators=1000)), max_size=3
        ).map(tuple),
        st.booleans(),
        st.none() | resources,
    ),
    max_size=4,
    unique_by=lambda each: each.input,
)


@given(st.dictionaries(resources, amounts), transformations)
def test_amount_of_resource_is_own_request_plus_generated_outputs(
    requests: dict[str, Fraction], configured: list[Transformation]
) -> None:
    result = transform(requests, Resources(transformations=tuple(configured)))
    replaced = {each.input for each in configured if not each.retain}
    for resource in RESOURCES:
        generated = sum(
            requests[each.input] * requests.get(each.multiply_by or "", 1) * output.factor
            for each in configured
            for output in each.outputs
            if each.input in requests and output.resource == resource
        )
        own = 0 if resource in replaced else requests.get(resource, 0)
        assert result.get(resource, 0) == own + max(0, generated)
        assert result.get(resource, 0) >= 0
