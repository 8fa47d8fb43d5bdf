"""The calls of a manager, as the API server counted them: its writes, and the bytes of its lists."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from admitq.runtime.client import Client
from localcluster.cluster import LocalCluster

_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_ACCOUNT_SUFFIX: Final = "-manager"
_SAMPLE: Final = re.compile(r"^(?P<name>\w+)\{(?P<labels>.*)\} (?P<value>\S+)$")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_BYTES: Final = {
    "apiserver_response_sizes_sum": ("LIST", "resource"),
    "apiserver_watch_events_sizes_sum": ("", "resource"),
}
"""Histograms of bytes: the verb that counts, and the label that names the resource."""


_CONSEQUENCES: Final = {
    "workloads/status": 2,
    "events": 3,
    "clusterqueues/status": 2,
    "localqueues/status": 2,
}
"""How many writes may follow from one reservation, by resource."""


@dataclass(frozen=True)
class Write:
    """One write of the manager.

    Attributes:
        verb: the verb of the API server.
        resource: the resource, with its subresource.
        namespace: the namespace of the object; empty for cluster-scoped objects.
        name: the name of the object; empty if the API server generated it.
        code: the HTTP status of the answer.
    """

    verb: str
    resource: str
    namespace: str
    name: str
    code: int


class ManagerWrites:
    """The writes of the manager since the creation of this object, without those of Leases.

    Args:
        cluster: the cluster with the audit log.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._log = cluster.audit_log
        self._offset = self._log.stat().st_size if self._log.exists() else 0
        self._writes: list[Write] = []

    def all(self) -> list[Write]:
        """Return all writes so far."""
        with self._log.open("rb") as log:
            log.seek(self._offset)
            content = log.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        self._writes.extend(write for line in whole.splitlines() if (write := _write(json.loads(line))))
        return self._writes

    def counts(self) -> dict[str, int]:
        """Return the number of writes by verb, resource and code."""
        counts = Counter(f"{write.verb} {write.resource} {write.code}" for write in self.all())
        return dict(sorted(counts.items()))


def _write(call: dict[str, Any]) -> Write | None:
    about = call.get("objectRef") or {}
    is_manager = call["user"]["username"].endswith(_ACCOUNT_SUFFIX)
    if call["verb"] not in _WRITES or not is_manager or about.get("resource") == "leases":
        return None
    resource = "/".join(filter(None, (about.get("resource", ""), about.get("subresource", ""))))
    code = (call.get("responseStatus") or {}).get("code", 0)
    return Write(call["verb"], resource, about.get("namespace", ""), about.get("name", ""), code)


def unneeded_writes(writes: Iterable[Write], decided: str | None) -> dict[str, int]:
    """Count writes that do not follow from the only reservation.

    These follow from it: the Workload, events, the numbers of its queues, and the reason of the next head.

    Args:
        writes: the writes of a manager.
        decided: the namespace of the Workload that got quota, which is also the name of both of its queues;
            None if none did.
    """
    counts = Counter[str]()
    followed = Counter[str]()
    for write in writes:
        place = write.name if write.resource == "clusterqueues/status" else write.namespace
        followed[write.resource] += 1
        if place != decided or followed[write.resource] > _CONSEQUENCES.get(write.resource, 0):
            counts[f"{write.verb} {write.resource} {write.code}"] += 1
    return dict(sorted(counts.items()))


async def list_bytes(client: Client) -> Counter[str]:
    """Return the bytes that the API server has sent so far in lists and in events of watches, by resource."""
    counts = Counter[str]()
    for line in (await client.request_text("/metrics")).splitlines():
        sample = _SAMPLE.match(line)
        if sample is None or sample["name"] not in _BYTES:
            continue
        verb, resource = _BYTES[sample["name"]]
        labels = dict(_LABEL.findall(sample["labels"]))
        if not verb or labels.get("verb") == verb:
            how = "list" if verb else "watch"
            counts[f"{how} {labels.get(resource, '')}"] += int(float(sample["value"]))
    return counts
