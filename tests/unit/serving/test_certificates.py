"""Certificates satisfy strict clients. Authorities rotate in steps that keep every client connected."""

import base64
import ipaddress
import ssl
from dataclasses import replace
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given, settings
from hypothesis import strategies as st

from admitq.serving.certificates import (
    BACKDATE,
    DAY,
    HOUR,
    LEAF_LIFE,
    MINUTE,
    OVERLAP,
    Authorities,
    InvalidCertificate,
    Validity,
    bundle_contains,
    create_authority,
    create_leaf,
    from_secret_data,
    is_signed_by,
    next_authority,
    to_secret_data,
    validity,
)
from tests.unit.serving.support import close, exchange, running_server

NOW = 1_800_000_000_000_000_000
CA = create_authority(NOW, name="test")
LEAF = create_leaf(CA, NOW, names=("svc", "svc.ns.svc", "10.0.0.1", "::1"), name="a" * 100)


def extension(pem: bytes, kind: Any) -> Any:
    return x509.load_pem_x509_certificate(pem).extensions.get_extension_for_class(kind)


def test_authority_certificate_has_extensions_of_a_ca() -> None:
    constraints = extension(CA.certificate, x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, 0)
    usage = extension(CA.certificate, x509.KeyUsage)
    assert (usage.critical, usage.value.key_cert_sign, usage.value.digital_signature) == (True, True, False)
    own = extension(CA.certificate, x509.SubjectKeyIdentifier).value.digest
    assert extension(CA.certificate, x509.AuthorityKeyIdentifier).value.key_identifier == own


