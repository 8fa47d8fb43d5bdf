"""Certificates satisfy strict verifiers; authorities change in steps that keep every client connected."""

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
    Authority,
    InvalidCertificate,
    Validity,
    bundle_contains,
    from_secret_data,
    is_signed_by,
    make_authority,
    make_leaf,
    next_authority,
    to_secret_data,
    validity,
)
from tests.unit.serving.support import close, exchange, running

NOW = 1_800_000_000_000_000_000
CA = make_authority(NOW, name="test")
LEAF = make_leaf(CA, NOW, names=("svc", "svc.ns.svc", "10.0.0.1", "::1"), name="a" * 100)


def extension(pem: bytes, kind: Any) -> Any:
    return x509.load_pem_x509_certificate(pem).extensions.get_extension_for_class(kind)


def test_the_authority_says_that_it_is_one() -> None:
    constraints = extension(CA.certificate, x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, 0)
    usage = extension(CA.certificate, x509.KeyUsage)
    assert (usage.critical, usage.value.key_cert_sign, usage.value.digital_signature) == (True, True, False)
    own = extension(CA.certificate, x509.SubjectKeyIdentifier).value.digest
    assert extension(CA.certificate, x509.AuthorityKeyIdentifier).value.key_identifier == own


def test_the_leaf_is_for_serving_under_its_names_and_for_nothing_else() -> None:
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


async def test_a_strict_client_accepts_the_pair() -> None:
    async with running() as served:
        reader, writer = await served.connect()
        assert writer.get_extra_info("ssl_object").context.verify_flags & ssl.VERIFY_X509_STRICT
        assert (await exchange(reader, writer))[0] == 200
        await close(writer)


def test_lives_are_a_year_and_a_week_and_begin_an_hour_early() -> None:
    assert validity(CA.certificate) == Validity(NOW - HOUR, NOW + 365 * DAY)
    assert validity(LEAF.certificate) == Validity(NOW - HOUR, NOW + 7 * DAY)


def test_a_leaf_never_outlives_its_signer() -> None:
    late = make_leaf(CA, NOW + 364 * DAY, names=("svc",), name="x")
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
def test_renewal_is_due_at_two_thirds_of_life(at: int, due: bool) -> None:
    assert validity(LEAF.certificate).is_renewal_due(NOW + at) is due


def test_two_authorities_of_one_name_are_distinguished() -> None:
    other = make_authority(NOW, name="test")
    subjects = {x509.load_pem_x509_certificate(one.certificate).subject for one in (CA, other)}
    assert len(subjects) == 2
    assert is_signed_by(LEAF.certificate, CA.certificate)
    assert not is_signed_by(LEAF.certificate, other.certificate)
    assert not is_signed_by(b"nonsense", CA.certificate)


def test_a_bundle_contains_what_was_put_into_it() -> None:
    other = make_authority(NOW, name="test")
    bundle = CA.certificate + other.certificate
    assert bundle_contains(bundle, CA.certificate)
    assert bundle_contains(bundle, other.certificate)
    assert not bundle_contains(CA.certificate, other.certificate)
    assert not bundle_contains(b"", CA.certificate)


def test_keys_do_not_show_in_text() -> None:
    assert "PRIVATE" not in repr(Authority(CA, CA, b""))


def test_a_certificate_without_a_name_cannot_be_made() -> None:
    with pytest.raises(InvalidCertificate):
        make_leaf(CA, NOW, names=(), name="x")


# --- the Secret -------------------------------------------------------------------------------------

OTHER = make_authority(NOW, name="other")


@pytest.mark.parametrize(
    "authority", [Authority(CA), Authority(CA, OTHER), Authority(CA, None, OTHER.certificate)]
)
def test_what_is_written_is_read_again(authority: Authority) -> None:
    assert from_secret_data(to_secret_data(authority)) == authority


GOOD = to_secret_data(Authority(CA, OTHER, OTHER.certificate))


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
def test_damaged_secret_is_recognized(change: dict[str, Any]) -> None:
    data = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(InvalidCertificate):
        from_secret_data(data)


# --- the change of authority ------------------------------------------------------------------------


def step(current: Authority | None, at: int, *, distributed: bool = False) -> Authority:
    return next_authority(current, NOW + at, name="test", distributed=distributed)


def test_the_first_authority_is_made_at_once_and_stays() -> None:
    first = step(None, 0)
    assert first.upcoming is None
    assert first.bundle == first.active.certificate
    assert step(first, DAY) is first


def test_the_change_of_authority_step_by_step() -> None:
    old = Authority(CA)
    due = 250 * DAY
    announced = step(old, due)
    assert announced.active == CA
    assert announced.upcoming
    assert bundle_contains(announced.bundle, CA.certificate)
    assert bundle_contains(announced.bundle, announced.upcoming.certificate)

    assert step(announced, due + DAY, distributed=False) is announced, "not known to be everywhere"
    assert step(announced, due + OVERLAP - MINUTE, distributed=True) is announced, "too early"

    changed = step(announced, due + OVERLAP, distributed=True)
    assert changed.active == announced.upcoming
    assert changed.upcoming is None
    assert changed.previous == CA.certificate
    assert changed.bundle.count(b"BEGIN CERTIFICATE") == 2
    assert b"PRIVATE KEY" not in changed.bundle

    assert step(changed, 300 * DAY) is changed
    alone = step(changed, 366 * DAY)
    assert alone == replace(changed, previous=b"")


def test_an_authority_that_expired_is_replaced_without_waiting() -> None:
    announced = step(Authority(CA), 250 * DAY)
    late = step(announced, 366 * DAY, distributed=False)
    assert late.active == announced.upcoming
    alone = step(Authority(CA), 366 * DAY)
    assert validity(alone.active.certificate).contains(NOW + 366 * DAY)
    assert alone.upcoming is None


def test_an_upcoming_authority_that_expired_before_its_turn_is_made_anew() -> None:
    announced = Authority(make_authority(NOW + 300 * DAY, name="test"), CA)
    dropped = step(announced, 400 * DAY, distributed=True)
    assert dropped.upcoming is None
    assert dropped.active == announced.active


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 120 * 24), st.booleans(), st.integers(0, 2)), min_size=1, max_size=15)
)
def test_client_with_the_published_bundle_trusts_every_certificate(
    moves: list[tuple[int, bool, int]],
) -> None:
    """Clients hold the bundle as it was when it was last distributed; leaves are signed by what is active."""
    now = NOW
    authority = next_authority(None, now, name="test", distributed=False)
    held_by_clients = authority.bundle
    for hours, distribute, repeats in moves:
        now += hours * HOUR
        was_valid = validity(authority.active.certificate).contains(now)
        for _ in range(repeats + 1):
            distributed = held_by_clients == authority.bundle
            following = next_authority(authority, now, name="test", distributed=distributed)
            changed_signer = following.active != authority.active
            if changed_signer and was_valid:
                assert bundle_contains(held_by_clients, following.active.certificate)
                assert bundle_contains(following.bundle, authority.active.certificate)
            authority = following
            was_valid = True
        assert validity(authority.active.certificate).contains(now)
        if distribute:
            held_by_clients = authority.bundle
