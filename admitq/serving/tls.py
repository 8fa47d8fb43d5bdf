"""TLS for servers: strict settings, and a certificate that can change without closing connections."""

import os
import ssl
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Literal

from admitq.serving.certificates import InvalidCertificate, KeyPair, validity
from admitq_api.configuration import CIPHER_SUITES, CURVES, TLS_1_3_CIPHER_SUITES

TlsVersion = Literal["VersionTLS12", "VersionTLS13"]

_VERSIONS: Final = {
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}

STRONG_CIPHER_SUITES: Final = tuple(name for name in CIPHER_SUITES if not name.endswith("_CBC_SHA"))
"""The default cipher suites for TLS 1.2: suites that encrypt and authenticate in one step."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """What a server offers to clients.

    Attributes:
        minimum: the oldest TLS version.
        cipher_suites: IANA names of the cipher suites for TLS 1.2; empty for `STRONG_CIPHER_SUITES`. Without
            a suite of TLS 1.2, that version is not offered.
        curves: some of `CURVES`, the best first; empty lets both sides choose. Python can offer only one: the
            first that OpenSSL supports.

    Raises:
        ValueError: an unknown version, cipher suite or curve; cipher suites together with TLS 1.3, which has
            only strong suites that cannot be chosen; or curves that OpenSSL does not support.
    """

    minimum: TlsVersion = "VersionTLS13"
    cipher_suites: tuple[str, ...] = ()
    curves: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.minimum not in _VERSIONS:
            raise ValueError(f"tls.minVersion {self.minimum!r} is not one of {', '.join(_VERSIONS)}")
        if self.cipher_suites and self.minimum == "VersionTLS13":
            raise ValueError(
                "tls.cipherSuites cannot be chosen with VersionTLS13: leave them out, or set VersionTLS12"
            )
        unknown_curves = [name for name in self.curves if name not in CURVES]
        if unknown_curves:
            raise ValueError(
                f"tls.curvePreferences {unknown_curves[0]!r} not supported: choose from {', '.join(CURVES)}"
            )
        if self.curves and self.curve is None:
            raise ValueError(
                f"tls.curvePreferences: {ssl.OPENSSL_VERSION} has none of {', '.join(self.curves)}: "
                "add X25519 or CurveP256"
            )
        known = (*CIPHER_SUITES, *TLS_1_3_CIPHER_SUITES)
        unknown = [name for name in self.cipher_suites if name not in known]
        if unknown:
            raise ValueError(
                f"tls.cipherSuites {', '.join(unknown)} not supported: choose from {', '.join(known)}"
            )

    @property
    def curve(self) -> str | None:
        """OpenSSL's name of the offered curve; None for any."""
        trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for name in self.curves:
            with suppress(ValueError):
                trial.set_ecdh_curve(CURVES[name])
                return CURVES[name]
        return None


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return a context for a server, without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.minimum]
    suites = settings.cipher_suites or STRONG_CIPHER_SUITES
    if older := [CIPHER_SUITES[name] for name in suites if name in CIPHER_SUITES]:
        context.set_ciphers(":".join(older))
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if settings.curve is not None:
        context.set_ecdh_curve(settings.curve)
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    return context


def client_context(bundle: bytes, *, strict: bool = False) -> ssl.SSLContext:
    """Return a context for calling a server with an authority in the PEM bundle.

    Args:
        bundle: the trusted certificates.
        strict: whether to check everything that the standards require of certificates, as Python does by
            default from 3.13 on. Certificates of other issuers often lack some of it.

    Raises:
        InvalidCertificate: the bundle contains no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_STRICT if strict else ssl.VERIFY_X509_PARTIAL_CHAIN
    _trust(context, bundle)
    return context


def _trust(context: ssl.SSLContext, bundle: bytes) -> None:
    try:
        context.load_verify_locations(cadata=bundle.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise InvalidCertificate(f"not a bundle of certificates: {error}") from error


class LiveCertificate:
    """The certificate of a server, in one context for all its connections.

    A change applies to handshakes that begin after it. Open connections are not affected.
    """

    def __init__(self, settings: TlsSettings | None = None) -> None:
        self._settings = settings or TlsSettings()
        self.context = server_context(self._settings)
        self._pair: KeyPair | None = None

    @property
    def certificate(self) -> bytes | None:
        """The present certificate as PEM; None before the first."""
        return self._pair.certificate if self._pair else None

    def use(self, pair: KeyPair) -> bool:
        """Serve this certificate from now on; return whether it is a change.

        Raises:
            InvalidCertificate: certificate and key cannot be read or do not match; the old ones stay.
        """
        if pair == self._pair:
            return False
        validity(pair.certificate)
        # A failed load may leave only the certificate or the key loaded. So another context loads the pair
        # first.
        _load(server_context(self._settings), pair)
        _load(self.context, pair)
        self._pair = pair
        return True

    def trust_clients(self, authorities: bytes) -> None:
        """Verify the certificates of clients from now on, by a new context.

        A client may send no certificate. If it sends one that none of the authorities signed, the handshake
        fails.

        Args:
            authorities: the PEM bundle of the authorities of clients.

        Raises:
            InvalidCertificate: the bundle contains no certificate; the old context stays.
        """
        context = server_context(self._settings)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        # A resumed session would keep the certificate that an earlier handshake verified.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        _trust(context, authorities)
        if self._pair is not None:
            _load(context, self._pair)
        self.context = context


def _load(context: ssl.SSLContext, pair: KeyPair) -> None:
    try:
        with _file_in_memory(pair.certificate + b"\n" + pair.key) as path:
            context.load_cert_chain(path, password=_refuse_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise InvalidCertificate(f"certificate and key cannot be used: {error}") from error


def _refuse_password() -> str:
    raise ValueError("the key is encrypted, which is not supported")


@contextmanager
def _file_in_memory(content: bytes) -> Generator[str]:
    """Return a path from which the ssl module can read the bytes, without writing a key to disk."""
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
