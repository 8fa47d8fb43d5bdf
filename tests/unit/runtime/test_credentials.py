import asyncio
import base64
import datetime as dt
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from admitq.runtime.credentials import (
    CredentialsError,
    FileToken,
    Trust,
    from_kubeconfig,
    from_service_account,
    load_credentials,
)


@pytest.fixture(scope="module")
def pair() -> tuple[bytes, bytes]:
    """A self-signed certificate and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem), private


def kubeconfig(folder: Path, cluster: dict[str, Any], user: dict[str, Any], name: str = "config") -> Path:
    path = folder / name
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1/", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


# Tokens


async def test_a_token_file_is_read_again_after_its_time_and_stripped(tmp_path: Path):
    now = 0.0
    path = tmp_path / "token"
    path.write_text(" first\n")
    token = FileToken(path, max_age_s=60, clock=lambda: now)
    assert await token.authorization() == "Bearer first"
    path.write_text("second\n")
    now = 59.0
    assert await token.authorization() == "Bearer first"
    now = 61.0
    assert await token.authorization() == "Bearer second"


async def test_a_refused_token_is_read_again_at_once(tmp_path: Path):
    path = tmp_path / "token"
    path.write_text("first")
    token = FileToken(path)
    assert await token.authorization() == "Bearer first"
    assert not await token.renew()
    path.write_text("second")
    assert await token.renew()
    assert await token.authorization() == "Bearer second"


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe"])
async def test_a_token_file_that_is_missing_or_empty_for_a_moment_takes_no_token_away(
    tmp_path: Path, content: bytes | None
):
    path = tmp_path / "token"
    path.write_text("first")
    token = FileToken(path)
    await token.authorization()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert not await token.renew()
    assert await token.authorization() == "Bearer first"


async def test_without_any_token_yet_the_file_is_named(tmp_path: Path):
    with pytest.raises(CredentialsError, match=r"nothing: no token could be read"):
        await FileToken(tmp_path / "nothing").authorization()


# Kubeconfig files


async def test_reads_a_bearer_token(tmp_path: Path):
    found = from_kubeconfig([kubeconfig(tmp_path, {}, {"token": "secret"})])
    assert (found.server, found.namespace) == ("http://127.0.0.1:1", "team-a")
    identity = await found.identity()
    assert identity.headers == {"Authorization": "Bearer secret"}
    assert identity.tls is None


async def test_a_token_file_is_relative_to_the_kubeconfig_file(tmp_path: Path):
    (tmp_path / "token").write_text("from file")
    found = from_kubeconfig([kubeconfig(tmp_path, {}, {"tokenFile": "token"})])
    assert (await found.identity()).headers == {"Authorization": "Bearer from file"}


@pytest.mark.parametrize("embedded", [True, False])
async def test_reads_a_client_certificate_as_data_or_as_files(
    tmp_path: Path, pair: tuple[bytes, bytes], embedded: bool
):
    certificate, key = pair
    (tmp_path / "cert.pem").write_bytes(certificate)
    (tmp_path / "key.pem").write_bytes(key)
    https = {"server": "https://127.0.0.1:1", "tls-server-name": "kubernetes"}
    if embedded:
        user = {
            "client-certificate-data": base64.b64encode(certificate).decode(),
            "client-key-data": base64.b64encode(key).decode(),
        }
        cluster = {**https, "certificate-authority-data": base64.b64encode(certificate).decode()}
    else:
        user = {"client-certificate": "cert.pem", "client-key": "key.pem"}
        cluster = {**https, "certificate-authority": "cert.pem"}
    found = from_kubeconfig([kubeconfig(tmp_path, cluster, user)])
    identity = await found.identity()
    assert identity.tls is not None
    assert identity.tls.verify_mode is ssl.CERT_REQUIRED
    assert identity.tls.cert_store_stats()["x509"] == 1
    assert found.server_name == "kubernetes"


async def test_verification_is_left_out_only_where_asked_for(tmp_path: Path):
    cluster = {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}
    identity = await from_kubeconfig([kubeconfig(tmp_path, cluster, {})]).identity()
    assert identity.tls is not None
    assert identity.tls.verify_mode is ssl.CERT_NONE


async def test_of_several_files_the_first_to_name_something_counts(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "token").write_text("relative")
    first = kubeconfig(tmp_path / "sub", {}, {"tokenFile": "token"}, "first")
    second = kubeconfig(tmp_path, {"server": "http://other"}, {"token": "second"}, "second")
    found = from_kubeconfig([tmp_path / "missing", first, second])
    assert found.server == "http://127.0.0.1:1"
    assert (await found.identity()).headers["Authorization"] == "Bearer relative"


async def test_impersonation_is_sent_along(tmp_path: Path):
    found = from_kubeconfig([kubeconfig(tmp_path, {}, {"token": "t", "as": "someone"})])
    assert (await found.identity()).headers["Impersonate-User"] == "someone"


@pytest.mark.parametrize(
    ("cluster", "user", "text"),
    [
        ({"server": "ftp://x"}, {}, "is not an http"),
        ({"server": None}, {}, "is not an http"),
        ({}, {"username": "u", "password": "p"}, "no passwords"),
        ({}, {"token": "t", "as-groups": ["g"]}, "as-groups"),
        ({"server": "https://x"}, {"client-certificate": "cert.pem"}, "needs its key"),
        ({"server": "https://x", "certificate-authority-data": "%%%"}, {}, "not base64"),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], text: str
):
    with pytest.raises(CredentialsError, match=text):
        from_kubeconfig([kubeconfig(tmp_path, cluster, user)])


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("[not, a, mapping]", "a mapping was expected"),
        ("{broken", "cannot be read"),
        ("{}", "no current-context"),
        ("current-context: x", "context 'x' is not among its contexts"),
        (
            "{current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}]}",
            "cluster 'c' is not among its clusters",
        ),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, content: str, text: str):
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(CredentialsError, match=text) as caught:
        from_kubeconfig([path])
    assert str(path) in str(caught.value)


def test_without_any_credentials_the_places_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    with pytest.raises(CredentialsError, match="no such file; name one with --kubeconfig"):
        load_credentials()


async def test_an_exec_plugin_is_run_once_per_expiry_and_again_when_refused(tmp_path: Path):
    plugin = tmp_path / "plugin"
    plugin.write_text(
        "#!/bin/sh\n"
        f"echo run >> {tmp_path}/runs\n"
        'echo \'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",\'\n'
        f'echo "\\"status\\": {{\\"token\\": \\"t$(wc -l < {tmp_path}/runs | tr -d " ")\\"}}}}"\n'
    )
    plugin.chmod(0o755)
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(plugin),
            "interactiveMode": "Never",
        }
    }
    found = from_kubeconfig([kubeconfig(tmp_path, {}, user)])
    assert (await found.identity()).headers == {"Authorization": "Bearer t1"}
    assert (await found.identity()).headers == {"Authorization": "Bearer t1"}
    assert await found.renew()
    assert (await found.identity()).headers == {"Authorization": "Bearer t2"}


async def test_a_failing_exec_plugin_is_an_error_of_credentials(tmp_path: Path):
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/nonexistent/plugin"}}
    found = from_kubeconfig([kubeconfig(tmp_path, {}, user)])
    with pytest.raises(CredentialsError, match="the user's plugin failed"):
        await found.identity()


def test_the_heavy_library_is_not_imported_without_need():
    code = (
        "import sys, admitq.runtime.client, admitq.runtime.leases, admitq.runtime.events;"
        "sys.exit('kubernetes_asyncio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# In a pod


async def test_the_service_accounts_files_are_used_in_a_pod(tmp_path: Path, pair: tuple[bytes, bytes]):
    (tmp_path / "token").write_text("pod")
    (tmp_path / "namespace").write_text("admitq-system")
    (tmp_path / "ca.crt").write_bytes(pair[0])
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    found = from_service_account(tmp_path, environ)
    assert (found.server, found.namespace) == ("https://[fd00::1]:6443", "admitq-system")
    assert (await found.identity()).headers == {"Authorization": "Bearer pod"}


def test_outside_of_a_pod_that_is_said(tmp_path: Path):
    with pytest.raises(CredentialsError, match="run in a pod, or name a kubeconfig"):
        from_service_account(tmp_path, {})


# Certificates


def test_a_changed_authority_makes_a_new_context_and_an_equal_one_does_not(
    tmp_path: Path, pair: tuple[bytes, bytes]
):
    path = tmp_path / "ca.crt"
    path.write_bytes(pair[0])
    trust = Trust(authority=path, max_age_s=0)
    first = trust.look()
    assert trust.look() is first
    path.write_bytes(pair[0] + b"\n" + pair[0])
    assert trust.look() is not first


@pytest.mark.parametrize("content", [None, b"", b"half of a cert"])
def test_an_authority_that_is_broken_for_a_moment_changes_nothing(
    tmp_path: Path, pair: tuple[bytes, bytes], content: bytes | None
):
    path = tmp_path / "ca.crt"
    path.write_bytes(pair[0])
    trust = Trust(authority=path, max_age_s=0)
    first = trust.look()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert trust.look() is first
    path.write_bytes(pair[0] + b"\n")
    assert trust.look().cert_store_stats()["x509"] == 1


def test_an_authority_that_never_was_readable_is_an_error(tmp_path: Path):
    with pytest.raises(CredentialsError, match="certificates of the API connection"):
        Trust(authority=tmp_path / "nothing").look()


async def test_credentials_may_be_shared_by_event_loops_in_several_threads(tmp_path: Path):
    (tmp_path / "token").write_text("shared")
    found = from_kubeconfig([kubeconfig(tmp_path, {}, {"tokenFile": "token"})])

    def elsewhere() -> Any:
        return asyncio.run(found.identity()).headers

    results = await asyncio.gather(*(asyncio.to_thread(elsewhere) for _ in range(4)))
    assert results == [{"Authorization": "Bearer shared"}] * 4
