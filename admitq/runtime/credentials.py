"""Finds the API server and authenticates the client.

This module reads the files of a pod's service account. In a kubeconfig file it reads a bearer token, the path
of a token file, or a client certificate. Only for a user with an exec plugin or an auth provider (OIDC) it
calls kubernetes_asyncio. That import takes about a second and 70 MB, so it happens in a thread.

Tokens and certificates from files are read again after a minute, and at once when the server answers 401. The
kubelet rotates the token, and the certificate authority may change too.
"""

import asyncio
import base64
import contextlib
import os
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

MAX_AGE_S = 60.0
"""The seconds after which a token or a certificate is read from its file again."""


class CredentialsError(Exception):
    """The credentials cannot be used. The message names the file, the error and the remedy."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The headers and the TLS context that authenticate a request. Without TLS context it is plain HTTP."""

    headers: Mapping[str, str]
    tls: ssl.SSLContext | None


class Token(Protocol):
    """A source of the ``Authorization`` header, usable from any thread and event loop."""

    async def authorization(self) -> str | None:
        """Return the value of the header; None to send no header."""
        ...

    async def renew(self) -> bool:
        """Fetch the token again after a 401. Return whether it changed."""
        ...


@dataclass(slots=True)
class StaticToken:
    """A token that the kubeconfig file contains, or no token."""

    token: str | None

    async def authorization(self) -> str | None:
        """Return the value of the header; None without a token."""
        return f"Bearer {self.token}" if self.token else None

    async def renew(self) -> bool:
        """Return False: the token never changes."""
        return False


@dataclass(slots=True)
class FileToken:
    """A token in a file that another program rotates.

    While the file is missing or empty, such as during its replacement, the last token stays in use.
    """

    path: Path
    max_age_s: float = MAX_AGE_S
    clock: Callable[[], float] = time.monotonic
    _token: str = field(default="", init=False)
    _read_at: float = field(default=float("-inf"), init=False)

    async def authorization(self) -> str | None:
        """Return the value of the header.

        Raises:
            CredentialsError: No token could be read yet.
        """
        if not self._token or self.clock() - self._read_at > self.max_age_s:
            await self._read()
        if not self._token:
            raise CredentialsError(f"{self.path}: no token could be read; check that the volume is mounted")
        return f"Bearer {self._token}"

    async def renew(self) -> bool:
        """Read the file again."""
        before = self._token
        await self._read()
        return self._token != before

    async def _read(self) -> None:
        self._read_at = self.clock()
        # In a thread, since the volume of the file may hang, which must not block the event loop.
        text = await asyncio.to_thread(_read_text_or_empty, self.path)
        self._token = text or self._token


