"""Keeps a server's certificate fresh, and lets every client trust it before it is shown.

Two ways: replicas agree on an authority of their own through one Secret, or certificates come from files that
somebody else, such as cert-manager, renews.
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
from admitq.serving.certificates import Authority, InvalidCertificate, KeyPair
from admitq.serving.tls import LiveCertificate

log = logger(__name__)

PERIOD_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 2.0
FILES_PERIOD_SECONDS: Final = 2.0
"""Between two looks at files: clients that were told of a new authority are refused no longer than this."""
ATTEMPTS: Final = 8
"""How often the Secret is read again when another replica was faster."""

OnExpiry = Callable[[str, int], None]
"""Told when certificates expire: ``ca`` or ``serving``, and the instant in nanoseconds since the epoch."""


class CertificateApiError(Exception):
    """The API server refused, or could not be asked."""


class CertificateApi(Protocol):
    """The few calls of the API that rotation needs. All raise `CertificateApiError` unless said otherwise."""

    async def get_secret(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return the Secret; None if there is none."""
        ...

    async def create_secret(self, secret: Mapping[str, Any]) -> bool:
        """Create it; return False if it exists already."""
        ...

    async def replace_secret(self, secret: Mapping[str, Any]) -> bool:
        """Write it over the very version it was read in; return False if it changed since."""
        ...

    async def get_configuration(self, target: "BundleTarget") -> Mapping[str, Any] | None:
        """Return a webhook configuration or CRD; None if there is none."""
        ...

    async def patch_configuration(self, target: "BundleTarget", operations: list[dict[str, Any]]) -> None:
        """Apply a JSON patch to it."""
        ...


@dataclass(frozen=True, slots=True)
class BundleTarget:
    """An object that carries the bundle which API servers trust.

    Attributes:
        resource: ``mutatingwebhookconfigurations``, ``validatingwebhookconfigurations`` or
            ``customresourcedefinitions``.
        name: of the object.
        is_optional: whether it may be missing; who is not there asks for nothing.
    """

    resource: str
    name: str
    is_optional: bool = False

    def __str__(self) -> str:
        return f"{self.resource}/{self.name}"


