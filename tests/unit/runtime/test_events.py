import pytest

from admitq.runtime.events import cut


@pytest.mark.parametrize(
    ("text", "size", "result"),
    [
        ("short", 10, "short"),
        ("exactly-10", 10, "exactly-10"),
        ("more than 10", 10, "more th…"),
        ("ääääää", 10, "äää…"),
        ("a€€€€", 10, "a€€…"),
        ("😀😀😀", 11, "😀😀…"),
        ("\ud800 lone surrogate", 8, "? lon…"),
        ("", 10, ""),
    ],
)
def test_a_note_is_cut_at_the_end_of_a_character(text: str, size: int, result: str):
    assert cut(text, size) == result
    assert len(cut(text, size).encode()) <= size