def _read_text_or_empty(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


class PluginToken:
    """The token or certificate of a kubeconfig user with an exec plugin or an auth provider.

    The plugin runs in a thread, one call at a time. Its result is used until the expiry that it states.
    """

    def __init__(self, kubeconfig: str, context: str | None, *, max_age_s: float = MAX_AGE_S) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._max_age_s = max_age_s
        self._lock = threading.Lock()
        self._loader: Any = None
        self._fetched_at = float("-inf")
        self._authorization: str | None = None
        self.certificate: CertificateFiles | None = None

    async def authorization(self) -> str | None:
        """Return the value of the header; None if the plugin returned a certificate."""
        if time.monotonic() - self._fetched_at > self._max_age_s:
            await asyncio.to_thread(self._fetch, ignore_expiry=False)
        return self._authorization

    async def renew(self) -> bool:
        """Run the plugin again, also before its last result expires. Return whether the result changed."""
        before = self._authorization, self.certificate
        await asyncio.to_thread(self._fetch, ignore_expiry=True)
        return before != (self._authorization, self.certificate)

    def _fetch(self, *, ignore_expiry: bool) -> None:
        with self._lock:
            if not ignore_expiry and time.monotonic() - self._fetched_at <= self._max_age_s:
                return
            # This thread may block during the import and the plugin's call; the event loop must not.
            from kubernetes_asyncio.client import Configuration  # noqa: PLC0415
            from kubernetes_asyncio.config import load_kube_config  # noqa: PLC0415

            configuration: Any = Configuration()
            try:
                if self._loader is None or ignore_expiry:
                    self._loader = asyncio.run(
                        load_kube_config(self._kubeconfig, self._context, client_configuration=configuration)
                    )
                else:
                    asyncio.run(self._loader.load_and_set(configuration))
            except Exception as error:
                raise CredentialsError(f"{self._kubeconfig}: the user's plugin failed: {error}") from error
            self._authorization = configuration.api_key.get("BearerToken")
            if configuration.cert_file:
                self.certificate = CertificateFiles(
                    Path(configuration.cert_file), Path(configuration.key_file or configuration.cert_file)
                )
            self._fetched_at = time.monotonic()


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A client certificate and its key as PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class CertificateData:
    """A client certificate and its key in PEM format."""

    certificate: bytes
    key: bytes


class TlsContextLoader:
    """Creates the TLS context of connections, and replaces it after a change of its files."""

    def __init__(
        self,
        *,
        authority: Path | bytes | None = None,
        certificate: CertificateFiles | CertificateData | None = None,
        verify: bool = True,
        max_age_s: float = MAX_AGE_S,
    ) -> None:
        self._authority = authority
        self._certificate = certificate
        self._verify = verify
        self._max_age_s = max_age_s
        self._lock = threading.Lock()
        self._context: ssl.SSLContext | None = None
        self._contents: tuple[bytes | None, bytes, bytes] | None = None
        self._read_at = float("-inf")

    def cached(self) -> ssl.SSLContext | None:
        """Return the context, or None if it is time to read the files again."""
        return self._context if time.monotonic() - self._read_at <= self._max_age_s else None

    def load(self, plugin: CertificateFiles | None = None) -> ssl.SSLContext:
        """Read the files and return the context. This blocks, so call it in a thread.

        Raises:
            CredentialsError: A file is missing or not PEM, and no earlier context exists.
        """
        with self._lock:
            self._read_at = time.monotonic()
            try:
                contents = self._read(plugin or self._certificate)
                if self._context is None or contents != self._contents:
                    self._context = self._create_context(*contents)
                    self._contents = contents
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                # A file may be incomplete during its replacement: use the old context until the next reading.
                if self._context is None:
                    raise CredentialsError(f"certificates of the API connection: {error}") from error
            return self._context

    def _read(
        self, certificate: CertificateFiles | CertificateData | None
    ) -> tuple[bytes | None, bytes, bytes]:
        authority = self._authority.read_bytes() if isinstance(self._authority, Path) else self._authority
        match certificate:
            case CertificateFiles():
                return authority, certificate.certificate.read_bytes(), certificate.key.read_bytes()
            case CertificateData():
                return authority, certificate.certificate, certificate.key
            case None:
                return authority, b"", b""

    def _create_context(self, authority: bytes | None, certificate: bytes, key: bytes) -> ssl.SSLContext:
        if authority is not None and not authority.strip():
            # With an empty text, the ssl module would trust the authorities of the system.
            raise ValueError(f"{self._authority!s}: the certificate authority is empty")
        context = ssl.create_default_context(
            cadata=authority.decode("ascii", "ignore") if authority else None
        )
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Python 3.13 requires key identifiers, which certificate authorities of older clusters do not have.
        # As in other Kubernetes clients, the chain is verified without this check.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self._verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate:
            # The ssl module loads key pairs from files only.
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "pair.pem")
                path.touch(mode=0o600)
                path.write_bytes(certificate + b"\n" + key)
                context.load_cert_chain(path)
        return context


