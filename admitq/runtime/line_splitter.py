"""Splits a watch's byte stream into lines.

aiohttp's own reader gives up above twice its buffer; here a line may be as long as the caller allows,
and not one byte longer.
"""

from collections.abc import AsyncIterator


class LineTooLongError(Exception):
    """A line is longer than allowed; what follows cannot be trusted to begin a line."""


async def split_lines(chunks: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    """Yield whole lines without their line ends; empty ones are left out.

    Raises:
        LineTooLongError: A line has more than ``limit`` bytes. At most that many are held.
        EOFError: The stream ends within a line. Half a line is never yielded.
    """
    held: list[bytes] = []
    size = 0
    async for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        held.append(first)
        size += len(first)
        if size > limit:
            raise LineTooLongError(f"a line is longer than {limit} bytes")
        for part in rest:
            if size:
                yield b"".join(held) if len(held) > 1 else held[0]
            held = [part]
            size = len(part)
            if size > limit:
                raise LineTooLongError(f"a line is longer than {limit} bytes")
    if size:
        raise EOFError(f"the stream ended within a line, after {size} bytes of it")
