"""The version of admitq."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from admitq_api.version import VERSION, find_version


def test_version_is_that_of_the_installed_distribution() -> None:
    assert importlib.metadata.version("admitq") == VERSION


@pytest.mark.parametrize(
    ("names", "version"),
    [
        (["admitq-1.2.3.dist-info"], "1.2.3"),
        (["admitq_plots-9.dist-info", "admitq-1.0rc1+x.dist-info", "other-2.dist-info"], "1.0rc1+x"),
        (["admitq-1.2.3.data", "admitq"], None),
        ([], None),
    ],
)
def test_version_is_in_the_name_of_the_folder_with_the_metadata(
    tmp_path: Path, names: list[str], version: str | None
) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    assert find_version([str(tmp_path / "missing"), str(tmp_path)]) == version


def test_version_of_a_copy_that_is_not_installed_is_unknown() -> None:
    api = Path(sys.modules["admitq_api"].__path__[0]).parent
    program = f"import sys; sys.path = [p for p in sys.path if 'site-packages' not in p] + [{str(api)!r}]; "
    program += "from admitq_api.version import VERSION; print(VERSION)"
    result = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "0.0.0+unknown\n"
