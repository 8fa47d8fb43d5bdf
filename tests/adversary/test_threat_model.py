"""The threat model links every attack to tests that exist."""

import re
from collections.abc import Iterator

import pytest

from localcluster.folders import REPOSITORY
from tests.adversary.stories import STORIES

TEXT = (REPOSITORY / "THREAT_MODEL.md").read_text()
LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


def attacks() -> Iterator[str]:
    """The rows of all tables of attacks."""
    is_in_table = False
    for line in TEXT.splitlines():
        if line.startswith("| attack |"):
            is_in_table = True
        elif not line.startswith("|"):
            is_in_table = False
        elif is_in_table and not line.startswith("|---"):
            yield line


def test_tables_of_attacks_have_no_blank_line() -> None:
    # A row after a blank line belongs to no table.
    assert not re.search(r"^\|.*\n\n\| (?!attack)", TEXT, re.MULTILINE)
    assert len(list(attacks())) > 20


@pytest.mark.parametrize("row", tuple(attacks()), ids=lambda row: row.split("|")[1].strip()[:60])
def test_attack_links_to_a_test(row: str) -> None:
    assert [target for _, target in LINK.findall(row) if target.startswith("tests/")]


@pytest.mark.parametrize(("words", "target"), LINK.findall(TEXT))
def test_link_of_the_threat_model_leads_to_an_existing_file_and_test(words: str, target: str) -> None:
    file = REPOSITORY / target.partition("#")[0]
    assert file.exists()
    if words.startswith("`") and file.suffix == ".py":
        assert f"def {words.strip('`')}(" in file.read_text()


def test_every_numbered_attack_links_to_its_stories() -> None:
    numbered = {
        one.__name__ for chapter in STORIES.values() for one in chapter if re.match(r"t\d+_", one.__name__)
    }
    assert {one.partition("_")[0] for one in numbered} == {f"t{number}" for number in range(1, 11)}
    linked = {words.strip("`") for words, _ in LINK.findall(TEXT)}
    assert numbered - linked == set()
