"""admitq and the API server parse quantities alike: the table is that of admitq's parser."""

from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import yaml

from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import PODS
from admitq_api.quantity import parse_quantity

CASES: dict[str, Any] = yaml.safe_load(
    Path(__file__).parents[1].joinpath("unit", "api", "cases", "quantities.yaml").read_text(encoding="utf-8")
)
NEGATIVE = "must be greater than or equal to 0"


async def stored_quantity(client: Client, namespace: str, quantity: str) -> Fraction | None:
    """The quantity that the API server stores, or None if it cannot parse it."""
    container = {"name": "a", "image": "a", "resources": {"limits": {"memory": quantity}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [container]},
    }
    try:
        stored = await client.create(PODS, pod, namespace, dry_run=True)
    except ApiError as error:
        if not error.is_invalid:
            raise
        # A negative quantity is refused after it was parsed.
        return parse_quantity(quantity) if NEGATIVE in error.message else None
    return parse_quantity(stored["spec"]["containers"][0]["resources"]["limits"]["memory"])


async def test_api_server_reads_quantities_like_admitq(client: Client, namespace: str) -> None:
    found = {text: await stored_quantity(client, namespace, text) for text in CASES["values"]}
    # The API server rounds resources of containers up to thousandths.
    values = {text: Fraction(value) for text, value in CASES["values"].items()}
    assert found == {
        text: value if value < 0 else Fraction(ceil(value * 1000), 1000) for text, value in values.items()
    }


async def test_api_server_refuses_the_quantities_that_admitq_refuses(client: Client, namespace: str) -> None:
    # The API server trims spaces, and treats an empty text as absent.
    tried = [text for text in CASES["refused"] if text.strip() == text and text]
    assert [text for text in tried if await stored_quantity(client, namespace, text) is not None] == []
