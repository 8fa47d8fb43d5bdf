"""RuntimeClasses."""

from admitq.core.model import ExactAmounts
from admitq.integrations.paths import Object
from admitq.translate.amounts import read_exact_amounts
from admitq_api.stored_fields import mapping


def read_overhead(runtime_class: Object) -> ExactAmounts:
    """Read the overhead that a RuntimeClass adds to each of its pods.

    Raises:
        Malformed: a quantity is not readable.
    """
    field = "overhead.podFixed"
    return read_exact_amounts(mapping(runtime_class.get("overhead"), "overhead").get("podFixed"), field)
