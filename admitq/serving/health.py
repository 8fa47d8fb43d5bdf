"""Liveness and readiness probes over plain HTTP.

The process is alive while its event loop runs, and ready if all checks pass.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from admitq.process.unexpected_errors import LOG_ONLY, UnexpectedErrors
from admitq.serving.http import HttpRequest, HttpResponse, text
from admitq.serving.server import Server, ServerLimits

Check = Callable[[], Awaitable[str | None]]
"""A readiness check: returns None if it passes, otherwise the problem."""


@dataclass(frozen=True)
class HealthEndpoint:
    """Answers the probes of one process.

    Args:
        readiness: path of the readiness probe without its slash.
        liveness: path of the liveness probe without its slash.
        checks: the readiness checks by name.
    """

    readiness: str = "readyz"
    liveness: str = "healthz"
    checks: Mapping[str, Check] = field(default_factory=dict[str, Check])

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer a probe: 200, 503 with the problems, or 404."""
        if request.path == f"/{self.liveness}":
            return text(200, "ok")
        if request.path != f"/{self.readiness}":
            return text(404, "not found")
        problems = [
            f"{name}: {problem}"
            for name, check in self.checks.items()
            if (problem := await check()) is not None
        ]
        return text(503, "\n".join(problems)) if problems else text(200, "ok")

    def server(self, errors: UnexpectedErrors = LOG_ONLY) -> Server:
        """Return a server for the probes, without TLS: the answers hold no secrets.

        Args:
            errors: handles exceptions of checks. The answer is then 500.
        """
        limits = ServerLimits(body_bytes=1024, connections=100)
        return Server(self.answer, tls=None, plain_anywhere=True, limits=limits, errors=errors)
