"""How a client finds the API server and authenticates.

Three ways are read by a few lines of our own: the service account's files in a pod, and from a kubeconfig
file a bearer token (given or in a file) or a client certificate. Exec plugins and auth providers (OIDC)
are left to kubernetes_asyncio, which is imported only when such a user is met, and then in a thread:
the import alone takes about a second and 70 MB.

Whatever was read from a file is read again once it is older than a minute, and at once when the server
answers 401: tokens are rotated by the kubelet, and so may be the certificate authority.
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
"""How long a token or a certificate that came from a file is used before the file is looked at again."""


class CredentialsError(Exception):
    """Credentials that cannot be used; the text names the file, what is wrong, and the remedy."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What is shown to the server with a request: headers, and the TLS context (None: plain HTTP)."""

    headers: Mapping[str, str]
    tls: ssl.SSLContext | None


class Token(Protocol):
    """A source of the ``Authorization`` header, usable from any thread and event loop."""

    async def authorization(self) -> str | None:
        """Give the header's value, None for none."""
        ...

    async def renew(self) -> bool:
        """Fetch it again after a 401; return whether it changed."""
        ...


@dataclass(slots=True)
class FixedToken:
    """A token that is part of the configuration, or none at all."""

    token: str | None

    async def authorization(self) -> str | None:
        """Give the header's value."""
        return f"Bearer {self.token}" if self.token else None

    async def renew(self) -> bool:
        """Tell that there is nothing to renew."""
        return False


@dataclass(slots=True)
class FileToken:
    """A token in a file that another program rotates.

    A file that is missing or empty for a moment, as it is while it is replaced, does not take the
    token away that was read before.
    """

    path: Path
    max_age_s: float = MAX_AGE_S
    clock: Callable[[], float] = time.monotonic
    _token: str = field(default="", init=False)
    _read_at: float = field(default=float("-inf"), init=False)

    async def authorization(self) -> str | None:
        """Give the header's value.

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
        # A file may live on a volume that hangs; the event loop must not hang with it.
        text = await asyncio.to_thread(_read_text_or_empty, self.path)
        self._token = text or self._token


def _read_text_or_empty(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


class PluginToken:
    """A user of a kubeconfig file that needs an exec plugin or an auth provider.

    The plugin's own expiry is respected; it runs in a thread, one call at a time.
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
        """Give the header's value, None where the plugin hands out a certificate."""
        if time.monotonic() - self._fetched_at > self._max_age_s:
            await asyncio.to_thread(self._fetch, afresh=False)
        return self._authorization

    async def renew(self) -> bool:
        """Run the plugin again whatever the expiry it promised."""
        before = self._authorization, self.certificate
        await asyncio.to_thread(self._fetch, afresh=True)
        return before != (self._authorization, self.certificate)

    def _fetch(self, *, afresh: bool) -> None:
        with self._lock:
            if not afresh and time.monotonic() - self._fetched_at <= self._max_age_s:
                return
            # In a thread of its own the import and the plugin cannot stall the caller's event loop.
            from kubernetes_asyncio.client import Configuration  # noqa: PLC0415
            from kubernetes_asyncio.config import load_kube_config  # noqa: PLC0415

            found: Any = Configuration()
            try:
                if self._loader is None or afresh:
                    self._loader = asyncio.run(
                        load_kube_config(self._kubeconfig, self._context, client_configuration=found)
                    )
                else:
                    asyncio.run(self._loader.load_and_set(found))
            except Exception as error:
                raise CredentialsError(f"{self._kubeconfig}: the user's plugin failed: {error}") from error
            self._authorization = found.api_key.get("BearerToken")
            if found.cert_file:
                self.certificate = CertificateFiles(
                    Path(found.cert_file), Path(found.key_file or found.cert_file)
                )
            self._fetched_at = time.monotonic()


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A client certificate and its key as PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class CertificateData:
    """A client certificate and its key as PEM texts."""

    certificate: bytes
    key: bytes