def test_leaf_certificate_is_only_for_serving_under_its_names() -> None:
    constraints = extension(LEAF.certificate, x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca) == (True, False)
    usage = extension(LEAF.certificate, x509.KeyUsage)
    assert (usage.critical, usage.value.key_cert_sign, usage.value.digital_signature) == (True, False, True)
    assert list(extension(LEAF.certificate, x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    names = extension(LEAF.certificate, x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["svc", "svc.ns.svc"]
    addresses = [ipaddress.ip_address("10.0.0.1"), ipaddress.ip_address("::1")]
    assert names.get_values_for_type(x509.IPAddress) == addresses
    issuer = extension(CA.certificate, x509.SubjectKeyIdentifier).value.digest
    assert extension(LEAF.certificate, x509.AuthorityKeyIdentifier).value.key_identifier == issuer
    assert extension(LEAF.certificate, x509.SubjectKeyIdentifier)


async def test_strict_client_accepts_authority_and_leaf() -> None:
    async with running_server() as running:
        reader, writer = await running.connect()
        assert writer.get_extra_info("ssl_object").context.verify_flags & ssl.VERIFY_X509_STRICT
        assert (await exchange(reader, writer))[0] == 200
        await close(writer)


def test_authority_is_valid_for_a_year_and_leaf_for_a_week() -> None:
    assert validity(CA.certificate) == Validity(NOW - HOUR, NOW + 365 * DAY)
    assert validity(LEAF.certificate) == Validity(NOW - HOUR, NOW + 7 * DAY)


def test_leaf_expires_no_later_than_its_authority() -> None:
    late = create_leaf(CA, NOW + 364 * DAY, names=("svc",), name="x")
    assert validity(late.certificate).not_after == NOW + 365 * DAY


@pytest.mark.parametrize(
    ("at", "due"),
    [
        (-BACKDATE - 1, True),
        (0, False),
        (LEAF_LIFE * 2 // 3 - MINUTE, False),
        (LEAF_LIFE * 2 // 3 + MINUTE, True),
        (LEAF_LIFE, True),
    ],
)
def test_renewal_is_due_after_two_thirds_of_lifetime(at: int, due: bool) -> None:
    assert validity(LEAF.certificate).is_renewal_due(NOW + at) is due


def test_authorities_of_equal_name_have_different_subjects() -> None:
    other = create_authority(NOW, name="test")
    subjects = {x509.load_pem_x509_certificate(pair.certificate).subject for pair in (CA, other)}
    assert len(subjects) == 2


def test_leaf_is_signed_only_by_its_authority() -> None:
    other = create_authority(NOW, name="test")
    assert is_signed_by(LEAF.certificate, CA.certificate)
    assert not is_signed_by(LEAF.certificate, other.certificate)
    assert not is_signed_by(b"no certificate", CA.certificate)


def test_bundle_contains_only_its_certificates() -> None:
    other = create_authority(NOW, name="test")
    bundle = CA.certificate + other.certificate
    assert bundle_contains(bundle, CA.certificate)
    assert bundle_contains(bundle, other.certificate)
    assert not bundle_contains(CA.certificate, other.certificate)
    assert not bundle_contains(b"", CA.certificate)


def test_repr_of_authority_contains_no_private_key() -> None:
    assert "PRIVATE" not in repr(Authorities(CA, CA, b""))


def test_leaf_without_names_raises_error() -> None:
    with pytest.raises(InvalidCertificate):
        create_leaf(CA, NOW, names=(), name="x")


# --- the Secret -------------------------------------------------------------------------------------

OTHER = create_authority(NOW, name="other")


@pytest.mark.parametrize(
    "authority", [Authorities(CA), Authorities(CA, OTHER), Authorities(CA, None, OTHER.certificate)]
)
def test_authority_is_read_from_the_secret_that_it_was_written_to(authority: Authorities) -> None:
    assert from_secret_data(to_secret_data(authority)) == authority


GOOD = to_secret_data(Authorities(CA, OTHER, OTHER.certificate))


@pytest.mark.parametrize(
    "change",
    [
        {"ca.crt": None},
        {"ca.key": None},
        {"ca.key": ""},
        {"ca.key": 7},
        {"ca.crt": "no base64!"},
        {"ca.crt": base64.b64encode(b"no certificate").decode()},
        {"ca.key": base64.b64encode(b"no key").decode()},
        {"ca.key": base64.b64encode(OTHER.key).decode()},
        {"ca.crt": base64.b64encode(LEAF.certificate).decode()},
        {"upcoming-ca.key": None},
        {"upcoming-ca.key": base64.b64encode(CA.key).decode()},
        {"previous-ca.crt": base64.b64encode(b"no certificate").decode()},
    ],
)
def test_damaged_secret_raises_error(change: dict[str, Any]) -> None:
    data = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(InvalidCertificate):
        from_secret_data(data)


# --- rotation of the authority ----------------------------------------------------------------------


def step(current: Authorities | None, at: int, *, distributed: bool = False) -> Authorities:
    return next_authority(current, NOW + at, name="test", distributed=distributed)


def test_first_authority_is_active_at_once_and_stays() -> None:
    first = step(None, 0)
    assert first.upcoming is None
    assert first.bundle == first.active.certificate
    assert step(first, DAY) is first


def test_rotation_announces_new_authority_before_it_signs() -> None:
    old = Authorities(CA)
    due = 250 * DAY
    announced = step(old, due)
    assert announced.active == CA
    assert announced.upcoming
    assert bundle_contains(announced.bundle, CA.certificate)
    assert bundle_contains(announced.bundle, announced.upcoming.certificate)

    assert step(announced, due + DAY, distributed=False) is announced, "not distributed to all clients"
    assert step(announced, due + OVERLAP - MINUTE, distributed=True) is announced, "too early"

    changed = step(announced, due + OVERLAP, distributed=True)
    assert changed.active == announced.upcoming
    assert changed.upcoming is None
    assert changed.previous == CA.certificate
    assert changed.bundle.count(b"BEGIN CERTIFICATE") == 2
    assert b"PRIVATE KEY" not in changed.bundle

    assert step(changed, 300 * DAY) is changed
    assert step(changed, 366 * DAY) == replace(changed, previous=b"")


def test_expired_authority_is_replaced_at_once() -> None:
    announced = step(Authorities(CA), 250 * DAY)
    replaced = step(announced, 366 * DAY, distributed=False)
    assert replaced.active == announced.upcoming
    created = step(Authorities(CA), 366 * DAY)
    assert validity(created.active.certificate).contains(NOW + 366 * DAY)
    assert created.upcoming is None


def test_expired_upcoming_authority_is_dropped() -> None:
    announced = Authorities(create_authority(NOW + 300 * DAY, name="test"), CA)
    dropped = step(announced, 400 * DAY, distributed=True)
    assert dropped.upcoming is None
    assert dropped.active == announced.active


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 120 * 24), st.booleans(), st.integers(0, 2)), min_size=1, max_size=15)
)
def test_client_with_distributed_bundle_trusts_every_serving_certificate(
    moves: list[tuple[int, bool, int]],
) -> None:
    """Clients trust the bundle that was last distributed. The active authority signs the leaf."""
    now = NOW
    authority = next_authority(None, now, name="test", distributed=False)
    client_bundle = authority.bundle
    for hours, distribute, repeats in moves:
        now += hours * HOUR
        was_valid = validity(authority.active.certificate).contains(now)
        for _ in range(repeats + 1):
            distributed = client_bundle == authority.bundle
            next_step = next_authority(authority, now, name="test", distributed=distributed)
            changed_signer = next_step.active != authority.active
            if changed_signer and was_valid:
                assert bundle_contains(client_bundle, next_step.active.certificate)
                assert bundle_contains(next_step.bundle, authority.active.certificate)
            authority = next_step
            was_valid = True
        assert validity(authority.active.certificate).contains(now)
        if distribute:
            client_bundle = authority.bundle
