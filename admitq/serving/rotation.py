"""Renew a server's certificate, and distribute its authority to every client before the server uses it.

Either the replicas share their own authority in a Secret, or another program such as cert-manager renews
certificates in files.
"""

import asyncio
import base64
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, cast

from admitq.process.logs import logger
from admitq.process.unexpected_errors import LOG_ONLY, ErrorPart, UnexpectedErrors
from admitq.serving import certificates
from admitq.serving.certificates import Authorities, InvalidCertificate, KeyPair
from admitq.serving.tls import LiveCertificate

log = logger(__name__)

PERIOD_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 2.0
FILES_PERIOD_SECONDS: Final = 2.0
"""Time between two reads of the files. After a change of the authority, handshakes of clients fail for no
longer than this."""
ATTEMPTS: Final = 8
"""How often the Secret is read again after another replica changed it."""

OnExpiry = Callable[[str, int], None]
"""Called with ``ca`` or ``serving`` and the expiry of that certificate in nanoseconds since the epoch."""


class CertificateApiError(Exception):
    """The API server rejected a call or did not answer."""


class CertificateApi(Protocol):
    """The API calls that rotation needs. All of them raise `CertificateApiError` unless noted."""

    async def get_secret(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return the Secret; None if it does not exist."""
        ...

    async def create_secret(self, secret: Mapping[str, Any]) -> bool:
        """Create it; return False if it exists."""
        ...

    async def replace_secret(self, secret: Mapping[str, Any]) -> bool:
        """Replace the version that was read; return False if it changed since."""
        ...

    async def get_configuration(self, target: "BundleTarget") -> Mapping[str, Any] | None:
        """Return a webhook configuration, CRD or APIService; None if it does not exist."""
        ...

    async def patch_configuration(self, target: "BundleTarget", operations: list[dict[str, Any]]) -> None:
        """Apply a JSON patch to it."""
        ...


@dataclass(frozen=True, slots=True)
class BundleTarget:
    """An object with the bundle that API servers trust.

    Attributes:
        resource: ``mutatingwebhookconfigurations``, ``validatingwebhookconfigurations``,
            ``customresourcedefinitions`` or ``apiservices``.
        name: of the object.
        is_optional: whether it may be missing.
    """

    resource: str
    name: str
    is_optional: bool = False

    def __str__(self) -> str:
        return f"{self.resource}/{self.name}"


def bundle_operations(obj: Mapping[str, Any], bundle: bytes) -> list[dict[str, Any]]:
    """Return the JSON patch that writes the bundle into an object; empty if the object has it.

    Each write first tests that its entry is still the one that was read.
    """
    encoded = base64.b64encode(bundle).decode()
    operations: list[dict[str, Any]] = []
    for place, webhook in enumerate(cast("list[Mapping[str, Any]]", obj.get("webhooks") or [])):
        config = cast("Mapping[str, Any]", webhook.get("clientConfig") or {})
        if config.get("caBundle") != encoded:
            operations += [
                {"op": "test", "path": f"/webhooks/{place}/name", "value": webhook.get("name")},
                {"op": "add", "path": f"/webhooks/{place}/clientConfig/caBundle", "value": encoded},
            ]
    if obj.get("kind") == "APIService":
        return _api_service_operations(cast("Mapping[str, Any]", obj.get("spec") or {}), encoded)
    conversion = cast("Mapping[str, Any]", (obj.get("spec") or {}).get("conversion") or {})
    if conversion.get("strategy") == "Webhook":
        webhook = cast("Mapping[str, Any]", conversion.get("webhook") or {})
        config = cast("Mapping[str, Any]", webhook.get("clientConfig") or {})
        if config.get("caBundle") != encoded:
            operations += [
                {"op": "test", "path": "/spec/conversion/strategy", "value": "Webhook"},
                {
                    "op": "add",
                    "path": "/spec/conversion/webhook/clientConfig/caBundle",
                    "value": encoded,
                },
            ]
    return operations


def _api_service_operations(spec: Mapping[str, Any], encoded: str) -> list[dict[str, Any]]:
    if spec.get("caBundle") == encoded:
        return []
    return [
        {"op": "test", "path": "/spec/service", "value": spec.get("service")},
        {"op": "add", "path": "/spec/caBundle", "value": encoded},
    ]


class ManagedCertificates:
    """An authority that all replicas share, and a leaf certificate of each replica.

    The leaf and its key are in memory only. Readiness waits for `first`: from then on every client trusts the
    served certificate.

    Args:
        api: the API calls.
        live: the certificate of the servers.
        secret: namespace and name of the Secret that the replicas share.
        targets: objects that contain the bundle.
        hosts: DNS names and addresses of the server.
        name: the name of the installation, for readers of the certificates.
        on_expiry: called with the expiry of each certificate.
        clock: wall clock, nanoseconds since the epoch.
        overlap: the shortest time that a new authority waits before it signs.
        period: seconds between two steps.
        errors: receives unexpected exceptions.
    """

    def __init__(
        self,
        api: CertificateApi,
        live: LiveCertificate,
        *,
        secret: tuple[str, str],
        targets: tuple[BundleTarget, ...],
        hosts: tuple[str, ...],
        name: str,
        on_expiry: OnExpiry | None = None,
        clock: Callable[[], int] = time.time_ns,
        overlap: int = certificates.OVERLAP,
        period: float = PERIOD_SECONDS,
        errors: UnexpectedErrors = LOG_ONLY,
    ) -> None:
        self.first = asyncio.Event()
        self._api = api
        self.live = live
        self._secret = secret
        self._targets = targets
        self._hosts = hosts
        self._name = name
        self._on_expiry = on_expiry
        self._clock = clock
        self._overlap = overlap
        self._period = period
        self._errors = errors
        self._trust = b""
        self._missing: tuple[BundleTarget, ...] = ()

    @property
    def trust(self) -> bytes:
        """The certificates that clients trust, as PEM; empty before the first step."""
        return self._trust

    @property
    def problem(self) -> str:
        """Which objects for the bundle are missing, and the remedy; empty if none is."""
        if not self._missing:
            return ""
        return (
            f": {', '.join(map(str, self._missing))} does not exist: install it, set its name under "
            "internalCertManagement, or put certificates into webhook.certDir"
        )

    async def run(self) -> None:
        """Take steps until cancelled. A failed step is retried soon, with the old certificate in use."""
        while True:
            try:
                await self.step()
                wait = self._period if self.first.is_set() else RETRY_SECONDS
            except (CertificateApiError, InvalidCertificate) as error:
                log.warning("certificate update failed, retrying", error=str(error))
                wait = RETRY_SECONDS
            except Exception as error:  # noqa: BLE001 the server keeps its certificate
                self._errors.report(ErrorPart.CERTIFICATES, error, self._name)
                wait = RETRY_SECONDS
            await asyncio.sleep(min(wait, self._period))

    async def step(self) -> None:
        """Update Secret, bundles and leaf, in the order that keeps every client connected.

        Raises:
            CertificateApiError: a call failed.
            InvalidCertificate: a certificate could not be created.
        """
        authority = await self._agree(distributed=False)
        everywhere = await self._distribute(authority)
        if everywhere and authority.upcoming is not None:
            authority = await self._agree(distributed=True)
            everywhere = await self._distribute(authority)
        self._renew_leaf(authority)
        self._trust = authority.bundle
        if everywhere:
            self.first.set()
        if self._on_expiry is not None:
            self._on_expiry("ca", certificates.validity(authority.active.certificate).not_after)
            if self.live.certificate is not None:
                self._on_expiry("serving", certificates.validity(self.live.certificate).not_after)

    async def _agree(self, *, distributed: bool) -> Authorities:
        """Take the steps that are due, and return the authorities that the replicas share."""
        namespace, name = self._secret
        for _ in range(ATTEMPTS):
            secret = await self._api.get_secret(namespace, name)
            current = _authority_of(secret)
            proposed = certificates.next_authority(
                current, self._clock(), name=self._name, distributed=distributed, overlap=self._overlap
            )
            if current is not None and proposed == current:
                return current
            if await self._write(secret, proposed):
                log.info("certificate authority changed", stored_in=f"{namespace}/{name}")
                # After a step the next one may be due, and the new bundle is not distributed yet.
                distributed = False
        raise CertificateApiError(
            f"Secret {namespace}/{name} changed {ATTEMPTS} times while it was being written"
        )

    async def _write(self, secret: Mapping[str, Any] | None, authority: Authorities) -> bool:
        namespace, name = self._secret
        data = certificates.to_secret_data(authority)
        if secret is None:
            return await self._api.create_secret(
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"namespace": namespace, "name": name},
                    "type": "Opaque",
                    "data": data,
                }
            )
        return await self._api.replace_secret({**secret, "data": data})

    async def _distribute(self, authority: Authorities) -> bool:
        """Write the bundle into every target; return whether all of them exist and have it."""
        everywhere = True
        missing: list[BundleTarget] = []
        for target in self._targets:
            try:
                if not await self._put(target, authority.bundle):
                    missing.append(target)
            except CertificateApiError as error:
                # The leaf must be renewed even if one of several clients cannot be updated.
                everywhere = False
                log.warning("certificate bundle was not written", target=str(target), error=str(error))
        self._missing = tuple(missing)
        return everywhere and not missing

    async def _put(self, target: BundleTarget, bundle: bytes) -> bool:
        """Write the bundle into one target; return whether it exists or is optional."""
        obj = await self._api.get_configuration(target)
        if obj is None:
            return target.is_optional
        operations = bundle_operations(obj, bundle)
        if operations:
            await self._api.patch_configuration(target, operations)
            log.info("certificate bundle written", target=str(target))
        return True

    def _renew_leaf(self, authority: Authorities) -> None:
        now = self._clock()
        shown = self.live.certificate
        if (
            shown is not None
            and certificates.is_signed_by(shown, authority.active.certificate)
            and not certificates.validity(shown).is_renewal_due(now)
        ):
            return
        leaf = certificates.create_leaf(authority.active, now, names=self._hosts, name=self._name)
        self.live.use(leaf)
        log.info("serving certificate renewed")


def _authority_of(secret: Mapping[str, Any] | None) -> Authorities | None:
    data = cast("Mapping[str, object]", (secret or {}).get("data") or {})
    if not data:
        return None
    try:
        return certificates.from_secret_data(data)
    except InvalidCertificate as error:
        log.error(  # noqa: TRY400 - the error is complete without a traceback
            "stored certificate authority is unusable, replacing", error=str(error)
        )
        return None


class FileCertificates:
    """Certificates that another program writes to a folder: ``tls.crt``, ``tls.key``, optionally ``ca.crt``.

    Args:
        folder: the folder.
        live: the certificate of the servers.
        on_expiry: called with the expiry of the certificate.
        period: seconds between two reads.
        errors: receives unexpected exceptions, each once.
    """

    def __init__(
        self,
        folder: Path,
        live: LiveCertificate,
        *,
        on_expiry: OnExpiry | None = None,
        period: float = FILES_PERIOD_SECONDS,
        errors: UnexpectedErrors = LOG_ONLY,
    ) -> None:
        self.first = asyncio.Event()
        self._folder = folder
        self.live = live
        self._on_expiry = on_expiry
        self._period = period
        self._errors = errors
        self._trust = b""
        self._trouble = ""

    @property
    def trust(self) -> bytes:
        """The certificates that clients trust, as PEM: ``ca.crt``, or without it the certificate itself."""
        return self._trust

    @property
    def problem(self) -> str:
        """Which files cannot be used, and the remedy; empty if all can."""
        return f": {self._trouble}: put tls.crt and tls.key there" if self._trouble else ""

    async def run(self) -> None:
        """Read the files until cancelled. While they are invalid, the old certificate stays in use."""
        while True:
            try:
                await self.step()
                self._trouble = ""
            except (OSError, InvalidCertificate) as error:
                if str(error) != self._trouble:
                    log.warning("certificate files are unusable", error=str(error))
                self._trouble = str(error)
            except Exception as error:  # noqa: BLE001 the server keeps its certificate
                if repr(error) != self._trouble:
                    self._errors.report(ErrorPart.CERTIFICATES, error, self._folder)
                self._trouble = repr(error)
            await asyncio.sleep(self._period)

    async def step(self) -> None:
        """Serve the certificate in the files.

        Raises:
            OSError: a file is missing or cannot be read.
            InvalidCertificate: certificate and key do not match, for example while they are being replaced.
        """
        certificate, key, trust = await asyncio.to_thread(self._read)
        if self.live.use(KeyPair(certificate, key)):
            log.info("serving certificate loaded", folder=str(self._folder))
        self._trust = trust
        self.first.set()
        if self._on_expiry is not None:
            self._on_expiry("serving", certificates.validity(certificate).not_after)

    def _read(self) -> tuple[bytes, bytes, bytes]:
        certificate = (self._folder / "tls.crt").read_bytes()
        key = (self._folder / "tls.key").read_bytes()
        authority = self._folder / "ca.crt"
        # Some issuers create an empty file.
        return certificate, key, (authority.read_bytes() if authority.exists() else b"") or certificate
