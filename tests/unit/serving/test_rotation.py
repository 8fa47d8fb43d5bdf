"""Replicas agree on an authority, distribute its bundle to every client, and only then serve certificates."""

import asyncio
import base64
import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from admitq.serving import certificates, rotation
from admitq.serving.certificates import DAY, OVERLAP, Authorities, bundle_contains, is_signed_by
from admitq.serving.rotation import (
    BundleTarget,
    CertificateApiError,
    FileCertificates,
    ManagedCertificates,
    bundle_operations,
)
from admitq.serving.tls import LiveCertificate
from tests.unit.serving.support import authority, leaf_of, until

MUTATING = BundleTarget("mutatingwebhookconfigurations", "admitq")
VALIDATING = BundleTarget("validatingwebhookconfigurations", "admitq")
CRD = BundleTarget("customresourcedefinitions", "workloads.admitq.dev")

NOW = 1_800_000_000_000_000_000


def webhook_configuration(*names: str) -> dict[str, Any]:
    return {"webhooks": [{"name": name, "clientConfig": {"url": "https://x"}} for name in names]}


@dataclass
class FakeApi:
    """Stores one Secret and the configurations, with resource versions as in the API server."""

    secret: dict[str, Any] | None = None
    objects: dict[BundleTarget, Any] = field(default_factory=dict)
    version: int = 1
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    failing_calls: set[str] = field(default_factory=set)
    before_write: Any = None

    async def get_secret(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        self.reads.append(f"{namespace}/{name}")
        if "get_secret" in self.failing_calls:
            raise CertificateApiError("down")
        await asyncio.sleep(0)
        return copy.deepcopy(self.secret)

    async def create_secret(self, secret: Mapping[str, Any]) -> bool:
        await asyncio.sleep(0)
        if self.secret is not None:
            return False
        return self._store(secret)

    async def replace_secret(self, secret: Mapping[str, Any]) -> bool:
        await asyncio.sleep(0)
        if self.before_write:
            self.before_write()
        if (
            self.secret is None
            or secret["metadata"]["resourceVersion"] != self.secret["metadata"]["resourceVersion"]
        ):
            return False
        return self._store(secret)

    def _store(self, secret: Mapping[str, Any]) -> bool:
        self.version += 1
        stored = copy.deepcopy(dict(secret))
        stored["metadata"]["resourceVersion"] = str(self.version)
        self.secret = stored
        self.writes.append("secret")
        return True

    async def get_configuration(self, target: BundleTarget) -> Mapping[str, Any] | None:
        await asyncio.sleep(0)
        return copy.deepcopy(self.objects.get(target))

    async def patch_configuration(self, target: BundleTarget, operations: list[dict[str, Any]]) -> None:
        await asyncio.sleep(0)
        if str(target) in self.failing_calls:
            raise CertificateApiError("forbidden")
        for operation in operations:
            if operation["op"] == "add":
                *path, last = operation["path"].strip("/").split("/")
                parent = self.objects[target]
                for step in path:
                    parent = parent[int(step)] if step.isdigit() else parent[step]
                parent[last] = operation["value"]
        self.writes.append(str(target))

    def bundle(self, target: BundleTarget = MUTATING) -> bytes:
        return base64.b64decode(self.objects[target]["webhooks"][0]["clientConfig"].get("caBundle", ""))

    @property
    def authority(self) -> Authorities:
        assert self.secret
        return certificates.from_secret_data(self.secret["data"])


def api_with_objects(**changes: Any) -> FakeApi:
    empty = {"metadata": {"namespace": "ns", "name": "certs", "resourceVersion": "1"}, "type": "Opaque"}
    objects: dict[BundleTarget, Any] = {
        MUTATING: webhook_configuration("a", "b"),
        VALIDATING: webhook_configuration("c"),
    }
    settings: dict[str, Any] = {"secret": empty, "objects": objects, **changes}
    return FakeApi(**settings)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


def create_replica(
    api: FakeApi, clock: Clock, targets: tuple[BundleTarget, ...] = (MUTATING, VALIDATING), **options: Any
) -> ManagedCertificates:
    return ManagedCertificates(
        api,
        LiveCertificate(),
        secret=("ns", "certs"),
        targets=targets,
        hosts=("svc.ns.svc",),
        name="test",
        clock=clock,
        **options,
    )


def served_certificate(replica: ManagedCertificates) -> bytes:
    assert replica.live.certificate
    return replica.live.certificate


async def test_first_step_creates_and_distributes_authority_and_serves_certificate() -> None:
    api = api_with_objects()
    replica = create_replica(api, Clock())
    assert not replica.first.is_set()
    await replica.step()
    assert replica.first.is_set()
    assert is_signed_by(served_certificate(replica), api.authority.active.certificate)
    assert api.bundle(MUTATING) == api.bundle(VALIDATING) == replica.trust == api.authority.bundle
    assert api.objects[MUTATING]["webhooks"][1]["clientConfig"]["caBundle"]


async def test_missing_secret_is_created() -> None:
    api = api_with_objects(secret=None)
    await create_replica(api, Clock()).step()
    assert api.secret
    assert api.secret["metadata"]["name"] == "certs"


async def test_step_without_change_writes_nothing() -> None:
    api = api_with_objects()
    replica = create_replica(api, Clock())
    await replica.step()
    api.writes.clear()
    leaf = served_certificate(replica)
    await replica.step()
    await replica.step()
    assert api.writes == []
    assert served_certificate(replica) == leaf


async def test_replicas_that_start_together_share_one_authority() -> None:
    api, clock = api_with_objects(), Clock()
    replicas = [create_replica(api, clock) for _ in range(5)]
    await asyncio.gather(*(replica.step() for replica in replicas))
    await asyncio.gather(*(replica.step() for replica in replicas))
    assert api.writes.count("secret") == 1
    assert len({replica.trust for replica in replicas}) == 1
    for replica in replicas:
        assert is_signed_by(served_certificate(replica), api.authority.active.certificate)
    assert len({served_certificate(replica) for replica in replicas}) == 5


async def test_replica_that_always_conflicts_raises_error() -> None:
    api = api_with_objects()

    def change_secret() -> None:
        assert api.secret
        api.version += 1
        api.secret["metadata"]["resourceVersion"] = str(api.version)

    api.before_write = change_secret
    with pytest.raises(CertificateApiError, match="changed"):
        await create_replica(api, Clock()).step()


async def test_leaf_is_renewed_without_write_to_api() -> None:
    api, clock = api_with_objects(), Clock()
    replica = create_replica(api, clock)
    await replica.step()
    first = served_certificate(replica)
    api.writes.clear()
    clock.now += 5 * DAY
    await replica.step()
    assert served_certificate(replica) != first
    assert api.writes == []


async def test_new_authority_is_distributed_before_it_signs() -> None:
    api, clock = api_with_objects(), Clock()
    replica = create_replica(api, clock)
    await replica.step()
    old = api.authority.active
    clock.now += 250 * DAY
    await replica.step()
    assert api.authority.active == old
    assert api.authority.upcoming
    assert bundle_contains(api.bundle(), api.authority.upcoming.certificate)
    assert is_signed_by(served_certificate(replica), old.certificate)
    clock.now += OVERLAP
    await replica.step()
    assert api.authority.active != old
    assert is_signed_by(served_certificate(replica), api.authority.active.certificate)
    assert bundle_contains(api.bundle(), old.certificate)


async def test_unreachable_client_delays_new_authority_but_not_new_leaf() -> None:
    api, clock = api_with_objects(), Clock()
    replica = create_replica(api, clock)
    await replica.step()
    old, leaf = api.authority.active, served_certificate(replica)
    api.failing_calls.add(str(VALIDATING))
    clock.now += 250 * DAY
    for _ in range(3):
        await replica.step()
        clock.now += DAY
    assert api.authority.active == old
    assert served_certificate(replica) != leaf
    api.failing_calls.clear()
    await replica.step()
    assert api.authority.active != old


async def test_replica_is_not_ready_before_every_client_has_bundle() -> None:
    api = api_with_objects()
    del api.objects[VALIDATING]
    replica = create_replica(api, Clock())
    await replica.step()
    assert not replica.first.is_set()
    assert f": {VALIDATING} does not exist: install it, set its name under" in replica.problem
    api.objects[VALIDATING] = webhook_configuration("c")
    await replica.step()
    assert replica.first.is_set()
    assert replica.problem == ""


async def test_removed_bundle_is_restored() -> None:
    api = api_with_objects()
    replica = create_replica(api, Clock())
    await replica.step()
    api.objects[MUTATING] = webhook_configuration("a", "b")
    await replica.step()
    assert api.bundle() == api.authority.bundle


async def test_damaged_secret_is_replaced() -> None:
    api, clock = api_with_objects(), Clock()
    replica = create_replica(api, clock)
    await replica.step()
    assert api.secret
    api.secret["data"]["ca.key"] = "bm8ga2V5"
    await replica.step()
    assert is_signed_by(served_certificate(replica), api.authority.active.certificate)
    assert api.bundle() == api.authority.bundle


async def test_secret_does_not_contain_key_of_leaf() -> None:
    api = api_with_objects()
    replica = create_replica(api, Clock())
    await replica.step()
    assert api.secret
    assert set(api.secret["data"]) == {"ca.crt", "ca.key"}


async def test_crd_with_conversion_webhook_gets_bundle() -> None:
    api = api_with_objects()
    api.objects[CRD] = {"spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {}}}}}
    replica = create_replica(api, Clock(), (MUTATING, CRD))
    await replica.step()
    config = api.objects[CRD]["spec"]["conversion"]["webhook"]["clientConfig"]
    assert base64.b64decode(config["caBundle"]) == api.authority.bundle
    assert replica.first.is_set()


@pytest.mark.parametrize("is_optional", [True, False])
async def test_replica_is_ready_without_client_only_if_client_is_optional(is_optional: bool) -> None:
    missing = BundleTarget("customresourcedefinitions", "cohorts.admitq.dev", is_optional=is_optional)
    replica = create_replica(api_with_objects(), Clock(), targets=(MUTATING, missing))
    await replica.step()
    assert replica.first.is_set() is is_optional


def test_crd_without_conversion_webhook_gets_no_bundle() -> None:
    assert bundle_operations({"spec": {"conversion": {"strategy": "None"}}}, b"x") == []


def test_bundle_patch_tests_name_of_webhook() -> None:
    assert bundle_operations(webhook_configuration("a"), b"x") == [
        {"op": "test", "path": "/webhooks/0/name", "value": "a"},
        {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "eA=="},
    ]


def test_bundle_patch_of_api_service_tests_its_service() -> None:
    service = {"name": "s", "namespace": "n", "port": 443}
    obj = {"kind": "APIService", "spec": {"service": service}}
    assert bundle_operations(obj, b"x") == [
        {"op": "test", "path": "/spec/service", "value": service},
        {"op": "add", "path": "/spec/caBundle", "value": "eA=="},
    ]
    assert bundle_operations({"kind": "APIService", "spec": {"caBundle": "eA=="}}, b"x") == []


async def test_expiries_of_authority_and_leaf_are_reported() -> None:
    expiries: dict[str, int] = {}
    replica = create_replica(api_with_objects(), Clock(), on_expiry=expiries.__setitem__)
    await replica.step()
    assert expiries == {"ca": NOW + 365 * DAY, "serving": NOW + 7 * DAY}


async def test_replica_retries_while_api_server_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "RETRY_SECONDS", 0.01)
    api = api_with_objects(failing_calls={"get_secret"})
    replica = create_replica(api, Clock(), period=0.01)
    task = asyncio.create_task(replica.run())
    await until(lambda: len(api.reads) > 2)
    assert not task.done()
    api.failing_calls.clear()
    async with asyncio.timeout(60):
        await replica.first.wait()
    task.cancel()


# --- certificates from files ------------------------------------------------------------------------


def write_files(folder: Path, ca: Any, leaf: Any) -> None:
    (folder / "tls.crt").write_bytes(leaf.certificate)
    (folder / "tls.key").write_bytes(leaf.key)
    (folder / "ca.crt").write_bytes(ca.certificate)


async def test_changed_certificate_files_are_served(tmp_path: Path) -> None:
    live, expiries = LiveCertificate(), {}
    ca = authority()
    first, second = leaf_of(ca), leaf_of(ca)
    write_files(tmp_path, ca, first)
    files = FileCertificates(tmp_path, live, period=0.01, on_expiry=expiries.__setitem__)
    task = asyncio.create_task(files.run())
    async with asyncio.timeout(60):
        await files.first.wait()
    assert live.certificate == first.certificate
    assert files.trust == ca.certificate
    assert set(expiries) == {"serving"}
    write_files(tmp_path, ca, second)
    await until(lambda: live.certificate == second.certificate)
    task.cancel()


async def test_half_replaced_certificate_files_keep_last_certificate(tmp_path: Path) -> None:
    live, ca = LiveCertificate(), authority()
    first, second = leaf_of(ca), leaf_of(ca)
    write_files(tmp_path, ca, first)
    files = FileCertificates(tmp_path, live)
    await files.step()
    (tmp_path / "tls.crt").write_bytes(second.certificate)
    with pytest.raises(certificates.InvalidCertificate):
        await files.step()
    assert live.certificate == first.certificate
    (tmp_path / "tls.key").unlink()
    with pytest.raises(FileNotFoundError):
        await files.step()
    assert live.certificate == first.certificate


async def test_missing_certificate_files_are_retried_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[int] = []

    class CountedCertificates(FileCertificates):
        async def step(self) -> None:
            attempts.append(1)
            await super().step()

    ca = authority()
    files = CountedCertificates(tmp_path, LiveCertificate(), period=0.01)
    task = asyncio.create_task(files.run())
    await until(lambda: len(attempts) > 3)
    assert len(caplog.records) == 1, "an unchanged problem is logged once"
    assert files.problem.endswith("tls.crt': put tls.crt and tls.key there")
    write_files(tmp_path, ca, leaf_of(ca))
    async with asyncio.timeout(60):
        await files.first.wait()
    assert files.problem == ""
    task.cancel()


async def test_certificate_itself_is_trusted_if_authority_file_is_missing_or_empty(tmp_path: Path) -> None:
    live, ca = LiveCertificate(), authority()
    leaf = leaf_of(ca)
    write_files(tmp_path, ca, leaf)
    files = FileCertificates(tmp_path, live)
    (tmp_path / "ca.crt").write_bytes(b"")
    await files.step()
    assert files.trust == leaf.certificate
    (tmp_path / "ca.crt").unlink()
    await files.step()
    assert files.trust == leaf.certificate