@dataclass(slots=True)
class Credentials:
    """The address of the API server, and how to authenticate. Several clients and threads may share it.

    ``server`` is the base URL without a trailing slash. ``namespace`` is the default namespace.
    """

    server: str
    token: Token = field(default_factory=lambda: StaticToken(None))
    tls: TlsContextLoader | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    namespace: str = "default"
    server_name: str | None = None
    proxy: str | None = None

    async def identity(self) -> Identity:
        """Return the headers and the TLS context of the next request."""
        return await self._identity(reload=False)

    async def renew(self) -> bool:
        """Read all files and run the plugin again, after a 401. Return whether the token changed."""
        changed = await self.token.renew()
        await self._identity(reload=True)
        return changed

    async def _identity(self, *, reload: bool) -> Identity:
        authorization = await self.token.authorization()
        headers = {**self.headers, "Authorization": authorization} if authorization else self.headers
        if self.tls is None:
            return Identity(headers, None)
        plugin = self.token.certificate if isinstance(self.token, PluginToken) else None
        context = None if reload else self.tls.cached()
        return Identity(headers, context or await asyncio.to_thread(self.tls.load, plugin))


def load_credentials(kubeconfig: Path | None = None, *, context: str | None = None) -> Credentials:
    """Load credentials from the first source that exists.

    The sources are the given kubeconfig file, the pod's service account, the files of ``KUBECONFIG`` (merged
    as kubectl does), and ``~/.kube/config``.

    Raises:
        CredentialsError: No source has usable credentials.
    """
    if kubeconfig is not None:
        return from_kubeconfig([kubeconfig], context=context)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").exists():
        return from_service_account()
    paths = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return from_kubeconfig(paths or [Path.home() / ".kube" / "config"], context=context)


def from_service_account(
    folder: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ
) -> Credentials:
    """Return credentials with the files that the kubelet mounts into a pod.

    Raises:
        CredentialsError: The process is not in a pod, or the pod has no service account mounted.
    """
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (folder / "ca.crt").exists():
        raise CredentialsError(
            f"{folder}: no service account is mounted; run in a pod, or name a kubeconfig file"
        )
    host = f"[{host}]" if ":" in host else host
    return Credentials(
        server=f"https://{host}:{port}",
        token=FileToken(folder / "token"),
        tls=TlsContextLoader(authority=folder / "ca.crt"),
        namespace=_read_text_or_empty(folder / "namespace") or "default",
    )


def from_kubeconfig(paths: list[Path], *, context: str | None = None) -> Credentials:
    """Return the credentials of a context of one or several kubeconfig files, by default the current one.

    Raises:
        CredentialsError: A file cannot be read, or names a context, cluster or user that does not exist.
    """
    config = _merge(paths)
    where = os.pathsep.join(str(path) for path in paths)
    name = context or config["current-context"]
    if not name:
        raise CredentialsError(f"{where}: no current-context; choose one with kubectl config use-context")
    entry = _entry(config, "contexts", "context", name, where)
    cluster = _entry(config, "clusters", "cluster", entry.get("cluster", ""), where)
    user = _entry(config, "users", "user", entry["user"], where) if entry.get("user") else {}
    server = str(cluster.get("server") or "").rstrip("/")
    if urlsplit(server).scheme not in {"http", "https"}:
        raise CredentialsError(f"{where}: server {server!r} of context {name!r} is not an http(s) URL")
    if user.get("username"):
        raise CredentialsError(
            f"{where}: Kubernetes has no passwords since 1.19; use a token or a certificate"
        )
    return Credentials(
        server=server,
        token=_create_token(user, where, context),
        tls=_create_tls(cluster, user, where) if server.startswith("https:") else None,
        headers=_impersonation(user),
        namespace=entry.get("namespace") or "default",
        server_name=cluster.get("tls-server-name"),
        proxy=cluster.get("proxy-url") or _proxy_from_environment(server),
    )


def list_contexts(paths: list[Path]) -> list[str]:
    """Return the names of the contexts of kubeconfig files.

    Raises:
        CredentialsError: A file cannot be read, or there is none.
    """
    return [str(entry.get("name")) for entry in _merge(paths)["contexts"]]


