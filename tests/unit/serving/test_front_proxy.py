"""Users of forwarded requests: only a verified certificate of the front proxy lets headers name a user."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from admitq.serving.certificates import InvalidCertificate
from admitq.serving.front_proxy import FrontProxy, FrontProxyUsers, InvalidFrontProxy
from admitq.serving.http import HttpRequest, HttpResponse
from admitq.serving.server import Server
from admitq.serving.tls import LiveCertificate, client_context
from localcluster.pki import Authority, Pair
from tests.unit.serving.support import authority, leaf_of

DATA = {
    "requestheader-client-ca-file": "-----BEGIN CERTIFICATE-----",
    "requestheader-allowed-names": '["front-proxy"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A client certificate with the common name front-proxy, as DER."""
    pair = Authority.create(tmp_path_factory.mktemp("pki"), "ca").client("proxy", "front-proxy")
    return der(pair.certificate.read_bytes())


def der(pem: bytes) -> bytes:
    return x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)


def forwarded(certificate: bytes | None, *lines: tuple[str, str]) -> HttpRequest:
    return HttpRequest("GET", "/", header_lines=lines, client_certificate=certificate)


def users(**changes: str) -> FrontProxyUsers:
    found = FrontProxyUsers()
    found.front_proxy = FrontProxy.from_config_map({**DATA, **changes})
    return found


def test_headers_of_front_proxy_name_user_groups_and_extra(encoded: bytes) -> None:
    request = forwarded(
        encoded,
        ("X-Remote-User", "anna"),
        ("x-remote-group", "team"),
        ("X-Remote-Group", "others"),
        ("X-Remote-Uid", "7"),
        ("X-Remote-Extra-Scopes%2fRead", "a"),
        ("X-REMOTE-EXTRA-scopes%2Fread", "b"),
        ("X-Other", "c"),
    )
    user = users().find_user(request)
    assert user is not None
    assert (user.name, user.uid) == ("anna", "7")
    assert user.groups == ("team", "others", "system:authenticated")
    assert user.extra == (("scopes/read", ("a", "b")),)


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("system:anonymous", ("system:unauthenticated",)),
        ("system:anonymous", ()),
        ("anna", ("system:authenticated",)),
    ],
)
def test_group_of_authenticated_users_is_not_added_to_others(
    encoded: bytes, name: str, groups: tuple[str, ...]
) -> None:
    lines = [("X-Remote-User", name), *(("X-Remote-Group", group) for group in groups)]
    user = users().find_user(forwarded(encoded, *lines))
    assert user is not None
    assert user.groups == groups


def test_headers_without_certificate_name_nobody(encoded: bytes) -> None:
    line = ("X-Remote-User", "anna")
    assert users().find_user(forwarded(None, line)) is None
    assert FrontProxyUsers().find_user(forwarded(encoded, line)) is None
    assert users().find_user(forwarded(encoded, ("X-Remote-Group", "team"))) is None
    assert users().find_user(forwarded(encoded, ("X-Remote-User", ""))) is None


def test_certificate_with_another_common_name_is_ignored(encoded: bytes) -> None:
    request = forwarded(encoded, ("X-Remote-User", "anna"))
    assert users(**{"requestheader-allowed-names": '["other"]'}).find_user(request) is None
    assert users(**{"requestheader-allowed-names": "[]"}).find_user(request) is not None


@pytest.mark.parametrize("years", [-1, 2])
def test_certificate_outside_its_validity_is_ignored(encoded: bytes, years: int) -> None:
    late = FrontProxyUsers(lambda: time.time() + years * 365 * 86400)
    late.front_proxy = FrontProxy.from_config_map(DATA)
    assert late.find_user(forwarded(encoded, ("X-Remote-User", "anna"))) is None


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"requestheader-client-ca-file": ""}, "start kube-apiserver with --requestheader-client-ca-file"),
        ({"requestheader-allowed-names": "front-proxy"}, "requestheader-allowed-names is not JSON"),
        ({"requestheader-group-headers": "{}"}, "requestheader-group-headers is not a list of texts"),
        ({"requestheader-group-headers": "[1]"}, "requestheader-group-headers is not a list of texts"),
    ],
)
def test_unreadable_settings_are_rejected(changes: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidFrontProxy, match=problem):
        FrontProxy.from_config_map({**DATA, **changes})


