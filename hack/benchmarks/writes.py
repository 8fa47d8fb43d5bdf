"""The cost of a status write of a Workload to the API server, by parts.

Each variant changes one part of the write that the manager sends today. The variants take turns, so that
other work on the machine affects all of them alike. The figure is CPU time of the API server's process, which
other work changes less than latency.
"""

import asyncio
import http.client
import json
import os
import re
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import orjson
import uvloop

from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.rate_limit import CallPriority, call_priority
from benchmarks.clusters import fresh_cluster, harness_client
from benchmarks.measures import percentile_of_unsorted
from benchmarks.writes_definitions import TODAY, TWO_VERSIONS, create_definition, resource_of
from benchmarks.writes_requests import (
    APPLY,
    CHANGES,
    MERGE_PATCH,
    NAMESPACE,
    REPORT,
    RESERVATION,
    WRITES,
    create_workload,
)
from localcluster import crds
from localcluster.api import Api
from localcluster.cluster import LocalCluster, to_stderr

_AT_ONCE: Final = 4
_MANAGER: Final = "manager"
_UNAUDITED: Final = "unaudited"
_ADMIN: Final = "admin"
_ACCOUNT_NAMESPACES: Final = {_MANAGER: NAMESPACE, _UNAUDITED: "kube-system"}
"""The namespaces of ServiceAccounts. The audit policy of local clusters ignores those of kube-system."""

_PROFILE_S: Final = 30
_NOT_MEASURED: Final = ("kube-controller-manager", "kube-scheduler", "kwok")
_HEADINGS: Final = (
    "part",
    "difference from today",
    "report, ms",
    "÷ today",
    "reservation, ms",
    "÷ today",
    "etcd, ms",
    "p50, ms",
    "allocated, KiB",
    "÷ today",
    "object, bytes",
)


class WritesFailed(Exception):
    """A write had another result than expected."""


@dataclass(frozen=True)
class Variant:
    """One part of a status write that differs from the write of today.

    Attributes:
        part: the part that differs.
        name: the difference.
        definition: the CustomResourceDefinition, by its name in `writes_definitions`.
        write: the form of the write, by its name in `WRITES`.
        template_kib: the size of the pod template.
        managers: the number of further field managers of the object.
        tracks_fields: whether the object has managed fields.
        reports_unknown_fields: whether the API server compares the request with the schema to warn of unknown
            fields (fieldValidation=Warn). If false, the request has fieldValidation=Ignore.
        watches: the number of watches of all Workloads.
        account: the user of the writes.
    """

    part: str
    name: str
    definition: str = TODAY
    write: str = APPLY
    template_kib: int = 1
    managers: int = 0
    tracks_fields: bool = True
    reports_unknown_fields: bool = False
    watches: int = 1
    account: str = _MANAGER


def _definitions(part: str, **names: str) -> tuple[Variant, ...]:
    return tuple(Variant(part, name.replace("_", " "), definition=key) for name, key in names.items())


