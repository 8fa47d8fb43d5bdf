"""The line splitter yields whole lines of a stream of chunks, up to a maximum length."""

import itertools
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitq.runtime.line_splitter import LineTooLongError, split_lines


async def chunks_of(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def collect(*chunks: bytes, limit: int = 100) -> list[bytes]:
    return [line async for line in split_lines(chunks_of(*chunks), limit)]


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ((), []),
        ((b"",), []),
        ((b"one\n",), [b"one"]),
        ((b"one\ntwo\n",), [b"one", b"two"]),
        ((b"o", b"n", b"e\nt", b"wo\n"), [b"one", b"two"]),
        ((b"one", b"\n", b"two", b"\n"), [b"one", b"two"]),
        ((b"\n\none\n\n",), [b"one"]),
    ],
)
async def test_chunks_are_split_into_whole_lines(chunks: tuple[bytes, ...], lines: list[bytes]):
    assert await collect(*chunks) == lines


@given(
    lines=st.lists(st.binary(min_size=1, max_size=20).filter(lambda line: b"\n" not in line), max_size=10),
    cuts=st.lists(st.integers(0, 200), max_size=10),
)
async def test_lines_do_not_depend_on_chunk_boundaries(lines: list[bytes], cuts: list[int]):
    stream = b"".join(line + b"\n" for line in lines)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    chunks = [stream[start:end] for start, end in itertools.pairwise(places)]
    assert await collect(*chunks) == lines


async def test_incomplete_last_line_raises_error():
    lines = split_lines(chunks_of(b"one\nt", b"wo"), 100)
    assert await anext(lines) == b"one"
    with pytest.raises(EOFError, match="after 3 bytes"):
        await anext(lines)


@pytest.mark.parametrize(
    "chunks", [(b"x" * 11,), (b"x" * 6, b"x" * 5), (b"ok\n" + b"x" * 11,), (b"x" * 11 + b"\n",)]
)
async def test_line_longer_than_limit_raises_error(chunks: tuple[bytes, ...]):
    with pytest.raises(LineTooLongError, match="longer than 10 bytes"):
        await collect(*chunks, limit=10)


async def test_line_as_long_as_limit_is_yielded():
    assert await collect(b"x" * 6, b"x" * 4 + b"\n", limit=10) == [b"x" * 10]
