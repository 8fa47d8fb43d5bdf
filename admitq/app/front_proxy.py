"""Follows how the API server identifies itself as the front proxy of aggregated APIs."""

import asyncio
from typing import Final

from admitq.process.logs import logger
from admitq.process.unexpected_errors import ErrorPart, UnexpectedErrors
from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import CONFIG_MAPS
from admitq.serving.certificates import InvalidCertificate
from admitq.serving.front_proxy import FrontProxy, FrontProxyUsers, InvalidFrontProxy
from admitq.serving.server import Server
from admitq.serving.tls import LiveCertificate
from admitq_api.json_objects import text_fields_at
from admitq_api.namespaces import SYSTEM_NAMESPACE

log = logger(__name__)

CONFIG_MAP: Final = "extension-apiserver-authentication"
PERIOD_SECONDS: Final = 10.0
"""Time between two reads. Rotations of the authority overlap for far longer."""
RETRY_SECONDS: Final = 1.0


class FrontProxyFollower:
    """Reads the ConfigMap again and again, and applies its changes to a server.

    Args:
        client: reads the ConfigMap.
        live: the TLS context of the server, which verifies the certificate of the front proxy.
        server: the server.
        users: the users of forwarded requests.
        errors: receives unexpected exceptions.
        period: seconds between two reads.
    """

    def __init__(
        self,
        client: Client,
        live: LiveCertificate,
        server: Server,
        users: FrontProxyUsers,
        errors: UnexpectedErrors,
        period: float = PERIOD_SECONDS,
    ) -> None:
        self._client = client
        self._live = live
        self._server = server
        self._users = users
        self._errors = errors
        self._period = period
        self._problem: str | None = "not read yet"

    async def run(self) -> None:
        """Follow the ConfigMap until cancelled. While it cannot be read, the last settings apply."""
        while True:
            pause = self._period
            try:
                await self.step()
                self._problem = None
            except (ApiError, InvalidFrontProxy, InvalidCertificate) as error:
                self._report(f"ConfigMap {SYSTEM_NAMESPACE}/{CONFIG_MAP}: {error}")
                pause = RETRY_SECONDS
            except Exception as error:  # noqa: BLE001 the last settings stay in use
                self._errors.report(ErrorPart.SERVER, error, CONFIG_MAP)
                self._problem = repr(error)
            await asyncio.sleep(pause)

    async def step(self) -> None:
        """Read the ConfigMap once, and apply what has changed.

        Raises:
            ApiError: it cannot be read.
            InvalidFrontProxy: a value has another form.
            InvalidCertificate: the bundle of authorities contains no certificate.
        """
        found = await self._client.get(CONFIG_MAPS, CONFIG_MAP, SYSTEM_NAMESPACE)
        new, old = FrontProxy.from_config_map(text_fields_at(found, ("data",))), self._users.front_proxy
        if new == old:
            return
        if old is None or new.authorities != old.authorities:
            self._live.trust_clients(new.authorities)
            self._server.close_idle()
        self._users.front_proxy = new
        log.info("front proxy settings applied", allowed_names=sorted(new.allowed_names))

    async def check(self) -> str | None:
        """Return why requests that the API server forwards are not accepted; None if they are."""
        if self._users.front_proxy is not None:
            return None
        return f"no settings of the front proxy: {self._problem}"

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("front proxy settings are unusable", problem=problem)
        self._problem = problem