def bundle_operations(obj: Mapping[str, Any], bundle: bytes) -> list[dict[str, Any]]:
    """Return the JSON patch that puts the bundle wherever the object holds one; empty if it is there already.

    Each step tests first that the entry it writes to is still the one that was read.
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


class ManagedCertificates:
    """An authority that replicas share, and a leaf certificate that each makes for itself.

    The leaf and its key are in memory only. Readiness waits for `first`: from then on a certificate is shown
    that every client trusts.

    Args:
        api: the calls.
        live: the certificate that servers show.
        secret: namespace and name of the Secret that replicas agree through.
        targets: objects that carry the bundle.
        hosts: DNS names and addresses that the server is called by.
        name: whose certificates they are, for people who look at them.
        on_expiry: told when certificates expire.
        clock: wall clock, nanoseconds since the epoch.
        overlap: how long a new authority waits at least before it signs.
        period: seconds between two looks.
        errors: takes exceptions that no step should raise.
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
        """What clients trust, as PEM; empty before the first step."""
        return self._trust

    @property
    def problem(self) -> str:
        """What is not there that the bundle should be written into, and what to do; empty if all is."""
        if not self._missing:
            return ""
        return (
            f": {', '.join(map(str, self._missing))} does not exist: install it, set its name under "
            "internalCertManagement, or give certificates in webhook.certDir"
        )

    async def run(self) -> None:
        """Step for ever. A step that fails is tried again soon; what is shown meanwhile stays."""
        while True:
            try:
                await self.step()
                wait = self._period if self.first.is_set() else RETRY_SECONDS
            except (CertificateApiError, InvalidCertificate) as error:
                log.warning("certificate update failed, retrying", error=str(error))
                wait = RETRY_SECONDS
            except Exception as error:  # noqa: BLE001 what is shown serves on
                self._errors.report(ErrorPart.CERTIFICATES, error, self._name)
                wait = RETRY_SECONDS
            await asyncio.sleep(min(wait, self._period))

    async def step(self) -> None:
        """Bring Secret, bundles and leaf up to date, in the order that leaves no client behind.

        Raises:
            CertificateApiError: a call failed.
            Unusable: a certificate could not be made.
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

    async def _agree(self, *, distributed: bool) -> Authority:
        """Return what the replicas agree on, after taking the steps that are due."""
        namespace, name = self._secret
        for _ in range(ATTEMPTS):
            secret = await self._api.get_secret(namespace, name)
            current = _authority_of(secret)
            wanted = certificates.next_authority(
                current, self._clock(), name=self._name, distributed=distributed, overlap=self._overlap
            )
            if current is not None and wanted == current:
                return current
            if await self._write(secret, wanted):
                log.info("certificate authority changed", stored_in=f"{namespace}/{name}")
                # One step may make the next one due; whether clients know of it yet is seen afresh.
                distributed = False
        raise CertificateApiError(
            f"Secret {namespace}/{name} changed {ATTEMPTS} times while it was being written"
        )

    async def _write(self, secret: Mapping[str, Any] | None, authority: Authority) -> bool:
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

    async def _distribute(self, authority: Authority) -> bool:
        """Put the bundle into every target; return whether all of them exist and have it."""
        everywhere = True
        missing: list[BundleTarget] = []
        for target in self._targets:
            try:
                if not await self._put(target, authority.bundle):
                    missing.append(target)
            except CertificateApiError as error:
                # The leaf must not go stale because one of several clients cannot be told.
                everywhere = False
                log.warning("certificate bundle was not written", target=str(target), error=str(error))
        self._missing = tuple(missing)
        return everywhere and not missing

    async def _put(self, target: BundleTarget, bundle: bytes) -> bool:
        """Put the bundle into one target; return whether it exists, or need not."""
        obj = await self._api.get_configuration(target)
        if obj is None:
            return target.is_optional
        operations = bundle_operations(obj, bundle)
        if operations:
            await self._api.patch_configuration(target, operations)
            log.info("certificate bundle written", target=str(target))
        return True

    def _renew_leaf(self, authority: Authority) -> None:
        now = self._clock()
        shown = self.live.certificate
        if (
            shown is not None
            and certificates.is_signed_by(shown, authority.active.certificate)
            and not certificates.validity(shown).is_renewal_due(now)
        ):
            return
        leaf = certificates.make_leaf(authority.active, now, names=self._hosts, name=self._name)
        self.live.use(leaf)
        log.info("serving certificate renewed")


def _authority_of(secret: Mapping[str, Any] | None) -> Authority | None:
    data = cast("Mapping[str, object]", (secret or {}).get("data") or {})
    if not data:
        return None
    try:
        return certificates.from_secret_data(data)
    except InvalidCertificate as error:
        log.error(  # noqa: TRY400 - the error says it all
            "stored certificate authority is unusable, replacing", error=str(error)
        )
        return None


class FileCertificates:
    """Certificates that somebody else puts into a folder: ``tls.crt``, ``tls.key`` and, if known, ``ca.crt``.

    Args:
        folder: where they are.
        live: the certificate that servers show.
        on_expiry: told when the certificate expires.
        period: seconds between two looks.
        errors: takes exceptions that no step should raise, the same one once.
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
        """What clients trust, as PEM: ``ca.crt``, or the certificate itself where that lacks."""
        return self._trust

    @property
    def problem(self) -> str:
        """What cannot be used, and what to do; empty if all can."""
        return f": {self._trouble}: put tls.crt and tls.key there" if self._trouble else ""

    async def run(self) -> None:
        """Look for ever. Files that lack or cannot be used are logged; what is shown meanwhile stays."""
        while True:
            try:
                await self.step()
                self._trouble = ""
            except (OSError, InvalidCertificate) as error:
                if str(error) != self._trouble:
                    log.warning("certificate files are unusable", error=str(error))
                self._trouble = str(error)
            except Exception as error:  # noqa: BLE001 what is shown serves on
                if repr(error) != self._trouble:
                    self._errors.report(ErrorPart.CERTIFICATES, error, self._folder)
                self._trouble = repr(error)
            await asyncio.sleep(self._period)

    async def step(self) -> None:
        """Show what the files hold.

        Raises:
            OSError: a file lacks or cannot be read.
            Unusable: certificate and key do not belong together, for example while they are being replaced.
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
        # Some issuers leave the file empty.
        return certificate, key, (authority.read_bytes() if authority.exists() else b"") or certificate
