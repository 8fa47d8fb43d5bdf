"""Readiness of the webhook process: it answers over TLS with a certificate that the API server trusts."""

from collections.abc import Awaitable, Callable

import orjson

from admitq.serving.self_request import NoAnswer, post
from admitq_api.labels import Names
from admitq_webhooks.review import API_VERSION, KIND

_UID = "readiness"


def webhook_check(
    names: Names, *, port: int, server_name: str | None, trust: Callable[[], bytes], host: str = ""
) -> Callable[[], Awaitable[str | None]]:
    """Return a check that sends a review to the webhook and verifies the answer.

    The check returns None if the webhook is ready, otherwise the problem.

    Args:
        names: the names of the API group.
        port: the port of the webhook.
        host: the address on which the webhook listens; empty for all addresses.
        server_name: the name by which the API server calls the webhook; None if this process does not know
            it.
        trust: returns the CA certificates that the API server trusts, as PEM; empty while there are none.
    """
    kind = "ResourceFlavor"
    address = f"[{host}]" if ":" in host else host or "127.0.0.1"
    url = f"https://{address}:{port}{names.webhook_path('validate', names.group, names.version, kind)}"
    review = orjson.dumps(
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "request": {
                "uid": _UID,
                "kind": {"group": names.group, "version": names.version, "kind": kind},
                "operation": "CREATE",
                "dryRun": True,
                "object": {"metadata": {"name": _UID}, "spec": {}},
            },
        }
    )

    async def check() -> str | None:
        if not trust():
            return "no certificate yet that the API server trusts"
        try:
            answer = orjson.loads(await post(url, review, server_name=server_name, trust=trust()))
            response = answer["response"]
        except (NoAnswer, orjson.JSONDecodeError, KeyError, TypeError) as error:
            return f"the webhook does not answer: {error}"
        if response.get("uid") != _UID or response.get("allowed") is not True:
            return "the webhook gives a wrong answer"
        return None

    return check