def _merge(paths: list[Path]) -> dict[str, Any]:
    """Merge files. The first of several entries with one name applies.

    Each entry gets the folder of its file, to which its paths are relative, as ``base``.
    """
    merged: dict[str, Any] = {"current-context": "", "contexts": [], "clusters": [], "users": []}
    files_read = 0
    for path in paths:
        try:
            content: Any = yaml.safe_load(path.read_text("utf-8")) or {}
        except FileNotFoundError:
            continue  # As in kubectl, the list may contain files that do not exist.
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise CredentialsError(f"{path}: cannot be read as a kubeconfig file: {error}") from error
        if not isinstance(content, dict):
            raise CredentialsError(f"{path}: not a kubeconfig file: it must contain a mapping")
        files_read += 1
        merged["current-context"] = merged["current-context"] or content.get("current-context") or ""
        for section in ("contexts", "clusters", "users"):
            for item in content.get(section) or []:
                merged[section].append({**item, "base": path.parent})
    if not files_read:
        raise CredentialsError(
            f"{os.pathsep.join(map(str, paths))}: no such file; name one with --kubeconfig or KUBECONFIG"
        )
    return merged


def _entry(config: dict[str, Any], section: str, key: str, name: str, where: str) -> dict[str, Any]:
    for item in config[section]:
        if item.get("name") == name and isinstance(item.get(key), dict):
            return {**item[key], "base": item["base"]}
    raise CredentialsError(f"{where}: {section} contains no {key} {name!r}")


def _file_or_data(entry: dict[str, Any], key: str, where: str) -> Path | bytes | None:
    data = entry.get(f"{key}-data")
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except ValueError as error:
            raise CredentialsError(f"{where}: {key}-data is not base64: {error}") from error
    return entry["base"] / entry[key] if entry.get(key) else None


def _create_token(user: dict[str, Any], where: str, context: str | None) -> Token:
    if user.get("exec") or user.get("auth-provider"):
        return PluginToken(where, context)
    if user.get("token"):
        return StaticToken(str(user["token"]).strip())
    if user.get("tokenFile"):
        return FileToken(user["base"] / user["tokenFile"])
    return StaticToken(None)


def _create_tls(cluster: dict[str, Any], user: dict[str, Any], where: str) -> TlsContextLoader:
    certificate = _file_or_data(user, "client-certificate", where)
    key = _file_or_data(user, "client-key", where)
    pair: CertificateFiles | CertificateData | None = None
    if certificate is not None and key is not None:
        if isinstance(certificate, Path) and isinstance(key, Path):
            pair = CertificateFiles(certificate, key)
        else:
            pair = CertificateData(_contents(certificate), _contents(key))
    elif certificate is not None or key is not None:
        raise CredentialsError(f"{where}: set both client-certificate and client-key, or neither")
    return TlsContextLoader(
        authority=_file_or_data(cluster, "certificate-authority", where),
        certificate=pair,
        verify=not cluster.get("insecure-skip-tls-verify"),
    )


def _contents(file_or_data: Path | bytes) -> bytes:
    if isinstance(file_or_data, bytes):
        return file_or_data
    try:
        return file_or_data.read_bytes()
    except OSError as error:
        raise CredentialsError(f"{file_or_data}: {error.strerror}") from error


def _impersonation(user: dict[str, Any]) -> dict[str, str]:
    """Return the headers that impersonate another user, if the user entry names one.

    Fields that are not supported are an error: without them, the client would act with more rights.
    """
    headers: dict[str, str] = {}
    if user.get("as"):
        headers["Impersonate-User"] = str(user["as"])
    if user.get("as-uid"):
        headers["Impersonate-Uid"] = str(user["as-uid"])
    if user.get("as-groups") or user.get("as-user-extra"):
        raise CredentialsError(
            "kubeconfig: as-groups and as-user-extra are not supported; use as, or a token"
        )
    return headers


def _proxy_from_environment(server: str) -> str | None:
    url = urlsplit(server)
    with contextlib.suppress(OSError):  # proxy_bypass may ask the resolver
        if not proxy_bypass(url.netloc):
            return getproxies().get(url.scheme)
    return None
