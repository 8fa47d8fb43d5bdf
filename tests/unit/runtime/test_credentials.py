"""Credentials of the API server: tokens, kubeconfig files, service accounts and certificates."""

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
    TlsContextLoader,
    from_kubeconfig,
    from_service_account,
    load_credentials,
)


@pytest.fixture(scope="module")
def pair() -> tuple[bytes, bytes]:
    """Return a self-signed certificate and its key, as PEM."""
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


async def test_token_file_is_reread_after_max_age_and_stripped(tmp_path: Path):
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


async def test_renew_rereads_token_file_at_once(tmp_path: Path):
    path = tmp_path / "token"
    path.write_text("first")
    token = FileToken(path)
    assert await token.authorization() == "Bearer first"
    assert not await token.renew()
    path.write_text("second")
    assert await token.renew()
    assert await token.authorization() == "Bearer second"


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe"])
async def test_unreadable_token_file_keeps_last_token(tmp_path: Path, content: bytes | None):
    path = tmp_path / "token"
    path.write_text("first")
    token = FileToken(path)
    await token.authorization()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert not await token.renew()
    assert await token.authorization() == "Bearer first"


async def test_missing_token_file_is_named_in_error(tmp_path: Path):
    with pytest.raises(CredentialsError, match=r"nothing: no token could be read"):
        await FileToken(tmp_path / "nothing").authorization()


# Kubeconfig files


async def test_kubeconfig_token_is_sent_as_bearer_token(tmp_path: Path):
    credentials = from_kubeconfig([kubeconfig(tmp_path, {}, {"token": "secret"})])
    assert (credentials.server, credentials.namespace) == ("http://127.0.0.1:1", "team-a")
    identity = await credentials.identity()
    assert identity.headers == {"Authorization": "Bearer secret"}
    assert identity.tls is None


async def test_token_file_is_relative_to_kubeconfig_file(tmp_path: Path):
    (tmp_path / "token").write_text("from file")
    credentials = from_kubeconfig([kubeconfig(tmp_path, {}, {"tokenFile": "token"})])
    assert (await credentials.identity()).headers == {"Authorization": "Bearer from file"}


@pytest.mark.parametrize("embedded", [True, False])
async def test_client_certificate_is_read_from_data_or_files(
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
    credentials = from_kubeconfig([kubeconfig(tmp_path, cluster, user)])
    identity = await credentials.identity()
    assert identity.tls is not None
    assert identity.tls.verify_mode is ssl.CERT_REQUIRED
    assert identity.tls.cert_store_stats()["x509"] == 1
    assert credentials.server_name == "kubernetes"


async def test_insecure_skip_tls_verify_disables_verification(tmp_path: Path):
    cluster = {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}
    identity = await from_kubeconfig([kubeconfig(tmp_path, cluster, {})]).identity()
    assert identity.tls is not None
    assert identity.tls.verify_mode is ssl.CERT_NONE


async def test_first_of_several_kubeconfig_files_wins(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "token").write_text("relative")
    first = kubeconfig(tmp_path / "sub", {}, {"tokenFile": "token"}, "first")
    second = kubeconfig(tmp_path, {"server": "http://other"}, {"token": "second"}, "second")
    credentials = from_kubeconfig([tmp_path / "missing", first, second])
    assert credentials.server == "http://127.0.0.1:1"
    assert (await credentials.identity()).headers["Authorization"] == "Bearer relative"


async def test_impersonated_user_is_sent_as_header(tmp_path: Path):
    credentials = from_kubeconfig([kubeconfig(tmp_path, {}, {"token": "t", "as": "someone"})])
    assert (await credentials.identity()).headers["Impersonate-User"] == "someone"


@pytest.mark.parametrize(
    ("cluster", "user", "text"),
    [
        ({"server": "ftp://x"}, {}, "is not an http"),
        ({"server": None}, {}, "is not an http"),
        ({}, {"username": "u", "password": "p"}, "no passwords"),
        ({}, {"token": "t", "as-groups": ["g"]}, "as-groups"),
        (
            {"server": "https://x"},
            {"client-certificate": "cert.pem"},
            "set both client-certificate and client-key",
        ),
        ({"server": "https://x", "certificate-authority-data": "%%%"}, {}, "not base64"),
    ],
)
def test_unsupported_kubeconfig_setting_is_named_in_error(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], text: str
):
    with pytest.raises(CredentialsError, match=text):
        from_kubeconfig([kubeconfig(tmp_path, cluster, user)])


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("[not, a, mapping]", "it must contain a mapping"),
        ("{broken", "cannot be read"),
        ("{}", "no current-context"),
        ("current-context: x", "contexts contains no context 'x'"),
        (
            "{current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}]}",
            "clusters contains no cluster 'c'",
        ),
    ],
)
def test_invalid_kubeconfig_file_is_named_in_error(tmp_path: Path, content: str, text: str):
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(CredentialsError, match=text) as error:
        from_kubeconfig([path])
    assert str(path) in str(error.value)


