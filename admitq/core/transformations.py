"""Transformations of requests: resources that are excluded, and resources that count as other resources.

Amounts are exact and in the unit of the resource: 300 milli-CPU, multiplied by 1000, are 300.
"""

from collections.abc import Mapping
from fractions import Fraction

from admitq.core.settings import Resources


def transform(requests: Mapping[str, Fraction], settings: Resources) -> dict[str, Fraction]:
    """Return the requests of one pod after transformations (semantics, Resource arithmetic).

    The outputs of transformations are summed by resource. Each sum, if positive, is added to the pod's own
    requests. No result is negative.
    """
    requested = {
        resource: amount
        for resource, amount in requests.items()
        if not resource.startswith(settings.excluded_prefixes)
    }
    generated: dict[str, Fraction] = {}
    result = dict(requested)
    for transformation in settings.transformations:
        amount = requested.get(transformation.input)
        if amount is None:
            continue
        if transformation.multiply_by is not None:
            amount *= requested.get(transformation.multiply_by, 1)
        for output in transformation.outputs:
            generated[output.resource] = generated.get(output.resource, Fraction()) + amount * output.factor
        if not transformation.retain:
            result.pop(transformation.input, None)
    for resource, amount in generated.items():
        result[resource] = result.get(resource, Fraction()) + max(Fraction(), amount)
    return {resource: max(Fraction(), amount) for resource, amount in result.items()}
