"""The child process that reviews large objects, and its messages from and to the serving process.

Parsing an object of some megabytes blocks the interpreter for hundreds of milliseconds, even in a thread. In
a child process it delays no other review. The child reviews one object after the other with the same
handlers. Its parent executes every lookup, so that both have the same view of the cluster. It ends when its
parent ends.
"""

import asyncio
import os
import pickle
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from admitq.integrations.base import Integration
from admitq.integrations.custom import load_enabled_and_all_kinds
from admitq.process import logs
from admitq.process.garbage_collection import reduce_collections
from admitq.process.unexpected_errors import UnexpectedErrors
from admitq.serving.access_reviews import Access
from admitq.serving.authorization import User
from admitq.serving.http import HttpRequest, HttpResponse
from admitq_api.configuration import Configuration
from admitq_api.feature_gates import FeatureGates
from admitq_webhooks.lookups import LookupFailed
from admitq_webhooks.policy import Policy, configured_policy
from admitq_webhooks.routes import review_handlers

LENGTH_BYTES: Final = 4
"""Each message is preceded by its length in bytes, in big-endian order."""

_NICENESS: Final = 5
"""Niceness of the child: on a busy machine, the process that answers all other reviews has priority."""


@dataclass(frozen=True, slots=True)
class StartMessage:
    """First message to the child: the configuration that decides its policy."""

    configuration: Configuration
    gates: FeatureGates


@dataclass(frozen=True, slots=True)
class ReviewMessage:
    """Message to the child: review this body of a request to this path."""

    path: str
    body: bytes


@dataclass(frozen=True, slots=True)
class LookupMessage:
    """Message of the child: call this method of ``ClusterLookups``."""

    method: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class LookupResult:
    """Message to the child: the result of the lookup, or the reason of its failure."""

    value: Any = None
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class ReviewAnswer:
    """Message of the child: the response; the child is ready for the next body.

    Attributes:
        response: the response for the API server.
        is_allowed: whether the object may be stored; None if the body was not a review.
        unexpected_errors: the number of unexpected exceptions that the child has logged; its parent counts
            them.
    """

    response: HttpResponse
    is_allowed: bool | None
    unexpected_errors: int = 0


Message = StartMessage | ReviewMessage | LookupMessage | LookupResult | ReviewAnswer


def encode(message: Message) -> bytes:
    """Return the bytes of a message, with its length before it."""
    encoded = pickle.dumps(message)
    return len(encoded).to_bytes(LENGTH_BYTES, "big") + encoded


def decode(encoded: bytes) -> Message:
    """Return the message from its bytes without the length."""
    # Both ends are processes of one program and one account, and no other process can write to the socket.
    return cast("Message", pickle.loads(encoded))  # noqa: S301


class ParentEnded(Exception):
    """The parent has closed its end."""


class ByteStream(Protocol):
    """A stream of bytes to and from the parent."""

    def read(self, size: int, /) -> bytes:
        """Wait for ``size`` bytes; return fewer if the parent has closed its end."""
        ...

    def write(self, data: bytes, /) -> int:
        """Put bytes into the buffer."""
        ...

    def flush(self) -> None:
        """Send the buffer."""
        ...


class ParentChannel:
    """The child's end of the socket; its calls block, because the child has no other work."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    def receive(self) -> Message:
        """Wait for the next message.

        Raises:
            ParentEnded: the parent has closed its end.
        """
        return decode(self._exactly(int.from_bytes(self._exactly(LENGTH_BYTES), "big")))

    def send(self, message: Message) -> None:
        """Send a message.

        Raises:
            OSError: the parent has ended.
        """
        self._stream.write(encode(message))
        self._stream.flush()

    def _exactly(self, count: int) -> bytes:
        received = self._stream.read(count)
        if len(received) < count:
            raise ParentEnded
        return received


class ParentLookups:
    """Lookups that the parent makes for the child."""

    def __init__(self, channel: ParentChannel) -> None:
        self._channel = channel

    def has_local_queue(self, namespace: str, name: str) -> bool:
        """Return whether the LocalQueue exists."""
        return self._look_up("has_local_queue", namespace, name)

    def has_priority_class(self, name: str) -> bool:
        """Return whether the WorkloadPriorityClass exists."""
        return self._look_up("has_priority_class", name)

    def admission_check_controllers(self, namespace: str, queue: str) -> frozenset[str]:
        """Return the controllers of the admission checks that jobs of a LocalQueue have to pass."""
        return self._look_up("admission_check_controllers", namespace, queue)

    async def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace; None if it does not exist."""
        return self._look_up("namespace_labels", name)

    async def get_object(
        self, group: str, version: str, kind: str, namespace: str, name: str
    ) -> Mapping[str, Any] | None:
        """Return an object that is named as an owner; None if it does not exist."""
        return self._look_up("get_object", group, version, kind, namespace, name)

    async def is_allowed(self, user: User, access: Access) -> bool:
        """Return whether the API server authorizes an access of a user."""
        return self._look_up("is_allowed", user, access)

    async def plural(self, group: str, version: str, kind: str) -> str | None:
        """Return the plural by which the API server serves a kind; None if it does not."""
        return self._look_up("plural", group, version, kind)

    def _look_up(self, method: str, *arguments: Any) -> Any:
        self._channel.send(LookupMessage(method, arguments))
        result = self._channel.receive()
        if not isinstance(result, LookupResult):
            raise TypeError(f"the answer to a lookup is a {type(result).__name__}")
        if result.failed is not None:
            raise LookupFailed(result.failed)
        return result.value


LOOKUPS: Final = frozenset(name for name in vars(ParentLookups) if not name.startswith("_"))
"""The methods of the lookups that a child may call."""


async def serve_reviews(channel: ParentChannel, policy: Policy, known: tuple[Integration, ...]) -> None:
    """Review one body after another until the parent ends.

    Args:
        channel: to the parent.
        policy: what is managed, and which kinds of jobs are enabled.
        known: all kinds of jobs.
    """
    verdicts: list[bool] = []
    failures: list[str] = []

    def observe(_path: str, allowed: bool, _seconds: float) -> None:
        verdicts.append(allowed)

    errors = UnexpectedErrors(lambda _, route: failures.append(route))
    handlers = review_handlers(policy, ParentLookups(channel), known, observe=observe, errors=errors)
    while True:
        try:
            message = channel.receive()
        except ParentEnded:
            return
        if not isinstance(message, ReviewMessage):
            raise TypeError(f"the child got a {type(message).__name__} instead of a ReviewMessage")
        verdicts.clear()
        failures.clear()
        response = await handlers[message.path](HttpRequest("POST", message.path, body=message.body))
        channel.send(ReviewAnswer(response, verdicts[0] if verdicts else None, len(failures)))


def main() -> None:
    """Run the child; standard input is its end of the socket to the parent."""
    reduce_collections()
    logs.configure(component="webhook")
    os.nice(_NICENESS)
    channel = ParentChannel(socket.socket(fileno=0).makefile("rwb"))
    try:
        start = channel.receive()
    except ParentEnded:
        return
    if not isinstance(start, StartMessage):
        raise TypeError(f"the first message is a {type(start).__name__}")
    enabled, known = load_enabled_and_all_kinds(start.configuration, start.gates)
    asyncio.run(serve_reviews(channel, configured_policy(start.configuration, start.gates, enabled), known))
