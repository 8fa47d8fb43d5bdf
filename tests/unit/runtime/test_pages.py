"""A list is read page by page, one page ahead."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from admitq.runtime.client import Client
from admitq.runtime.credentials import Credentials
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import CONFIG_MAPS

EXPIRED = ApiError(410, "Expired", "the list has expired")


class PagedClient(Client):
    """Answers with pages of one object; scripted errors come in place of pages."""

    def __init__(self, pages: int, errors: dict[int, ApiError] | None = None) -> None:
        super().__init__(Credentials("http://127.0.0.1:1"), user_agent="test")
        self.queries: list[dict[str, str]] = []
        self.open_calls = 0
        self._pages = pages
        self._errors = errors or {}

    async def _call(self, *_: Any, **options: Any) -> Any:
        number = len(self.queries)
        self.queries.append(options["query"])
        self.open_calls += 1
        try:
            await asyncio.sleep(0)
            if (error := self._errors.get(number)) is not None:
                raise error
        finally:
            self.open_calls -= 1
        page = int(options["query"].get("continue", "0"))
        following = {"continue": str(page + 1)} if page + 1 < self._pages else {}
        return {
            "metadata": {"resourceVersion": "7", **following},
            "items": [{"metadata": {"name": str(page)}}],
        }


async def test_next_page_is_requested_before_the_former_is_handled() -> None:
    client = PagedClient(3)
    names: list[str] = []
    async with aclosing(client.pages(CONFIG_MAPS)) as pages:
        async for page in pages:
            names.extend(item["metadata"]["name"] for item in page.items)
            await asyncio.sleep(0)
            assert len(client.queries) == min(3, len(names) + 1)
    assert names == ["0", "1", "2"]
    assert client.open_calls == 0


async def test_request_of_next_page_is_cancelled_if_no_further_page_is_read() -> None:
    client = PagedClient(3)
    async with aclosing(client.pages(CONFIG_MAPS)) as pages:
        await anext(pages)
        await asyncio.sleep(0)
        assert client.open_calls == 1
    await asyncio.sleep(0)
    assert client.open_calls == 0


async def test_list_that_expires_between_two_pages_restarts_with_larger_pages() -> None:
    client = PagedClient(2, {1: EXPIRED})
    async with aclosing(client.pages(CONFIG_MAPS, page_size=10)) as pages:
        read = [(page.first, page.items[0]["metadata"]["name"]) async for page in pages]
    assert read == [(True, "0"), (True, "0"), (False, "1")]
    assert [query["limit"] for query in client.queries] == ["10", "10", "40", "40"]


async def test_error_of_a_page_that_is_not_read_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = PagedClient(2, {1: ApiError(500, "InternalError", "broken")})
    async with aclosing(client.pages(CONFIG_MAPS)) as pages:
        await anext(pages)
        for _ in range(5):
            await asyncio.sleep(0)
    assert client.open_calls == 0
    del pages
    assert not caplog.records