def test_error_without_credentials_names_kubeconfig_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    with pytest.raises(CredentialsError, match="no such file; name one with --kubeconfig"):
        load_credentials()


async def test_exec_plugin_runs_once_until_renewal(tmp_path: Path):
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
    credentials = from_kubeconfig([kubeconfig(tmp_path, {}, user)])
    assert (await credentials.identity()).headers == {"Authorization": "Bearer t1"}
    assert (await credentials.identity()).headers == {"Authorization": "Bearer t1"}
    assert await credentials.renew()
    assert (await credentials.identity()).headers == {"Authorization": "Bearer t2"}


async def test_failing_exec_plugin_raises_credentials_error(tmp_path: Path):
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/nonexistent/plugin"}}
    credentials = from_kubeconfig([kubeconfig(tmp_path, {}, user)])
    with pytest.raises(CredentialsError, match="the user's plugin failed"):
        await credentials.identity()


def test_client_modules_do_not_import_kubernetes_asyncio():
    code = (
        "import sys, admitq.runtime.client, admitq.runtime.leases, admitq.runtime.events;"
        "sys.exit('kubernetes_asyncio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# In a pod


async def test_service_account_files_are_used_in_pod(tmp_path: Path, pair: tuple[bytes, bytes]):
    (tmp_path / "token").write_text("pod")
    (tmp_path / "namespace").write_text("admitq-system")
    (tmp_path / "ca.crt").write_bytes(pair[0])
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    credentials = from_service_account(tmp_path, environ)
    assert (credentials.server, credentials.namespace) == ("https://[fd00::1]:6443", "admitq-system")
    assert (await credentials.identity()).headers == {"Authorization": "Bearer pod"}


def test_service_account_outside_of_pod_raises_error(tmp_path: Path):
    with pytest.raises(CredentialsError, match="run in a pod, or name a kubeconfig"):
        from_service_account(tmp_path, {})


# Certificates


def test_tls_context_is_replaced_only_if_authority_changed(tmp_path: Path, pair: tuple[bytes, bytes]):
    path = tmp_path / "ca.crt"
    path.write_bytes(pair[0])
    tls = TlsContextLoader(authority=path, max_age_s=0)
    first = tls.load()
    assert tls.load() is first
    path.write_bytes(pair[0] + b"\n" + pair[0])
    assert tls.load() is not first


@pytest.mark.parametrize("content", [None, b"", b"half of a cert"])
def test_unreadable_authority_keeps_last_tls_context(
    tmp_path: Path, pair: tuple[bytes, bytes], content: bytes | None
):
    path = tmp_path / "ca.crt"
    path.write_bytes(pair[0])
    tls = TlsContextLoader(authority=path, max_age_s=0)
    first = tls.load()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert tls.load() is first
    path.write_bytes(pair[0] + b"\n")
    assert tls.load().cert_store_stats()["x509"] == 1


def test_missing_authority_raises_error(tmp_path: Path):
    with pytest.raises(CredentialsError, match="certificates of the API connection"):
        TlsContextLoader(authority=tmp_path / "nothing").load()


async def test_credentials_work_in_event_loops_of_several_threads(tmp_path: Path):
    (tmp_path / "token").write_text("shared")
    credentials = from_kubeconfig([kubeconfig(tmp_path, {}, {"tokenFile": "token"})])

    def headers_in_new_loop() -> Any:
        return asyncio.run(credentials.identity()).headers

    results = await asyncio.gather(*(asyncio.to_thread(headers_in_new_loop) for _ in range(4)))
    assert results == [{"Authorization": "Bearer shared"}] * 4
