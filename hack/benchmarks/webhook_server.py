"""A process with the webhooks for `hack/bench webhook`: over TLS, in a cluster with one queue."""

import asyncio
import sys
import time
from collections.abc import Mapping
from typing import Any

import uvloop

from admitq.app.settings import load_settings
from admitq.app.webhook import review_observer
from admitq.metrics.registry import Metrics
from admitq.process.garbage_collection import exclude_current_objects, reduce_collections
from admitq.serving.access_reviews import Access
from admitq.serving.authorization import User
from admitq.serving.certificates import create_authority, create_leaf
from admitq.serving.http import route_by_path
from admitq.serving.server import Server
from admitq.serving.tls import LiveCertificate
from admitq_webhooks.large_reviews import LargeReviews
from admitq_webhooks.policy import configured_policy
from admitq_webhooks.review_child import StartMessage
from admitq_webhooks.routes import review_handlers

QUEUE = "queue"
IN_PROCESS = "in-process"
"""The argument with which the serving process reviews large objects itself."""


class OneQueue:
    """A cluster in which every namespace has the same LocalQueue, and jobs have no owners."""

    def has_local_queue(self, namespace: str, name: str) -> bool:
        """Return whether the LocalQueue exists."""
        del namespace
        return name == QUEUE

    def has_priority_class(self, name: str) -> bool:
        """Return False: there is no priority class."""
        del name
        return False

    def admission_check_controllers(self, namespace: str, queue: str) -> frozenset[str]:
        """Return that queues have no admission checks."""
        del namespace, queue
        return frozenset()

    async def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return that every namespace exists."""
        return {"kubernetes.io/metadata.name": name}

    async def get_object(
        self, group: str, version: str, kind: str, namespace: str, name: str
    ) -> Mapping[str, Any] | None:
        """Return that there are no owners."""
        del group, version, kind, namespace, name
        return None

    async def is_allowed(self, user: User, access: Access) -> bool:
        """Return that no user may do anything."""
        del user, access
        return False

    async def plural(self, group: str, version: str, kind: str) -> str | None:
        """Return that no further kind is served."""
        del group, version, kind
        return None


async def serve(*, in_process: bool) -> None:
    """Serve until standard input ends. The first line of standard output is the port; then follows the CA."""
    settings = load_settings(None)
    lookups = OneQueue()
    policy = configured_policy(settings.configuration, settings.gates, settings.integrations)
    metrics = Metrics()
    observe = review_observer(metrics)
    handlers = review_handlers(policy, lookups, settings.known, observe=observe, errors=metrics.errors)
    large = LargeReviews(
        StartMessage(settings.configuration, settings.gates), lookups, observe=observe, errors=metrics.errors
    )
    if not in_process:
        handlers = {path: large.wrap(handler) for path, handler in handlers.items()}
    authority = create_authority(time.time_ns(), name="bench")
    live = LiveCertificate()
    live.use(create_leaf(authority, time.time_ns(), names=("localhost",), name="bench"))
    server = Server(route_by_path(handlers), tls=live.context, errors=metrics.errors)
    _, port = await server.start("127.0.0.1", 0)
    exclude_current_objects()
    print(port, authority.certificate.decode(), sep="\n", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop()
    await large.stop()


if __name__ == "__main__":
    reduce_collections()
    uvloop.run(serve(in_process=IN_PROCESS in sys.argv[1:]))
