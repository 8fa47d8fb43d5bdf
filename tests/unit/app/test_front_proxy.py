"""The settings of the front proxy are followed, and unusable ones change nothing."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from admitq.app.front_proxy import FrontProxyFollower
from admitq.process.unexpected_errors import LOG_ONLY
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq.serving.front_proxy import FrontProxyUsers, InvalidFrontProxy
from admitq.serving.http import HttpRequest, HttpResponse
from admitq.serving.server import Server
from admitq.serving.tls import LiveCertificate
from tests.unit.serving.support import authority


class FakeClient:
    """Returns a ConfigMap, or fails without one."""

    def __init__(self) -> None:
        self.data: dict[str, str] | None = None

    async def get(self, resource: Resource, name: str, namespace: str) -> dict[str, Any]:
        assert (resource.plural, namespace, name) == (
            "configmaps",
            "kube-system",
            "extension-apiserver-authentication",
        )
        if self.data is None:
            raise ApiError(403, "Forbidden", "no RoleBinding")
        return {"data": self.data}


async def answer_nothing(_: HttpRequest) -> HttpResponse:
    return HttpResponse()


class Following:
    """A follower with its fakes."""

    def __init__(self) -> None:
        self.client, self.live, self.users = FakeClient(), LiveCertificate(), FrontProxyUsers()
        server = Server(answer_nothing, tls=lambda: self.live.context)
        self.follower = FrontProxyFollower(
            self.client,  # type: ignore[arg-type]
            self.live,
            server,
            self.users,
            LOG_ONLY,
            period=0.0,
        )


def settings(name: str = "proxy") -> dict[str, str]:
    bundle = authority().certificate.decode()
    return {"requestheader-client-ca-file": bundle, "requestheader-allowed-names": f'["{name}"]'}


async def test_changed_authority_makes_a_new_tls_context() -> None:
    following = Following()
    following.client.data = settings()
    await following.follower.step()
    first = following.live.context
    await following.follower.step()
    assert following.live.context is first
    following.client.data = {**following.client.data, "requestheader-allowed-names": '["other"]'}
    await following.follower.step()
    assert following.live.context is first
    assert following.users.front_proxy is not None
    assert following.users.front_proxy.allowed_names == {"other"}
    following.client.data = settings()
    await following.follower.step()
    assert following.live.context is not first


async def test_unusable_settings_leave_the_last_ones_in_use() -> None:
    following = Following()
    following.client.data = settings()
    await following.follower.step()
    used, context = following.users.front_proxy, following.live.context
    following.client.data = {"requestheader-client-ca-file": ""}
    with pytest.raises(InvalidFrontProxy):
        await following.follower.step()
    assert (following.users.front_proxy, following.live.context) == (used, context)


async def test_process_is_ready_once_settings_are_known() -> None:
    following = Following()
    with capture_logs() as lines:
        running = asyncio.create_task(following.follower.run())
        async with asyncio.timeout(10):
            while not lines:
                await asyncio.sleep(0)
            problem = await following.follower.check()
            assert problem is not None
            assert "extension-apiserver-authentication" in problem
            following.client.data = settings()
            while await following.follower.check() is not None:
                await asyncio.sleep(0)
    running.cancel()
    assert [line["event"] for line in lines] == [
        "front proxy settings are unusable",
        "front proxy settings applied",
    ]
