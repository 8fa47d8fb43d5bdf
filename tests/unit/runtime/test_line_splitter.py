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
async def test_gives_whole_lines_however_they_are_cut_into_chunks(
    chunks: tuple[bytes, ...], lines: list[bytes]
):
    assert await collect(*chunks) == lines


@given(
    lines=st.lists(st.binary(min_size=1, max_size=20).filter(lambda line: b"\n" not in line), max_size=10),
    cuts=st.lists(st.integers(0, 200), max_size=10),
)
async def test_chunking_makes_no_difference(lines: list[bytes], cuts: list[int]):
    stream = b"".join(line + b"\n" for line in lines)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    chunks = [stream[start:end] for start, end in itertools.pairwise(places)]
    assert await collect(*chunks) == lines


async def test_half_a_line_is_never_given():
    lines = split_lines(chunks_of(b"one\nt", b"wo"), 100)
    assert await anext(lines) == b"one"
    with pytest.raises(EOFError, match="after 3 bytes"):
        await anext(lines)


@pytest.mark.parametrize(
    "chunks", [(b"x" * 11,), (b"x" * 6, b"x" * 5), (b"ok\n" + b"x" * 11,), (b"x" * 11 + b"\n",)]
)
async def test_no_more_than_the_limit_is_held(chunks: tuple[bytes, ...]):
    with pytest.raises(LineTooLongError, match="longer than 10 bytes"):
        await collect(*chunks, limit=10)


async def test_a_line_may_be_as_long_as_the_limit():
    assert await collect(b"x" * 6, b"x" * 4 + b"\n", limit=10) == [b"x" * 10]
