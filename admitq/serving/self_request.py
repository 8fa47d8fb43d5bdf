"""Calls a server of this process as its clients do: over TLS, with verification of the certificate."""

import asyncio

import aiohttp

from admitq.serving.certificates import InvalidCertificate
from admitq.serving.http import JSON
from admitq.serving.tls import client_context


class NoAnswer(Exception):
    """The server gave no valid answer."""


async def post(
    url: str, body: bytes, *, server_name: str | None, trust: bytes, seconds: float = 2.0
) -> bytes:
    """Post a JSON body and return the body of the answer.

    Args:
        url: the requested URL.
        body: JSON.
        server_name: the host name that the certificate must have; None if only its CA matters.
        trust: PEM bundle of the trusted CAs.
        seconds: the longest time for the whole request.

    Raises:
        NoAnswer: no connection, a certificate that clients would reject, or another status than 200.
    """
    try:
        context = client_context(trust)
        context.check_hostname = server_name is not None
        async with (
            asyncio.timeout(seconds),
            aiohttp.TCPConnector(ssl=context, force_close=True) as connector,
            aiohttp.ClientSession(connector=connector, trust_env=False) as session,
            session.post(
                url,
                data=body,
                headers={"Content-Type": JSON},
                server_hostname=server_name,
            ) as response,
        ):
            if response.status != 200:
                raise NoAnswer(f"status {response.status}")
            return await response.read()
    except (aiohttp.ClientError, OSError, TimeoutError, InvalidCertificate) as error:
        raise NoAnswer(f"{type(error).__name__}: {error}") from error
