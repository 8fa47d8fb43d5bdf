"""The network of simulated pods, as far as the API server uses it.

Simulated pods have addresses, but no machine has them. The API server sends its connections to pods and
nodes through this proxy (HTTP CONNECT, as its egress selector configuration says). A connection to a pod goes
to a program that answers in place of the pods. A connection to loopback, such as one to KWOK as a kubelet,
goes there. Programs in pods that act without being called run in this process, too.
"""

import argparse
import asyncio
import contextlib
import ipaddress
import ssl
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import aiohttp
from aiohttp import web

from localcluster.components import LOOPBACK
from localcluster.played_ray import PodAddresses, create_application
from localcluster.played_spark_driver import play_drivers

_HEAD_LIMIT = 16 * 1024


async def serve(port: int, tls: ssl.SSLContext, answering: int, addresses: PodAddresses) -> None:
    """Accept connections of the API server until cancelled.

    Args:
        port: the port on loopback.
        tls: its certificate.
        answering: the port on loopback of the program that answers in place of pods.
        addresses: receives the pod that each connection to this program is for.
    """

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            host, target_port = parse_connect(await reader.readuntil(b"\r\n\r\n"))
            if ipaddress.ip_address(host).is_loopback:
                await _relay(reader, writer, (host, target_port))
            else:
                await _relay(reader, writer, (LOOPBACK, answering), lambda own: addresses.noted(own, host))
        writer.close()

    server = await asyncio.start_server(handle, LOOPBACK, port, limit=_HEAD_LIMIT, ssl=tls)
    async with server:
        await server.serve_forever()


def parse_connect(head: bytes) -> tuple[str, int]:
    """Return the host and port of the head of a CONNECT request.

    Raises:
        ValueError: it is another request.
    """
    method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    host, _, port = target.rpartition(":")
    if method != "CONNECT":
        raise ValueError(f"not CONNECT but {method}")
    return host.strip("[]"), int(port)


async def _relay(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    target: tuple[str, int],
    note: Callable[[int], AbstractContextManager[None]] = lambda _: contextlib.nullcontext(),
) -> None:
    """Connect to a target and copy in both directions. ``note`` gets the own port of the connection."""
    try:
        target_reader, target_writer = await asyncio.open_connection(*target)
    except OSError:
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
        await writer.drain()
        return
    with contextlib.closing(target_writer), note(target_writer.get_extra_info("sockname")[1]):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(_copy(reader, target_writer), _copy(target_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy to the end, and end the other direction too."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


async def run(options: argparse.Namespace) -> None:
    """Act and answer for pods, and accept connections to them, until cancelled."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(options.certificate, options.key)
    headers = {"Authorization": f"Bearer {options.token_file.read_text()}"}
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=options.authority))
    async with aiohttp.ClientSession(options.server, headers=headers, connector=connector) as api:
        addresses = PodAddresses()
        runner = web.AppRunner(create_application(api, addresses))
        await runner.setup()
        site = web.TCPSite(runner, LOOPBACK, 0)
        await site.start()
        (address,) = runner.addresses
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(serve(options.port, tls, address[1], addresses))
                group.create_task(play_drivers(api))
        finally:
            await runner.cleanup()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the network of a cluster."""
    parser = argparse.ArgumentParser(description="Connect the API server to simulated pods.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--server", required=True)
    parser.add_argument("--authority", type=Path, required=True)
    parser.add_argument("--certificate", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--token-file", type=Path, required=True)
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
