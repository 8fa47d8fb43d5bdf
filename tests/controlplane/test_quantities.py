"""Quantities mean to us what they mean to the API server: the same table as for our own reading."""

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


async def understood(client: Client, namespace: str, quantity: str) -> Fraction | None:
    """What the API server stores for a quantity, or None if it cannot read it."""
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
        # A negative one was read, and is shown in the refusal as it was understood.
        return parse_quantity(quantity) if NEGATIVE in error.message else None
    return parse_quantity(stored["spec"]["containers"][0]["resources"]["limits"]["memory"])


async def test_api_server_reads_quantities_like_admitq(client: Client, namespace: str) -> None:
    found = {text: await understood(client, namespace, text) for text in CASES["values"]}
    # Of the resources of containers the API server keeps no more than thousandths, rounded up.
    wanted = {text: Fraction(value) for text, value in CASES["values"].items()}
    assert found == {
        text: value if value < 0 else Fraction(ceil(value * 1000), 1000) for text, value in wanted.items()
    }


async def test_api_server_refuses_the_quantities_that_admitq_refuses(client: Client, namespace: str) -> None:
    # JSON has no text for it that the API server would not trim or take for absent.
    tried = [text for text in CASES["refused"] if text.strip() == text and text]
    assert [text for text in tried if await understood(client, namespace, text) is not None] == []
