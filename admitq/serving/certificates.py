"""Certificates for serving, created and checked by pure functions.

An authority (CA) is valid for a year and signs leaf certificates that are valid for a week. Both are renewed
after two thirds of their life. The authority changes in steps, so that every client trusts a new one before
the server uses a certificate signed by it:

1. The upcoming authority is created and added to the bundle. The active one still signs.
2. Once all clients have had the bundle for the overlap time, the upcoming authority becomes the active one.
3. The previous one stays in the bundle until it expires. Its key is deleted at once.

All times and durations are nanoseconds. The certificates contain everything that strict verification (the
default of Python from 3.13 on) requires: key identifiers, key usage, basic constraints, names.
"""

import base64
import binascii
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

MINUTE: Final = 60 * 1_000_000_000
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

AUTHORITY_LIFE: Final = 365 * DAY
LEAF_LIFE: Final = 7 * DAY
OVERLAP: Final = 10 * MINUTE
"""How long a new authority is in every bundle before it signs: API servers read bundles by a watch."""
BACKDATE: Final = HOUR
"""How much earlier certificates begin to be valid, for clients with a clock that is behind."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class InvalidCertificate(ValueError):
    """A certificate or key is unreadable or incomplete, or the two do not match."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair(certificate=…, key=[hidden])"


@dataclass(frozen=True, slots=True)
class Validity:
    """When a certificate is valid, in nanoseconds since the epoch."""

    not_before: int
    not_after: int

    def contains(self, now: int) -> bool:
        """Whether the certificate is valid now."""
        return self.not_before <= now < self.not_after

    def is_renewal_due(self, now: int) -> bool:
        """Whether two thirds of the life are over, or the certificate is not valid now.

        Only for certificates created here: the backdated time does not count as life.
        """
        born = self.not_before + BACKDATE
        return not self.contains(now) or (now - born) * 3 >= (self.not_after - born) * 2


@dataclass(frozen=True, slots=True)
class Authorities:
    """The authorities that all replicas share.

    Attributes:
        active: signs leaf certificates.
        upcoming: becomes the active one once every client trusts it.
        previous: certificate of the former active one, still trusted; empty if there is none.
    """

    active: KeyPair
    upcoming: KeyPair | None = None
    previous: bytes = b""

    @property
    def bundle(self) -> bytes:
        """The certificates that clients must trust, as PEM."""
        upcoming = self.upcoming.certificate if self.upcoming else b""
        return self.active.certificate + upcoming + self.previous


