"""Packed objects are unpacked as they were, and similar ones take little memory."""

from hashlib import sha256

import orjson
from hypothesis import given
from hypothesis import strategies as st

from admitq.runtime.packing import ObjectPacker

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def serialised(number: int, kind: str = "work") -> bytes:
    """An object of 3 KB. Only objects of its kind have this spec."""
    spec = {f"field-{index}": sha256(f"{kind}{index}".encode()).hexdigest() for index in range(40)}
    return orjson.dumps({"metadata": {"name": f"{kind}-{number}", "uid": f"{number * 104729}"}, "spec": spec})


@given(st.lists(values))
def test_packed_objects_are_unpacked_as_they_were(objects: list[object]) -> None:
    packer = ObjectPacker()
    packed = [packer.pack(orjson.dumps(obj)) for obj in objects]
    assert [orjson.loads(packer.unpack(data)) for data in packed] == objects


def test_object_that_is_not_packed_is_returned_as_it_is() -> None:
    assert ObjectPacker().unpack(serialised(1)) == serialised(1)


def test_objects_packed_before_a_new_dictionary_remain_readable() -> None:
    packer = ObjectPacker()
    objects = [serialised(number, kind) for kind in ("first", "second", "third") for number in range(100)]
    packed = [packer.pack(data) for data in objects]
    assert [packer.unpack(data) for data in packed] == objects
    assert len({data[0] for data in packed}) >= 3


def test_similar_objects_take_a_tenth_of_their_size() -> None:
    packer = ObjectPacker()
    for kind in ("first", "second"):
        sizes = [len(packer.pack(serialised(number, kind))) for number in range(200)]
        assert sum(sizes[100:]) * 10 < 100 * len(serialised(0, kind))


def test_number_of_dictionaries_is_limited_if_no_object_resembles_another() -> None:
    packer = ObjectPacker()
    objects = [serialised(0, f"kind-{number}") for number in range(600)]
    packed = [packer.pack(data) for data in objects]
    assert [packer.unpack(data) for data in packed] == objects
    assert max(data[0] for data in packed) < 64
