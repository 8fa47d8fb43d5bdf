"""Makes .venv with everything that the commands of this folder need, from Python and its venv module alone.

Nothing happens when the environment fits the pins already. Every file that is installed is held against
its hash in requirements/dev.txt; the project itself is built from this checkout without any index.
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
# What decides how the environment looks; a change of any of them makes it anew.
INPUTS = (FIRST_PINS, PINS, REPOSITORY / "pyproject.toml", Path(__file__).resolve())


class BootstrapError(Exception):
    """The environment cannot be made; the message says why."""


def main() -> int:
    """Brings .venv up to date; the exit status is 1 when that failed."""
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
    _say("setting up .venv with the pinned tools (done once for a set of pins)")
    python = VENV / "bin" / "python"
    if not _runs(python):
        _call([sys.executable, "-m", "venv", "--clear", str(VENV)])
    uv = [str(python), "-m", "uv"]
    if not _runs_module(python, "uv"):
        # pip's only task is to bring uv, which is many times quicker with the rest.
        _call([str(python), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(FIRST_PINS)])
    quiet = ["--quiet", "--python", str(python)]
    # Compiled now, for every process that starts later: where Python may write nothing when it loads, each
    # would compile all anew, and that takes longer than the rest of its start.
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
    """Compiles what can be compiled below some folders; nothing depends on it but the time of later starts.

    A file that does not compile is left to the command that runs or checks it, which names the error.
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
    # An environment does not survive being moved: its scripts name its folder.
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
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BootstrapError(f"{' '.join(argv)}\n{done.stdout}{done.stderr}".rstrip())


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