def create_authority(now: int, *, name: str, life: int = AUTHORITY_LIFE) -> KeyPair:
    """Create a self-signed authority.

    Args:
        now: the start of its life.
        name: the name of the installation, for readers of the certificate.
        life: the duration of its life, without the backdated time.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # Two authorities in one bundle must differ in their subject, or verifiers may pick the wrong one.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name[:40]} CA {serial:x}"[:64])])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(subject, subject, key.public_key(), now, now + life)
        .serial_number(serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def create_leaf(
    authority: KeyPair, now: int, *, names: Iterable[str], name: str, life: int = LEAF_LIFE
) -> KeyPair:
    """Create a serving certificate signed by the authority. It never outlives its signer.

    Args:
        authority: the signer.
        now: the start of its life.
        names: its DNS names and IP addresses.
        name: the name of the server, for readers of the certificate.
        life: the duration of its life, without the backdated time.

    Raises:
        InvalidCertificate: the authority cannot be read, or no name was given.
    """
    issuer, issuer_key = _load(authority)
    alternatives = [_general_name(text) for text in dict.fromkeys(names)]
    if not alternatives:
        raise InvalidCertificate("a serving certificate needs at least one DNS name or IP address")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    end = min(now + life, _instant(issuer.not_valid_after_utc))
    issuer_identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    certificate = (
        _builder(subject, issuer.subject, key.public_key(), now, end)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_identifier),
            critical=False,
        )
        .sign(issuer_key, hashes.SHA256())
    )
    return _pair(certificate, key)


def validity(certificate: bytes) -> Validity:
    """Return when a PEM certificate is valid; of a chain, the first one.

    Raises: InvalidCertificate: it is no certificate.
    """
    try:
        loaded = x509.load_pem_x509_certificate(certificate)
    except ValueError as error:
        raise InvalidCertificate(f"not a PEM certificate: {error}") from error
    return Validity(_instant(loaded.not_valid_before_utc), _instant(loaded.not_valid_after_utc))


def is_signed_by(certificate: bytes, authority: bytes) -> bool:
    """Whether the authority with this PEM certificate signed another PEM certificate."""
    try:
        x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(
            x509.load_pem_x509_certificate(authority)
        )
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def bundle_contains(bundle: bytes, certificate: bytes) -> bool:
    """Whether a PEM bundle contains a PEM certificate."""
    try:
        trusted = x509.load_pem_x509_certificates(bundle)
        return x509.load_pem_x509_certificate(certificate) in trusted
    except ValueError:
        return False


def next_authority(
    current: Authorities | None, now: int, *, name: str, distributed: bool, overlap: int = OVERLAP
) -> Authorities:
    """Return the next state of the authorities, or the same value if no step is due.

    One call takes one step. Repeated calls end in a state in which no step is due.

    Args:
        current: the present authorities; None if there are no usable ones.
        now: the present.
        name: the name of the installation.
        distributed: whether every client has the present bundle.
        overlap: the shortest time that an upcoming authority waits before it signs.
    """
    if current is None:
        return Authorities(create_authority(now, name=name))
    if current.previous and not validity(current.previous).contains(now):
        return replace(current, previous=b"")
    active = validity(current.active.certificate)
    upcoming = current.upcoming
    if upcoming is not None:
        waiting = validity(upcoming.certificate)
        if not waiting.contains(now):
            return replace(current, upcoming=None)
        waited = now - (waiting.not_before + BACKDATE)
        if (distributed and waited >= overlap) or not active.contains(now):
            return Authorities(upcoming, None, current.active.certificate)
        return current
    if not active.contains(now):
        return Authorities(create_authority(now, name=name))
    if active.is_renewal_due(now):
        return replace(current, upcoming=create_authority(now, name=name))
    return current


_ACTIVE_CERTIFICATE: Final = "ca.crt"
_ACTIVE_KEY: Final = "ca.key"
_UPCOMING_CERTIFICATE: Final = "upcoming-ca.crt"
_UPCOMING_KEY: Final = "upcoming-ca.key"
_PREVIOUS_CERTIFICATE: Final = "previous-ca.crt"


def to_secret_data(authority: Authorities) -> dict[str, str]:
    """Return the authorities as the ``data`` of a Secret."""
    values = {
        _ACTIVE_CERTIFICATE: authority.active.certificate,
        _ACTIVE_KEY: authority.active.key,
        _UPCOMING_CERTIFICATE: authority.upcoming.certificate if authority.upcoming else b"",
        _UPCOMING_KEY: authority.upcoming.key if authority.upcoming else b"",
        _PREVIOUS_CERTIFICATE: authority.previous,
    }
    return {key: base64.b64encode(value).decode() for key, value in values.items() if value}


def from_secret_data(data: Mapping[str, object]) -> Authorities:
    """Read the authorities from the ``data`` of a Secret.

    Raises:
        InvalidCertificate: there is no active authority, or a certificate or key cannot be read or does not
            match.
    """
    active = KeyPair(_decode(data, _ACTIVE_CERTIFICATE), _decode(data, _ACTIVE_KEY))
    _load(active)
    upcoming = None
    if _UPCOMING_CERTIFICATE in data:
        upcoming = KeyPair(_decode(data, _UPCOMING_CERTIFICATE), _decode(data, _UPCOMING_KEY))
        _load(upcoming)
    previous = _decode(data, _PREVIOUS_CERTIFICATE) if _PREVIOUS_CERTIFICATE in data else b""
    if previous:
        validity(previous)
    return Authorities(active, upcoming, previous)


def _decode(data: Mapping[str, object], key: str) -> bytes:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise InvalidCertificate(f"{key} is missing")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise InvalidCertificate(f"{key} is not base64") from error


def _load(pair: KeyPair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, password=None)
        certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except (ValueError, TypeError, x509.ExtensionNotFound) as error:
        raise InvalidCertificate(
            f"not a certificate authority with its key: {type(error).__name__}"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise InvalidCertificate("the certificate does not belong to this key")
    return certificate, key


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    start: int,
    end: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .not_valid_before(_datetime(start - BACKDATE))
        .not_valid_after(_datetime(end))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )


def _datetime(instant: int) -> datetime:
    return _EPOCH + timedelta(seconds=instant // 1_000_000_000)


def _instant(moment: datetime) -> int:
    return int((moment - _EPOCH) / timedelta(seconds=1)) * 1_000_000_000
