"""The public key infrastructure of one temporary cluster: authorities, certificates and keys."""

import datetime as dt
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = dt.timedelta(days=365)
# The API server refuses certificates that are not valid yet, and clocks of containers drift.
_BACKDATED = dt.timedelta(minutes=5)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority.

    Args:
        folder: the folder of its files, and of those that it issues.
        certificate: its certificate.
        key: its key.
        pair: the files with both.
    """

    def __init__(
        self, folder: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, pair: Pair
    ) -> None:
        self.pair = pair
        self._folder = folder
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, folder: Path, name: str) -> Self:
        """Create an authority and store its certificate and key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        public_key = key.public_key()
        certificate = (
            _builder(subject, subject, public_key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .sign(key, hashes.SHA256())
        )
        pair = _files(folder, name)
        _write_certificate(pair.certificate, certificate)
        write_private_key(pair.key, key)
        return cls(folder, certificate, key, pair)

    @classmethod
    def load(cls, folder: Path, name: str) -> Self:
        """Read an authority that was created before.

        Raises:
            OSError: the folder has no such authority.
        """
        pair = _files(folder, name)
        certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
        key = serialization.load_pem_private_key(pair.key.read_bytes(), password=None)
        return cls(folder, certificate, cast("ec.EllipticCurvePrivateKey", key), pair)

    def client(self, file_name: str, user: str, groups: Sequence[str] = ()) -> Pair:
        """Return a certificate of the given user in the given groups."""
        subject = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
            + [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        )
        return self._issue(file_name, subject, ExtendedKeyUsageOID.CLIENT_AUTH, names=None)

    def server(self, file_name: str, hosts: Sequence[str]) -> Pair:
        """Return a serving certificate for the given host names and addresses."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, file_name)])
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._issue(file_name, subject, ExtendedKeyUsageOID.SERVER_AUTH, names=names)

    def _issue(
        self,
        file_name: str,
        subject: x509.Name,
        purpose: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        public_key = key.public_key()
        builder = (
            _builder(subject, self._certificate.subject, public_key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        pair = _files(self._folder, file_name)
        _write_certificate(pair.certificate, builder.sign(self._key, hashes.SHA256()))
        write_private_key(pair.key, key)
        return pair


def _files(folder: Path, name: str) -> Pair:
    return Pair(folder / f"{name}.crt", folder / f"{name}.key")


def write_signing_keys(private: Path, public: Path) -> None:
    """Write the key pair that signs and verifies ServiceAccount tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    write_private_key(private, key)
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def write_private_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a key to a file that only its owner can read."""
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _LIFETIME)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
