import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from bootstrap import compile_ahead


@pytest.mark.parametrize("broken", ["def f(:\n", "\x00", "# coding: no-such-coding\n"])
def test_compile_ahead_skips_file_that_does_not_compile(tmp_path: Path, broken: str) -> None:
    (tmp_path / "broken.py").write_text(broken)
    (tmp_path / "valid.py").write_text("X = 1\n")
    compile_ahead(Path(sys.executable), [tmp_path])
    compiled = [Path(cache_from_source(str(tmp_path / name))).exists() for name in ("broken.py", "valid.py")]
    assert compiled == [False, True]
