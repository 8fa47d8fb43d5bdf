import subprocess
import sys
import threading
from pathlib import Path

from localcluster.folders import REPOSITORY
from localcluster.locks import exclusive

# Each process takes the lock 200 times. It fails if the file of another lock holder exists.
CONTENDER = """
import os, sys
from pathlib import Path
from localcluster.locks import exclusive
lock, inside = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(200):
    with exclusive(lock):
        os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
        inside.unlink()
"""


def test_lock_is_held_by_one_process_at_a_time(tmp_path: Path):
    argv = [sys.executable, "-c", CONTENDER, str(tmp_path / "lock"), str(tmp_path / "inside")]
    environment = {"PYTHONPATH": str(REPOSITORY / "hack")}
    contenders = [
        subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(4)
    ]
    assert [(contender.communicate()[1], contender.returncode) for contender in contenders] == [("", 0)] * 4
    assert not (tmp_path / "lock").exists()


def test_waiting_for_lock_is_reported_once(tmp_path: Path):
    events: list[str] = []
    waiting = threading.Event()

    def notice() -> None:
        events.append("waiting")
        waiting.set()

    def second() -> None:
        with exclusive(tmp_path / "lock", waiting=notice):
            events.append("inside")

    thread = threading.Thread(target=second)
    with exclusive(tmp_path / "lock"):
        thread.start()
        assert waiting.wait(10.0)
        events.append("leaving")
    thread.join(10.0)
    assert events == ["waiting", "leaving", "inside"]