VARIANTS: Final = (
    Variant("form", "with warnings of unknown fields", reports_unknown_fields=True),
    Variant(
        "form",
        "with warnings, single fields of template and status, conditions first",
        definition="single-fields-conditions-first",
        reports_unknown_fields=True,
    ),
    Variant("form", "merge patch", write=MERGE_PATCH),
    Variant(
        "form", "merge patch, with warnings of unknown fields", write=MERGE_PATCH, reports_unknown_fields=True
    ),
    Variant("form", "JSON patch", write="json-patch"),
    Variant("form", "update", write="update"),
    Variant("form", "update without spec", write="update-without-spec"),
    Variant("managers", "3 more field managers", managers=3),
    Variant("managers", "10 more field managers", managers=10),
    Variant("managers", "merge patch, 10 more field managers", write=MERGE_PATCH, managers=10),
    Variant("managers", "merge patch, no managed fields", write=MERGE_PATCH, tracks_fields=False),
    Variant("managers", "update, no managed fields", write="update", tracks_fields=False),
    *_definitions(
        "schema",
        managers_own_single_fields_of_template="divided-template",
        pod_sets_are_one_field_of_managers="atomic-pod-sets",
        managers_own_single_fields_of_conditions_and_admission="divided-status",
        template_without_schema="open-template",
        template_without_schema_and_single_fields="open-divided-template",
        template_drops_unknown_fields="closed-template",
        no_patterns="no-patterns",
    ),
    *_definitions(
        "rules",
        rules_evaluate_conditions_first="conditions-first",
        no_rules="no-rules",
        no_rules_of_the_object="no-rules-of-object",
        no_rules_of_the_spec="no-rules-of-spec",
        no_rules_of_the_status="no-rules-of-status",
        no_rules_and_template_without_schema="open-template-no-rules",
    ),
    Variant("size", "template of 5 KiB", template_kib=5),
    Variant("size", "template of 50 KiB", template_kib=50),
    Variant("size", "5 KiB, single fields of template", definition="divided-template", template_kib=5),
    Variant("size", "50 KiB, single fields of template", definition="divided-template", template_kib=50),
    Variant("size", "50 KiB, template without schema", definition="open-template", template_kib=50),
    Variant("size", "50 KiB, merge patch", write=MERGE_PATCH, template_kib=50),
    Variant("watches", "no watch", watches=0),
    Variant("watches", "5 watches", watches=5),
    Variant("watches", "10 watches", watches=10),
    Variant(
        "watches",
        "10 watches, merge patch, no managed fields",
        write=MERGE_PATCH,
        tracks_fields=False,
        watches=10,
    ),
    *_definitions("cluster", no_columns="no-columns", two_versions=TWO_VERSIONS),
    Variant("cluster", "not in the audit log", account=_UNAUDITED),
    Variant("cluster", "administrator: neither audit log nor RBAC", account=_ADMIN),
)
"""What is compared with the write of today."""