# --- the TLS connection -----------------------------------------------------------------------------------


async def show_client(request: HttpRequest) -> HttpResponse:
    """Answer with the client certificate of the request."""
    return HttpResponse(200, request.client_certificate or b"none")


@dataclass
class VerifyingServer:
    """A server that verifies certificates of clients."""

    server: Server
    live: LiveCertificate
    url: str
    trust: bytes

    def session(self, pair: Pair | None) -> aiohttp.ClientSession:
        """Open a client with a certificate, or without one."""
        context = client_context(self.trust)
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context))

    async def show(self, session: aiohttp.ClientSession) -> bytes:
        """Return the certificate that the server has seen."""
        async with session.get(self.url) as answer:
            return await answer.read()


@asynccontextmanager
async def server_for(authorities: bytes) -> AsyncGenerator[VerifyingServer]:
    own = authority()
    live = LiveCertificate()
    live.use(leaf_of(own))
    live.trust_clients(authorities)
    server = Server(show_client, tls=lambda: live.context)
    _, port = await server.start("127.0.0.1", 0)
    try:
        yield VerifyingServer(server, live, f"https://localhost:{port}/", own.certificate)
    finally:
        await server.stop(linger=0, grace=1)


@dataclass
class Clients:
    """An authority of clients, and a certificate of it."""

    authority: bytes
    pair: Pair
    encoded: bytes


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> tuple[Clients, Clients]:
    """The clients of two authorities."""

    def create() -> Clients:
        signer = Authority.create(tmp_path_factory.mktemp("pki"), "ca")
        pair = signer.client("client", "client")
        return Clients(signer.pair.certificate.read_bytes(), pair, der(pair.certificate.read_bytes()))

    return create(), create()


async def test_request_has_verified_certificate_of_its_client(clients: tuple[Clients, Clients]) -> None:
    known, _ = clients
    async with server_for(known.authority) as running:
        async with running.session(None) as session:
            assert await running.show(session) == b"none"
        async with running.session(known.pair) as session:
            assert await running.show(session) == known.encoded


async def test_handshake_fails_with_certificate_of_another_authority(
    clients: tuple[Clients, Clients],
) -> None:
    known, other = clients
    async with server_for(known.authority) as running, running.session(other.pair) as session:
        with pytest.raises(aiohttp.ClientError):
            await running.show(session)


async def test_changed_authority_applies_to_open_connections(clients: tuple[Clients, Clients]) -> None:
    old, new = clients
    async with server_for(old.authority) as running, running.session(old.pair) as session:
        assert await running.show(session) == old.encoded
        running.live.trust_clients(new.authority)
        # The client still uses its connection from before. The server closes it after the answer.
        assert await running.show(session) == b"none"
        with pytest.raises(aiohttp.ClientError):
            await running.show(session)


async def test_added_authority_does_not_interrupt_clients(clients: tuple[Clients, Clients]) -> None:
    old, new = clients
    async with server_for(old.authority) as running, running.session(old.pair) as session:
        assert await running.show(session) == old.encoded
        running.live.trust_clients(old.authority + new.authority)
        running.server.close_idle()
        assert await running.show(session) == old.encoded


def test_bundle_without_certificate_is_rejected() -> None:
    live = LiveCertificate()
    before = live.context
    with pytest.raises(InvalidCertificate):
        live.trust_clients(b"no certificate")
    assert live.context is before


def names_in_order(lines: Sequence[tuple[str, str]], name: str) -> tuple[str, ...]:
    return HttpRequest("GET", "/", header_lines=lines).header_values(name)


def test_request_has_all_values_of_a_header() -> None:
    lines = [("Accept", "a"), ("X-Group", "one"), ("x-group", "two")]
    assert names_in_order(lines, "X-GROUP") == ("one", "two")
    assert names_in_order(lines, "missing") == ()