class Trust:
    """Creates the TLS context, and creates it again when its files have changed."""

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

    def fresh(self) -> ssl.SSLContext | None:
        """Give the context if it is young enough to be used without a look at the files."""
        return self._context if time.monotonic() - self._read_at <= self._max_age_s else None

    def look(self, plugin: CertificateFiles | None = None) -> ssl.SSLContext:
        """Look at the files, and give the context to connect with. Blocks; call it in a thread.

        Raises:
            CredentialsError: A file is missing or not PEM, and there is no older context to go on with.
        """
        with self._lock:
            self._read_at = time.monotonic()
            try:
                contents = self._read(plugin or self._certificate)
                if self._context is None or contents != self._contents:
                    self._context = self._make(*contents)
                    self._contents = contents
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                # A file half replaced is no reason to stop: the next look will find it whole.
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

    def _make(self, authority: bytes | None, certificate: bytes, key: bytes) -> ssl.SSLContext:
        if authority is not None and not authority.strip():
            # An empty text would silently stand for the system's authorities.
            raise ValueError(f"{self._authority!s}: the certificate authority is empty")
        context = ssl.create_default_context(
            cadata=authority.decode("ascii", "ignore") if authority else None
        )
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Python 3.13 asks for key identifiers that authorities of older clusters do not have; the
        # chain is verified without that, as every other Kubernetes client does.
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
    """Where the API server is and how to speak to it. May be shared by several clients and threads.

    ``server`` is the base URL without a trailing slash, ``namespace`` the one to use where none is named.
    """

    server: str
    token: Token = field(default_factory=lambda: FixedToken(None))
    trust: Trust | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    namespace: str = "default"
    server_name: str | None = None
    proxy: str | None = None

    async def identity(self) -> Identity:
        """Give what to send now; files older than a minute are read again."""
        return await self._identity(at_once=False)

    async def renew(self) -> bool:
        """Read and fetch everything again after a 401; return whether the token changed."""
        changed = await self.token.renew()
        await self._identity(at_once=True)
        return changed

    async def _identity(self, *, at_once: bool) -> Identity:
        authorization = await self.token.authorization()
        headers = {**self.headers, "Authorization": authorization} if authorization else self.headers
        if self.trust is None:
            return Identity(headers, None)
        plugin = self.token.certificate if isinstance(self.token, PluginToken) else None
        tls = None if at_once else self.trust.fresh()
        return Identity(headers, tls or await asyncio.to_thread(self.trust.look, plugin))


def load_credentials(kubeconfig: Path | None = None, *, context: str | None = None) -> Credentials:
    """Find credentials: the given kubeconfig file, else the pod's service account, else ``KUBECONFIG``.

    Without any of them ``~/.kube/config`` is read. ``KUBECONFIG`` may name several files, which are merged
    as kubectl merges them.

    Raises:
        CredentialsError: Nothing usable was found.
    """
    if kubeconfig is not None:
        return from_kubeconfig([kubeconfig], context=context)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").exists():
        return from_service_account()
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return from_kubeconfig(named or [Path.home() / ".kube" / "config"], context=context)


def from_service_account(
    folder: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ
) -> Credentials:
    """Use the files that the kubelet mounts into a pod.

    Raises:
        CredentialsError: Not in a pod, or the pod has no service account mounted.
    """
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (folder / "ca.crt").exists():
        raise CredentialsError(f"{folder}: no service account here; run in a pod, or name a kubeconfig file")
    host = f"[{host}]" if ":" in host else host
    return Credentials(
        server=f"https://{host}:{port}",
        token=FileToken(folder / "token"),
        trust=Trust(authority=folder / "ca.crt"),
        namespace=_read_text_or_empty(folder / "namespace") or "default",
    )


