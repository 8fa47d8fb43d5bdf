"""Reads and writes of etcd without the API server, for loads of many thousand stored objects.

The API server creates a few hundred objects a second, and etcd stores many thousand. Custom resources are
stored as the JSON of the object without its resourceVersion.
"""

import base64
import http.client
import json
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, Self

from admitq.runtime.resources import Resource

_PREFIX: Final = "/registry"
_TIMEOUT_S: Final = 60.0
_PUTS: Final = 100
"""Objects of one transaction. etcd allows 128 operations and 1.5 MiB."""


class EtcdFailed(Exception):
    """etcd refused a request, or an object is not stored."""


def storage_key(resource: Resource, namespace: str, name: str) -> str:
    """Return the key under which the API server stores an object of a custom resource."""
    return f"{_PREFIX}/{resource.group}/{resource.plural}/{namespace}/{name}"


class EtcdGateway:
    """A connection to the JSON gateway of an etcd member on this machine.

    Args:
        host: the address of the client port.
        port: the client port.
    """

    def __init__(self, host: str, port: int) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def get(self, key: str) -> bytes:
        """Return the value of a key.

        Raises:
            EtcdFailed: the key does not exist.
        """
        found = self._call("/v3/kv/range", {"key": _encode(key.encode())}).get("kvs") or []
        if not found:
            raise EtcdFailed(f"etcd has no key {key}")
        return base64.b64decode(found[0]["value"])

    def put_all(self, values: Iterable[tuple[str, bytes]]) -> int:
        """Write many keys, and return how many there were.

        Raises:
            EtcdFailed: etcd refused a transaction.
        """
        count = 0
        remaining = iter(values)
        while batch := list(islice(remaining, _PUTS)):
            puts = [
                {"requestPut": {"key": _encode(key.encode()), "value": _encode(value)}}
                for key, value in batch
            ]
            self._call("/v3/kv/txn", {"success": puts})
            count += len(batch)
        return count

    def delete_all(self, prefix: str) -> int:
        """Delete all keys that begin with a prefix, and return how many there were.

        Raises:
            EtcdFailed: etcd refused the call.
        """
        first = prefix.encode()
        end = first[:-1] + bytes([first[-1] + 1])
        answer = self._call("/v3/kv/deleterange", {"key": _encode(first), "range_end": _encode(end)})
        return int(answer.get("deleted", 0))

    def _call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        text = response.read()
        if response.status != http.client.OK:
            raise EtcdFailed(f"etcd refused {path}: {response.status} {text[:500].decode(errors='replace')}")
        return json.loads(text)


def _encode(value: bytes) -> str:
    return base64.b64encode(value).decode()