PARTS: Final = tuple(dict.fromkeys(variant.part for variant in VARIANTS))


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes:
        parts: the parts to compare; none means all.
        writes: the number of writes of a kind, in one round of a variant.
        rounds: the highest number of rounds.
        seconds: no round starts after this time.
        profile: the file for a CPU profile of the API server during writes of today, or None.
    """

    parts: tuple[str, ...] = ()
    writes: int = 25
    rounds: int = 40
    seconds: float = 120.0
    profile: Path | None = None

    def variants(self) -> list[Variant]:
        """Return the variants to measure. The first is the write of today."""
        wanted = self.parts or PARTS
        return [Variant(TODAY, TODAY), *(one for one in VARIANTS if one.part in wanted)]


class Sample(NamedTuple):
    """The cost of a write in one round: CPU time of API server and etcd, and p50 of latency, in ms."""

    api_ms: float
    etcd_ms: float
    p50_ms: float


def summarize(samples: Sequence[Sample], of_today: Sequence[Sample]) -> dict[str, float]:
    """Return the means of the rounds, their ratio to those of today, and the median of the latencies.

    Means contain all garbage collections, which a median of short rounds would omit.
    """
    api, today = (fmean(one.api_ms for one in of) for of in (samples, of_today))
    return {
        "api_cpu_ms": round(api, 2),
        "ratio": round(api / today, 2),
        "etcd_cpu_ms": round(fmean(one.etcd_ms for one in samples), 2),
        "p50_ms": round(median(one.p50_ms for one in samples), 1),
    }


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the Markdown table of the result's rows."""
    lines = [
        f"| {' | '.join(_HEADINGS)} |",
        f"|{'---|' * len(_HEADINGS)}",
    ]
    for row in rows:
        report, reservation = row[REPORT], row[RESERVATION]
        cells = (
            row["part"],
            row["name"],
            f"{report['api_cpu_ms']:.2f}",
            f"{report['ratio']:.2f}",
            f"{reservation['api_cpu_ms']:.2f}",
            f"{reservation['ratio']:.2f}",
            f"{reservation['etcd_cpu_ms']:.2f}",
            f"{reservation['p50_ms']:.1f}",
            f"{row['allocated_kib']:.0f}",
            f"{row['allocated_ratio']:.2f}",
            f"{row['object_bytes']:,}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process so far, of all its threads, in seconds."""
    # Linux derives the clock of a process from its id: see clock_getcpuclockid(3). /proc counts only in
    # hundredths of a second.
    return time.clock_gettime((~process << 3) | 2)


def run(effort: Effort) -> dict[str, Any]:
    """Measure on a control plane of its own.

    Raises:
        ClusterError: the cluster cannot be started.
        WritesFailed: a write was rejected or did not change the object.
    """
    result, profile = uvloop.run(_run(effort))
    if effort.profile is not None:
        effort.profile.write_bytes(profile)
    return result


async def _run(effort: Effort) -> tuple[dict[str, Any], bytes]:
    # The usual garbage collection of an API server. That of local clusters is rarer and longer.
    os.environ["GOGC"] = "100"
    with fresh_cluster(name="bench-writes", api_server_arguments=("--profiling=true",)) as cluster:
        variants = effort.variants()
        _prepare(cluster, variants)
        async with AsyncExitStack() as stack:
            clients = {
                _Sender(account, reports): await stack.enter_async_context(
                    harness_client(path, field_validation="Warn" if reports else "Ignore")
                )
                for account, path in _kubeconfigs(cluster).items()
                for reports in (True, False)
            }
            measured = [_Measurement(cluster, one, clients, effort.writes) for one in variants]
            for one in measured:
                await one.create()
            begin, number = time.monotonic(), 0
            # The first round does not count.
            while number < 2 or (number <= effort.rounds and time.monotonic() < begin + effort.seconds):
                # In every other round the order is reversed, so that no variant always follows the same one.
                for one in measured[:: -1 if number % 2 else 1]:
                    await one.run(number)
                number += 1
            to_stderr(f"{number - 1} rounds in {time.monotonic() - begin:.0f} s")
            for one in measured:
                one.forget_first_round()
            # The writes for the profile are no part of the figures.
            rows = [one.row(measured[0]) for one in measured]
            profile = b"" if effort.profile is None else await _profile(cluster, measured[0])
    to_stderr(table(rows))
    return {"benchmark": "writes", "writes": effort.writes, "rounds": number - 1, "rows": rows}, profile


def _prepare(cluster: LocalCluster, variants: Sequence[Variant]) -> None:
    """Install the definitions, and create the accounts. Stop all other clients of the API server."""
    with cluster.api() as api:
        api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for account, namespace in _ACCOUNT_NAMESPACES.items():
            _create_account(api, account, namespace)
    definitions = dict.fromkeys(variant.definition for variant in variants)
    to_stderr(f"installing {len(definitions)} definitions of Workloads")
    crds.apply(cluster, [create_definition(name) for name in definitions])
    for name in _NOT_MEASURED:
        cluster.terminate(name)


def _create_account(api: Api, account: str, namespace: str) -> None:
    api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": account}})
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    api.request("POST", path, {"metadata": {"name": account}, "subjects": [subject], "roleRef": role})


def _kubeconfigs(cluster: LocalCluster) -> dict[str, Path]:
    """Return a kubeconfig file for each account."""
    files = {_ADMIN: cluster.kubeconfig}
    administrator = json.loads(cluster.kubeconfig.read_text())
    for account, namespace in _ACCOUNT_NAMESPACES.items():
        with cluster.api() as api:
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
            token = api.request("POST", path, {"spec": {"expirationSeconds": 7200}})["status"]["token"]
        files[account] = cluster.folder / "kubeconfigs" / f"{account}.yaml"
        users = [{"name": user["name"], "user": {"token": token}} for user in administrator["users"]]
        files[account].touch(mode=0o600)
        files[account].write_text(json.dumps({**administrator, "users": users}))
    return files


class _Sender(NamedTuple):
    """The user of writes, and whether the API server reports unknown fields."""

    account: str
    reports_unknown_fields: bool = False


@dataclass
class _Measurement:
    """The Workloads of one variant, and what their writes cost."""

    cluster: LocalCluster
    variant: Variant
    clients: Mapping[_Sender, Client]
    count: int
    objects: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    allocated_kib: list[float] = field(default_factory=list[float])
    """What the API server allocated for a write, in each round, over all changes."""
    samples: dict[str, list[Sample]] = field(default_factory=lambda: {change: [] for change in CHANGES})

    async def create(self) -> None:
        """Create the Workloads."""
        variant, client = self.variant, self.clients[_Sender(_ADMIN)]
        prefix = f"{VARIANTS.index(variant)}" if variant in VARIANTS else TODAY

        async def one(number: int) -> dict[str, Any]:
            return await create_workload(
                client,
                resource_of(variant.definition),
                f"job-{prefix}-{number}",
                template_kib=variant.template_kib,
                managers=variant.managers,
                tracks_fields=variant.tracks_fields,
            )

        self.objects = await concurrently(one, range(self.count))

    async def run(self, number: int) -> None:
        """Write every change to every Workload."""
        async with _watches(self.clients[_Sender(_ADMIN)], self.variant, self._touch):
            before = await self._allocated_bytes()
            # The report of allocations allocates memory itself.
            start = await self._allocated_bytes()
            await self._write_all(number)
            by_writes = await self._allocated_bytes() - start - (start - before)
            self.allocated_kib.append(by_writes / 1024 / self.count / len(CHANGES))

    async def run_for_profile(self, number: int) -> None:
        """Write every change to every Workload, without other requests that the profile would contain."""
        async with _watches(self.clients[_Sender(_ADMIN)], self.variant, self._touch):
            await self._write_all(number)

    async def _write_all(self, number: int) -> None:
        for change in CHANGES:
            self.samples[change].append(await self._measure(change, number))

    def forget_first_round(self) -> None:
        """Forget the first round: a first write of an object adds managed fields."""
        for samples in (*self.samples.values(), self.allocated_kib):
            samples.pop(0)

    def row(self, today: "_Measurement") -> dict[str, Any]:
        """Return the figures as a row of the result."""
        obj = self.objects[0]
        fields = obj["metadata"].get("managedFields") or []
        return {
            "part": self.variant.part,
            "name": self.variant.name,
            "object_bytes": len(orjson.dumps(obj)),
            "managed_fields_bytes": len(orjson.dumps(fields)),
            "allocated_kib": round(median(self.allocated_kib)),
            "allocated_ratio": round(median(self.allocated_kib) / median(today.allocated_kib), 3),
            **{change: summarize(self.samples[change], today.samples[change]) for change in CHANGES},
        }

    async def _measure(self, change: str, number: int) -> Sample:
        latencies: list[float] = []
        servers = [self._process(name) for name in ("kube-apiserver", "etcd")]
        before = [cpu_seconds(server) for server in servers]

        async def one(index: int) -> dict[str, Any]:
            obj, written, seconds = await self._write(index, change, number)
            if written["metadata"]["resourceVersion"] == obj["metadata"]["resourceVersion"]:
                raise WritesFailed(f"{self.variant.name}: a {change} changed nothing")
            latencies.append(seconds * 1000)
            return written

        self.objects = await concurrently(one, range(self.count))
        api, etcd = (
            (cpu_seconds(server) - start) * 1000 / self.count
            for server, start in zip(servers, before, strict=True)
        )
        return Sample(api, etcd, percentile_of_unsorted(latencies, 50) or 0.0)

    async def _write(
        self, index: int, change: str, number: int
    ) -> tuple[dict[str, Any], dict[str, Any], float]:
        """Write one change. Return the Workload before and after, and the latency in seconds."""
        variant, obj = self.variant, self.objects[index]
        patch = CHANGES[change](obj, number)
        if patch is None:
            raise WritesFailed(f"{variant.name}: there is nothing to write for a {change}")
        client = self.clients[_Sender(variant.account, variant.reports_unknown_fields)]
        resource = resource_of(variant.definition)
        begin = time.perf_counter()
        try:
            # The class with the most slots, so that the write scheduler does not reduce the load.
            with call_priority(CallPriority.RESERVATION):
                written = await WRITES[variant.write](client, resource, obj, patch)
        except ApiError as error:
            raise WritesFailed(f"{variant.name}: {error}") from error
        return obj, written, time.perf_counter() - begin

    async def _allocated_bytes(self) -> int:
        """Return how many bytes the API server has allocated since its start."""
        report = await asyncio.to_thread(_read_from_api_server, self.cluster, "/debug/pprof/heap?debug=1")
        return read_total_allocation(report.decode())

    async def _touch(self) -> None:
        """Change one Workload, which all watches report."""
        label = {"metadata": {"labels": {"bench.example.com/touched": str(time.time_ns())}}}
        name = self.objects[0]["metadata"]["name"]
        self.objects[0] = await self.clients[_Sender(_ADMIN)].merge_patch(
            resource_of(self.variant.definition), name, label, NAMESPACE
        )

    def _process(self, name: str) -> int:
        return self.cluster.processes.all()[name].pid


async def concurrently(
    work: Callable[[int], Any], numbers: Iterable[int], *, at_once: int = _AT_ONCE
) -> list[Any]:
    """Do work for each number, a few at once. Return the results in the order of the numbers."""
    results: dict[int, Any] = {}
    remaining = iter(numbers)

    async def some() -> None:
        for number in remaining:
            results[number] = await work(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(some())
    return [results[number] for number in sorted(results)]


@asynccontextmanager
async def _watches(client: Client, variant: Variant, touch: Callable[[], Any]) -> AsyncGenerator[None]:
    """Keep the watches of a variant open."""
    resource = resource_of(variant.definition)
    page = await client.request_json("GET", resource.path(), query={"limit": "1"})
    version = page["metadata"]["resourceVersion"]
    started = [asyncio.Event() for _ in range(variant.watches)]

    async def watch(is_started: asyncio.Event) -> None:
        async for _ in client.watch(resource, version):
            is_started.set()

    tasks = [asyncio.create_task(watch(event)) for event in started]
    try:
        await touch()
        for event in started:
            await asyncio.wait_for(event.wait(), timeout=30.0)
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _profile(cluster: LocalCluster, today: _Measurement) -> bytes:
    """Return a CPU profile of the API server during writes of today, for `go tool pprof -top`."""
    to_stderr(f"profiling the API server for {_PROFILE_S} s")
    loop = asyncio.get_running_loop()
    reading = loop.run_in_executor(None, _read_profile, cluster)
    number = -1
    while not reading.done():
        number -= 1
        await today.run_for_profile(number)
    return await reading


def read_total_allocation(heap_profile: str) -> int:
    """Return the bytes that a Go program has allocated since its start, from its heap profile as text.

    Raises:
        WritesFailed: the profile does not contain the number.
    """
    found = re.search(r"^# TotalAlloc = (\d+)$", heap_profile, re.MULTILINE)
    if found is None:
        raise WritesFailed("the heap profile of the API server has no TotalAlloc")
    return int(found[1])


def _read_profile(cluster: LocalCluster) -> bytes:
    return _read_from_api_server(cluster, f"/debug/pprof/profile?seconds={_PROFILE_S}")


def _read_from_api_server(cluster: LocalCluster, path: str) -> bytes:
    """Read a path that does not answer with JSON, as administrator.

    Raises:
        WritesFailed: the API server rejected the request.
    """
    context = ssl.create_default_context(cafile=str(cluster.authority))
    context.load_cert_chain(cluster.admin.certificate, cluster.admin.key)
    address = urlsplit(cluster.server)
    connection = http.client.HTTPSConnection(
        address.hostname or "", address.port, context=context, timeout=_PROFILE_S + 30.0
    )
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise WritesFailed(f"the API server rejected {path}: {answer.status} {content[:200]!r}")
    return content
