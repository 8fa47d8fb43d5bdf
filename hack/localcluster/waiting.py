"""Wait until a condition holds, with a deadline and an error message that has the reason."""

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar, cast

from admitq.runtime.errors import ApiError

T = TypeVar("T")

_FIRST_PAUSE, _GROWTH, _LONGEST_PAUSE = 0.05, 1.4, 0.4


@contextmanager
def _without_descriptions() -> Generator[None]:
    """Let a failed assert of a test not describe how its values differ.

    For large values, the description takes far longer than the predicate.
    """
    util: Any = sys.modules.get("_pytest.assertion.util")
    if util is None or util._reprcompare is None:  # noqa: SLF001
        yield
        return
    describe, util._reprcompare = util._reprcompare, None  # noqa: SLF001
    try:
        yield
    finally:
        util._reprcompare = describe  # noqa: SLF001


async def eventually(
    predicate: Callable[[], T | Awaitable[T]],
    *,
    timeout: float = 60.0,  # noqa: ASYNC109 - the timeout covers many calls of the predicate
    interval: float | None = None,
    what: str = "",
) -> T:
    """Call `predicate` until its result is true, and return this result.

    An AssertionError, LookupError, TypeError or ValueError counts as "not yet": the data may not exist yet.
    So does a call of the API server that finds nothing, meets a conflict or may succeed later.

    Args:
        predicate: a function, which may be asynchronous.
        timeout: seconds until the result must be true.
        interval: seconds between two calls. By default they grow with the time waited, so that a long wait
            leaves the CPU to the processes that the test waits for.
        what: text for the error message; by default the predicate's name.

    Raises:
        AssertionError: the time is over. The message has the last result or error.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    pause = _FIRST_PAUSE if interval is None else interval
    while True:
        is_last = loop.time() >= deadline
        try:
            with nullcontext() if is_last else _without_descriptions():
                result = predicate()
                answer = cast("T", await result if inspect.isawaitable(result) else result)
            last_result = f"last answer: {answer!r}"
            cause: Exception | None = None
            if answer:
                return answer
        except (AssertionError, LookupError, TypeError, ValueError) as error:
            last_result, cause = f"last failure: {error!r}", error
        except ApiError as error:
            if not (error.is_not_found or error.is_conflict or error.is_transient):
                raise
            last_result, cause = f"last failure: {error!r}", error
        if is_last:
            name = what or getattr(predicate, "__qualname__", repr(predicate))
            raise AssertionError(f"not within {timeout:g} s: {name}; {last_result}") from cause
        await asyncio.sleep(pause)
        if interval is None:
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)
