"""Create .venv with everything that the commands of this folder need, from Python and its venv module alone.

If the environment has the pinned versions already, nothing happens. Every installed file must match its hash
in requirements/dev.txt. The project itself is built from this checkout, without an index.
"""

import fcntl
import hashlib
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
VENV = REPOSITORY / ".venv"
FIRST_PINS = REPOSITORY / "requirements" / "build.txt"
PINS = REPOSITORY / "requirements" / "dev.txt"
SOURCES = [REPOSITORY / name for name in ("admitq", "api", "webhooks", "hack", "tests")]
LOCK = REPOSITORY / ".state" / "venv.lock"
# Files that define the environment. A change of any of them creates it again.
INPUTS = (FIRST_PINS, PINS, REPOSITORY / "pyproject.toml", Path(__file__).resolve())


class BootstrapError(Exception):
    """The environment cannot be created. The message has the cause."""


def main() -> int:
    """Update .venv. Return 1 if that failed."""
    try:
        if not _is_current():
            LOCK.parent.mkdir(exist_ok=True)
            with LOCK.open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not _is_current():
                    _make()
    except BootstrapError as error:
        print(f"cannot set up {VENV}: {error}", file=sys.stderr)
        return 1
    return 0


def _make() -> None:
    _say("setting up .venv with the pinned tools (needed once for each set of pinned versions)")
    python = VENV / "bin" / "python"
    if not _runs(python):
        _call([sys.executable, "-m", "venv", "--clear", str(VENV)])
    uv = [str(python), "-m", "uv"]
    if not _runs_module(python, "uv"):
        # pip installs only uv, which installs the rest many times faster.
        _call([str(python), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(FIRST_PINS)])
    quiet = ["--quiet", "--python", str(python)]
    # Compile now, for all processes that start later. If Python cannot write compiled files, each process
    # would compile all modules again, which takes longer than the rest of its start.
    _call([*uv, "pip", "sync", *quiet, "--compile-bytecode", "--require-hashes", str(PINS)])
    _call(
        [
            *uv,
            "pip",
            "install",
            *quiet,
            "--no-deps",
            "--no-index",
            "--no-build-isolation",
            "-e",
            str(REPOSITORY),
        ]
    )
    compile_ahead(python, SOURCES)
    _stamp_file().write_text(_stamp())


def compile_ahead(python: Path, folders: Sequence[Path]) -> None:
    """Compile the Python files in these folders, to shorten later starts.

    A file that does not compile is skipped. The command that runs or checks it reports the error.
    """
    argv = [str(python), "-m", "compileall", "-q", "-j", "0", *map(str, folders)]
    subprocess.run(argv, cwd=REPOSITORY, capture_output=True, check=False)


def _is_current() -> bool:
    try:
        return _stamp_file().read_text() == _stamp() and (VENV / "bin" / "python").exists()
    except OSError:
        return False


def _stamp() -> str:
    digest = hashlib.sha256(sysconfig.get_python_version().encode())
    # An environment cannot be moved, because its scripts contain the path of its folder.
    digest.update(str(VENV).encode())
    for path in INPUTS:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _stamp_file() -> Path:
    return VENV / ".made-from"


def _runs(python: Path) -> bool:
    if not python.exists():
        return False
    code = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]!r})"
    return subprocess.run([str(python), "-c", code], capture_output=True, check=False).returncode == 0


def _runs_module(python: Path, module: str) -> bool:
    return (
        subprocess.run([str(python), "-m", module, "--version"], capture_output=True, check=False).returncode
        == 0
    )


def _call(argv: list[str]) -> None:
    process = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise BootstrapError(f"{' '.join(argv)}\n{process.stdout}{process.stderr}".rstrip())


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