def from_kubeconfig(paths: list[Path], *, context: str | None = None) -> Credentials:
    """Read the current (or the named) context out of one or several kubeconfig files.

    Raises:
        CredentialsError: A file cannot be read, or names something that is not there.
    """
    config = _merge(paths)
    where = os.pathsep.join(str(path) for path in paths)
    chosen = context or config["current-context"]
    if not chosen:
        raise CredentialsError(f"{where}: no current-context; choose one with kubectl config use-context")
    entry = _entry(config, "contexts", "context", chosen, where)
    cluster = _entry(config, "clusters", "cluster", entry.get("cluster", ""), where)
    user = _entry(config, "users", "user", entry["user"], where) if entry.get("user") else {}
    server = str(cluster.get("server") or "").rstrip("/")
    if urlsplit(server).scheme not in {"http", "https"}:
        raise CredentialsError(f"{where}: server {server!r} of context {chosen!r} is not an http(s) URL")
    if user.get("username"):
        raise CredentialsError(
            f"{where}: Kubernetes has no passwords since 1.19; use a token or a certificate"
        )
    return Credentials(
        server=server,
        token=_token(user, where, context),
        trust=_trust(cluster, user, where) if server.startswith("https:") else None,
        headers=_impersonation(user),
        namespace=entry.get("namespace") or "default",
        server_name=cluster.get("tls-server-name"),
        proxy=cluster.get("proxy-url") or _proxy_from_environment(server),
    )


def _merge(paths: list[Path]) -> dict[str, Any]:
    """Join files: of equal names the first one counts, relative paths belong to the file they stand in."""
    merged: dict[str, Any] = {"current-context": "", "contexts": [], "clusters": [], "users": []}
    read = 0
    for path in paths:
        try:
            content: Any = yaml.safe_load(path.read_text("utf-8")) or {}
        except FileNotFoundError:
            continue  # as kubectl: a file of the list that does not exist is no error
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise CredentialsError(f"{path}: cannot be read as a kubeconfig file: {error}") from error
        if not isinstance(content, dict):
            raise CredentialsError(f"{path}: not a kubeconfig file: a mapping was expected")
        read += 1
        merged["current-context"] = merged["current-context"] or content.get("current-context") or ""
        for section in ("contexts", "clusters", "users"):
            for item in content.get(section) or []:
                merged[section].append({**item, "base": path.parent})
    if not read:
        raise CredentialsError(
            f"{os.pathsep.join(map(str, paths))}: no such file; name one with --kubeconfig or KUBECONFIG"
        )
    return merged


def _entry(config: dict[str, Any], section: str, key: str, name: str, where: str) -> dict[str, Any]:
    for item in config[section]:
        if item.get("name") == name and isinstance(item.get(key), dict):
            return {**item[key], "base": item["base"]}
    raise CredentialsError(f"{where}: {key} {name!r} is not among its {section}")


def _file_or_data(entry: dict[str, Any], key: str, where: str) -> Path | bytes | None:
    data = entry.get(f"{key}-data")
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except ValueError as error:
            raise CredentialsError(f"{where}: {key}-data is not base64: {error}") from error
    return entry["base"] / entry[key] if entry.get(key) else None


def _token(user: dict[str, Any], where: str, context: str | None) -> Token:
    if user.get("exec") or user.get("auth-provider"):
        return PluginToken(where, context)
    if user.get("token"):
        return FixedToken(str(user["token"]).strip())
    if user.get("tokenFile"):
        return FileToken(user["base"] / user["tokenFile"])
    return FixedToken(None)


def _trust(cluster: dict[str, Any], user: dict[str, Any], where: str) -> Trust:
    certificate = _file_or_data(user, "client-certificate", where)
    key = _file_or_data(user, "client-key", where)
    pair: CertificateFiles | CertificateData | None = None
    if certificate is not None and key is not None:
        if isinstance(certificate, Path) and isinstance(key, Path):
            pair = CertificateFiles(certificate, key)
        else:
            pair = CertificateData(_bytes(certificate), _bytes(key))
    elif certificate is not None or key is not None:
        raise CredentialsError(f"{where}: a client certificate needs its key, and a key its certificate")
    return Trust(
        authority=_file_or_data(cluster, "certificate-authority", where),
        certificate=pair,
        verify=not cluster.get("insecure-skip-tls-verify"),
    )


def _bytes(content: Path | bytes) -> bytes:
    if isinstance(content, bytes):
        return content
    try:
        return content.read_bytes()
    except OSError as error:
        raise CredentialsError(f"{content}: {error.strerror}") from error


def _impersonation(user: dict[str, Any]) -> dict[str, str]:
    """The user to impersonate, if the user entry names one; without it the client would have more rights."""
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
