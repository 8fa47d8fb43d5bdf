"""How requests count: resources left out, and resources that count as others.

All amounts are exact and in the resource's own unit, so that a factor means what it says: 300 milli-CPU
times 1000 are 300, whatever CPU is counted in later.
"""

from collections.abc import Mapping
from fractions import Fraction

from admitq.core.settings import Resources


def counted(requests: Mapping[str, Fraction], settings: Resources) -> dict[str, Fraction]:
    """What the requests of one pod count as (semantics, Resource arithmetic).

    What transformations generate is summed for each output and never below zero, before it comes on top of
    what the pod asks for itself. Nothing of the result is below zero.
    """
    asked = {
        resource: amount
        for resource, amount in requests.items()
        if not resource.startswith(settings.excluded_prefixes)
    }
    generated: dict[str, Fraction] = {}
    result = dict(asked)
    for each in settings.transformations:
        amount = asked.get(each.input)
        if amount is None:
            continue
        if each.multiply_by is not None:
            amount *= asked.get(each.multiply_by, 1)
        for output in each.outputs:
            generated[output.resource] = generated.get(output.resource, Fraction()) + amount * output.factor
        if not each.retain:
            result.pop(each.input, None)
    for resource, amount in generated.items():
        result[resource] = result.get(resource, Fraction()) + max(Fraction(), amount)
    return {resource: max(Fraction(), amount) for resource, amount in result.items()}
