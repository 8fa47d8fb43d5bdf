"""Splits the byte stream of a watch into lines.

aiohttp's reader fails on lines longer than twice its buffer. This one has a limit that the caller sets.
"""

from collections.abc import AsyncIterator


class LineTooLongError(Exception):
    """A line is longer than allowed. The stream cannot be used any more."""


async def split_lines(chunks: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    """Yield complete lines without line ends. Empty lines are skipped.

    Raises:
        LineTooLongError: A line has more than ``limit`` bytes.
        EOFError: The stream ends within a line. An incomplete line is never yielded.
    """
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        parts.append(first)
        size += len(first)
        if size > limit:
            raise LineTooLongError(f"a line is longer than {limit} bytes")
        for part in others:
            if size:
                yield b"".join(parts) if len(parts) > 1 else parts[0]
            parts = [part]
            size = len(part)
            if size > limit:
                raise LineTooLongError(f"a line is longer than {limit} bytes")
    if size:
        raise EOFError(f"the stream ended within a line, after {size} bytes of that line")
