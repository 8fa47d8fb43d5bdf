"""Replicas agree on an authority, tell every client, and only then show what it signed."""

import asyncio
import base64
import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from admitq.serving import certificates, rotation
from admitq.serving.certificates import DAY, OVERLAP, Authority, bundle_contains, is_signed_by
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


def a_configuration(*names: str) -> dict[str, Any]:
    return {"webhooks": [{"name": name, "clientConfig": {"url": "https://x"}} for name in names]}


@dataclass
class Api:
    """Keeps one Secret and the configurations, with resource versions as the API server has them."""

    secret: dict[str, Any] | None = None
    objects: dict[BundleTarget, Any] = field(default_factory=dict)
    version: int = 1
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    refuse: set[str] = field(default_factory=set)
    before_write: Any = None

    async def get_secret(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        self.reads.append(f"{namespace}/{name}")
        if "get_secret" in self.refuse:
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
        if str(target) in self.refuse:
            raise CertificateApiError("forbidden")
        for operation in operations:
            if operation["op"] == "add":
                *path, last = operation["path"].strip("/").split("/")
                found = self.objects[target]
                for step in path:
                    found = found[int(step)] if step.isdigit() else found[step]
                found[last] = operation["value"]
        self.writes.append(str(target))

    def bundle(self, target: BundleTarget = MUTATING) -> bytes:
        return base64.b64decode(self.objects[target]["webhooks"][0]["clientConfig"].get("caBundle", ""))

    @property
    def authority(self) -> Authority:
        assert self.secret
        return certificates.from_secret_data(self.secret["data"])


def an_api(**changes: Any) -> Api:
    empty = {"metadata": {"namespace": "ns", "name": "certs", "resourceVersion": "1"}, "type": "Opaque"}
    objects: dict[BundleTarget, Any] = {MUTATING: a_configuration("a", "b"), VALIDATING: a_configuration("c")}
    settings: dict[str, Any] = {"secret": empty, "objects": objects, **changes}
    return Api(**settings)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


def a_replica(
    api: Api, clock: Clock, targets: tuple[BundleTarget, ...] = (MUTATING, VALIDATING), **options: Any
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


def shown(replica: ManagedCertificates) -> bytes:
    assert replica.live.certificate
    return replica.live.certificate


async def test_first_step_creates_an_authority_publishes_it_and_serves_a_certificate() -> None:
    api = an_api()
    replica = a_replica(api, Clock())
    assert not replica.first.is_set()
    await replica.step()
    assert replica.first.is_set()
    assert is_signed_by(shown(replica), api.authority.active.certificate)
    assert api.bundle(MUTATING) == api.bundle(VALIDATING) == replica.trust == api.authority.bundle
    assert api.objects[MUTATING]["webhooks"][1]["clientConfig"]["caBundle"]


async def test_a_secret_that_lacks_is_created() -> None:
    api = an_api(secret=None)
    await a_replica(api, Clock()).step()
    assert api.secret
    assert api.secret["metadata"]["name"] == "certs"


async def test_a_step_that_changes_nothing_writes_nothing() -> None:
    api = an_api()
    replica = a_replica(api, Clock())
    await replica.step()
    api.writes.clear()
    leaf = shown(replica)
    await replica.step()
    await replica.step()
    assert api.writes == []
    assert shown(replica) == leaf


async def test_replicas_that_start_together_agree() -> None:
    api, clock = an_api(), Clock()
    replicas = [a_replica(api, clock) for _ in range(5)]
    await asyncio.gather(*(replica.step() for replica in replicas))
    await asyncio.gather(*(replica.step() for replica in replicas))
    assert api.writes.count("secret") == 1
    assert len({replica.trust for replica in replicas}) == 1
    for replica in replicas:
        assert is_signed_by(shown(replica), api.authority.active.certificate)
    assert len({shown(replica) for replica in replicas}) == 5


async def test_a_replica_that_always_comes_second_gives_up_and_says_so() -> None:
    api = an_api()

    def overtake() -> None:
        assert api.secret
        api.version += 1
        api.secret["metadata"]["resourceVersion"] = str(api.version)

    api.before_write = overtake
    with pytest.raises(CertificateApiError, match="changed"):
        await a_replica(api, Clock()).step()


async def test_the_leaf_is_renewed_in_memory_alone() -> None:
    api, clock = an_api(), Clock()
    replica = a_replica(api, clock)
    await replica.step()
    first = shown(replica)
    api.writes.clear()
    clock.now += 5 * DAY
    await replica.step()
    assert shown(replica) != first
    assert api.writes == []


async def test_a_change_of_authority_is_announced_before_it_is_used() -> None:
    api, clock = an_api(), Clock()
    replica = a_replica(api, clock)
    await replica.step()
    old = api.authority.active
    clock.now += 250 * DAY
    await replica.step()
    assert api.authority.active == old
    assert api.authority.upcoming
    assert bundle_contains(api.bundle(), api.authority.upcoming.certificate)
    assert is_signed_by(shown(replica), old.certificate)
    clock.now += OVERLAP
    await replica.step()
    assert api.authority.active != old
    assert is_signed_by(shown(replica), api.authority.active.certificate)
    assert bundle_contains(api.bundle(), old.certificate)


async def test_unreachable_client_delays_the_authority_but_not_the_certificate() -> None:
    api, clock = an_api(), Clock()
    replica = a_replica(api, clock)
    await replica.step()
    old, leaf = api.authority.active, shown(replica)
    api.refuse.add(str(VALIDATING))
    clock.now += 250 * DAY
    for _ in range(3):
        await replica.step()
        clock.now += DAY
    assert api.authority.active == old
    assert shown(replica) != leaf
    api.refuse.clear()
    await replica.step()
    assert api.authority.active != old


async def test_it_is_not_ready_before_every_client_has_the_bundle() -> None:
    api = an_api()
    del api.objects[VALIDATING]
    replica = a_replica(api, Clock())
    await replica.step()
    assert not replica.first.is_set()
    assert f": {VALIDATING} does not exist: install it, set its name under" in replica.problem
    api.objects[VALIDATING] = a_configuration("c")
    await replica.step()
    assert replica.first.is_set()
    assert replica.problem == ""


async def test_removed_bundle_is_restored() -> None:
    api = an_api()
    replica = a_replica(api, Clock())
    await replica.step()
    api.objects[MUTATING] = a_configuration("a", "b")
    await replica.step()
    assert api.bundle() == api.authority.bundle


async def test_a_secret_that_was_damaged_is_made_anew() -> None:
    api, clock = an_api(), Clock()
    replica = a_replica(api, clock)
    await replica.step()
    assert api.secret
    api.secret["data"]["ca.key"] = "bm8ga2V5"
    await replica.step()
    assert is_signed_by(shown(replica), api.authority.active.certificate)
    assert api.bundle() == api.authority.bundle


async def test_the_key_of_the_leaf_is_nowhere_in_the_api() -> None:
    api = an_api()
    replica = a_replica(api, Clock())
    await replica.step()
    assert api.secret
    assert set(api.secret["data"]) == {"ca.crt", "ca.key"}


async def test_conversion_webhooks_get_the_authority_if_configured() -> None:
    api = an_api()
    api.objects[CRD] = {"spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {}}}}}
    replica = a_replica(api, Clock(), (MUTATING, CRD))
    await replica.step()
    config = api.objects[CRD]["spec"]["conversion"]["webhook"]["clientConfig"]
    assert base64.b64decode(config["caBundle"]) == api.authority.bundle
    assert replica.first.is_set()


async def test_missing_optional_client_delays_nothing() -> None:
    for is_optional in (True, False):
        api = an_api()
        missing = BundleTarget("customresourcedefinitions", "cohorts.admitq.dev", is_optional=is_optional)
        replica = a_replica(api, Clock(), targets=(MUTATING, missing))
        await replica.step()
        assert replica.first.is_set() is is_optional


def test_a_crd_without_conversion_needs_no_bundle() -> None:
    assert bundle_operations({"spec": {"conversion": {"strategy": "None"}}}, b"x") == []


def test_a_patch_tests_that_the_entry_is_the_one_it_means() -> None:
    assert bundle_operations(a_configuration("a"), b"x") == [
        {"op": "test", "path": "/webhooks/0/name", "value": "a"},
        {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "eA=="},
    ]


async def test_expiries_are_reported() -> None:
    told: dict[str, int] = {}
    replica = a_replica(an_api(), Clock(), on_expiry=told.__setitem__)
    await replica.step()
    assert told == {"ca": NOW + 365 * DAY, "serving": NOW + 7 * DAY}


async def test_the_loop_outlives_an_api_server_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "RETRY_SECONDS", 0.01)
    api = an_api(refuse={"get_secret"})
    replica = a_replica(api, Clock(), period=0.01)
    task = asyncio.create_task(replica.run())
    await until(lambda: len(api.reads) > 2)
    assert not task.done()
    api.refuse.clear()
    async with asyncio.timeout(60):
        await replica.first.wait()
    task.cancel()


# --- certificates from files ------------------------------------------------------------------------


def put(folder: Path, ca: Any, leaf: Any) -> None:
    (folder / "tls.crt").write_bytes(leaf.certificate)
    (folder / "tls.key").write_bytes(leaf.key)
    (folder / "ca.crt").write_bytes(ca.certificate)


async def test_files_are_shown_and_followed_when_they_change(tmp_path: Path) -> None:
    live, told = LiveCertificate(), {}
    ca = authority()
    first, second = leaf_of(ca), leaf_of(ca)
    put(tmp_path, ca, first)
    files = FileCertificates(tmp_path, live, period=0.01, on_expiry=told.__setitem__)
    task = asyncio.create_task(files.run())
    async with asyncio.timeout(60):
        await files.first.wait()
    assert live.certificate == first.certificate
    assert files.trust == ca.certificate
    assert set(told) == {"serving"}
    put(tmp_path, ca, second)
    await until(lambda: live.certificate == second.certificate)
    task.cancel()


async def test_files_that_are_half_replaced_leave_what_was(tmp_path: Path) -> None:
    live, ca = LiveCertificate(), authority()
    first, second = leaf_of(ca), leaf_of(ca)
    put(tmp_path, ca, first)
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


async def test_files_that_lack_are_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tries: list[int] = []

    class Counted(FileCertificates):
        async def step(self) -> None:
            tries.append(1)
            await super().step()

    ca = authority()
    files = Counted(tmp_path, LiveCertificate(), period=0.01)
    task = asyncio.create_task(files.run())
    await until(lambda: len(tries) > 3)
    assert len(caplog.records) == 1, "the same trouble is told once"
    assert files.problem.endswith("tls.crt': put tls.crt and tls.key there")
    put(tmp_path, ca, leaf_of(ca))
    async with asyncio.timeout(60):
        await files.first.wait()
    assert files.problem == ""
    task.cancel()


async def test_without_an_authority_the_certificate_itself_is_trusted(tmp_path: Path) -> None:
    live, ca = LiveCertificate(), authority()
    leaf = leaf_of(ca)
    put(tmp_path, ca, leaf)
    files = FileCertificates(tmp_path, live)
    (tmp_path / "ca.crt").write_bytes(b"")
    await files.step()
    assert files.trust == leaf.certificate
    (tmp_path / "ca.crt").unlink()
    await files.step()
    assert files.trust == leaf.certificate
