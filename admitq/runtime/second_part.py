"""The second part of a list in two parts.

The first part has the objects that decisions need, and is listed first. The second part has all others. Label
selectors divide the objects.

A watch of all objects begins at the version of the first part, and delivers all later changes. So the second
part may be of any version that is not older. An object that does not change is in one of the parts. All other
objects are in the watch, also those that pass from one part to the other.

The second part is listed in pages. A watch that begins with all objects would not do: the API server may end
it if more than a few objects change before all were sent.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Final

from admitq.process.logs import logger
from admitq.process.unexpected_errors import ErrorPart, UnexpectedErrors
from admitq.runtime.client import Page
from admitq.runtime.errors import ApiError
from admitq.runtime.rate_limit import CallPriority, call_priority
from admitq.runtime.resources import Resource
from admitq.runtime.store import ListPart, Store

log = logger(__name__)

OBJECTS_PER_TURN: Final = 20
"""Objects of a list that are stored before the event loop runs other tasks; 20 take a few milliseconds."""


@dataclass(frozen=True, slots=True)
class ListParts:
    """The label selectors of the two parts of a list. Every object matches exactly one of them."""

    first: str
    second: str


async def next_page(pages: AsyncGenerator[Page]) -> Page | None:
    """Read the next page with the priority of watches, which must not apply to the store's handlers."""
    with call_priority(CallPriority.WATCH):
        return await anext(pages, None)


async def list_second_part(
    pages: Callable[[], AsyncGenerator[Page]],
    store: Store,
    *,
    pause_seconds: Callable[[], float],
    note_progress: Callable[[], None],
    errors: UnexpectedErrors,
) -> None:
    """Store the objects of the second part; retry until all pages were read.

    Args:
        pages: begins to list the second part.
        store: the store, which has the first part, and which a watch of all objects updates.
        pause_seconds: returns the seconds before the next attempt.
        note_progress: is called when a page has come.
        errors: handles unexpected exceptions.
    """
    resource: Resource = store.resource
    while True:
        try:
            async with contextlib.aclosing(pages()) as listed:
                listing = store.begin_listing("", ListPart.SECOND)
                while (page := await next_page(listed)) is not None:
                    note_progress()
                    for number, item in enumerate(page.items, start=1):
                        store.add_listed(listing, item)
                        if number % OBJECTS_PER_TURN == 0:
                            await asyncio.sleep(0)
        except ApiError as error:
            log.info("list failed, retrying", resource=str(resource), error=str(error))
        except Exception as error:  # noqa: BLE001 - a new list may succeed
            errors.report(ErrorPart.WATCH, error, resource)
        else:
            store.finish_listing(listing)
            return
        await asyncio.sleep(pause_seconds())
