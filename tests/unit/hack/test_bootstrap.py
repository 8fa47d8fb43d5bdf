import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from bootstrap import compile_ahead


@pytest.mark.parametrize("broken", ["def f(:\n", "\x00", "# coding: no-such-coding\n"])
def test_environment_is_made_though_a_file_does_not_compile(tmp_path: Path, broken: str) -> None:
    (tmp_path / "broken.py").write_text(broken)
    (tmp_path / "sound.py").write_text("X = 1\n")
    compile_ahead(Path(sys.executable), [tmp_path])
    compiled = [Path(cache_from_source(str(tmp_path / name))).exists() for name in ("broken.py", "sound.py")]
    assert compiled == [False, True]
