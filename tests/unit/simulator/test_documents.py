"""YAML documents: the lines of their fields, and errors of invalid files."""

from pathlib import Path

import pytest

from admitq.manifests.documents import InputError, field_name, field_path, read_file, read_text

TEXT = """\
kind: One
spec:
  items:
    - name: first
    - name: second
      deep: {inner: 1}
---
kind: Two
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), 1),
        (("kind",), 1),
        (("spec", "items"), 3),
        (("spec", "items", 1, "name"), 5),
        (("spec", "items", 1, "deep", "inner"), 6),
        (("spec", "items", 1, "missing"), 5),
        (("spec", "items", 7), 3),
        (("spec", "missing", "below"), 2),
    ],
)
def test_place_of_field_is_its_line_or_that_of_the_nearest_parent(
    path: tuple[str | int, ...], line: int
) -> None:
    document = read_text(TEXT, "file.yaml")[0]
    assert document.place(path).line == line


def test_lines_are_counted_over_all_documents_of_file() -> None:
    assert [document.place().line for document in read_text(TEXT, "file.yaml")] == [1, 8]


def test_items_of_list_are_documents() -> None:
    text = "kind: List\nitems:\n- kind: A\n  metadata: {name: a}\n- kind: B\n"
    first, second = read_text(text, "file.yaml")
    assert (first.value["kind"], second.value["kind"]) == ("A", "B")
    assert str(second.problem(("kind",), "is wrong")) == "file.yaml:5: items[1].kind: is wrong"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "file.yaml:4: c: occurs twice: remove one"),
        ("a: [1\nb: 2\n", "file.yaml:2: not YAML: did not find expected ',' or ']'"),
        ("- 1\n", "file.yaml:1: must be an object with fields like apiVersion and kind"),
        (
            "kind: List\nitems:\n- text\n",
            "file.yaml:3: items[0]: must be an object with fields like apiVersion and kind",
        ),
        ("1: a\n", "file.yaml:1: has a value that JSON does not support: Dict key must be str"),
        ("a: \x01\n", "file.yaml: not YAML: "),
    ],
)
def test_invalid_document_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read_text(text, "file.yaml")
    assert str(error.value).startswith(message)


def test_missing_file_is_named_in_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^shown: cannot be read: No such file or directory$"):
        read_file(tmp_path / "missing", "shown")


def test_file_that_is_no_text_is_named_in_error(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"^shown: cannot be read: .utf-8."):
        read_file(tmp_path / "binary", "shown")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("spec", ("spec",)),
        ("spec.groups[0].flavors[12].name", ("spec", "groups", 0, "flavors", 12, "name")),
        ("metadata.labels[admitq.dev/queue-name]", ("metadata", "labels", "admitq.dev/queue-name")),
        ("resources.requests[nvidia.com/gpu]", ("resources", "requests", "nvidia.com/gpu")),
    ],
)
def test_field_name_and_field_path_are_inverse(name: str, path: tuple[str | int, ...]) -> None:
    assert field_path(name) == path
    assert field_name(path) == name
