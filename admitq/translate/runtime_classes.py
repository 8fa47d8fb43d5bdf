"""RuntimeClasses."""

from admitq.core.model import ExactAmounts
from admitq.translate.amounts import read_exact_amounts
from admitq_api.json_objects import JsonObject
from admitq_api.stored_fields import require_object


def read_overhead(runtime_class: JsonObject) -> ExactAmounts:
    """Read the overhead that a RuntimeClass adds to each of its pods.

    Raises:
        MalformedField: a quantity is not readable.
    """
    field = "overhead.podFixed"
    return read_exact_amounts(
        require_object(runtime_class.get("overhead"), "overhead").get("podFixed"), field
    )
