"""Processes that start at the same time are never given the same port."""

import os
import socket
import subprocess
import sys
from itertools import count

import pytest

from localcluster.ports import free_ports

_CHOOSE = """
import sys
from localcluster.ports import free_ports
print(free_ports(["only"], range(int(sys.argv[1]), int(sys.argv[2])))["only"], flush=True)
sys.stdin.read()
"""

_PAIRS = count(10_000 + 6 * (os.getpid() % 1500), 2)
"""Where no test looked before, of this process or of another; nothing else here uses ports below 20,000."""


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def two() -> range:
    """Return two free ports."""
    return next(range(first, first + 2) for first in _PAIRS if not (_listens(first) or _listens(first + 1)))


def test_another_process_is_given_another_port(two: range) -> None:
    command = [sys.executable, "-c", _CHOOSE, str(two.start), str(two.stop)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = int(other.stdout.readline())
        ours = free_ports(["only"], two)["only"]
        other.communicate()
    assert {ours, theirs} == set(two)


def test_one_process_is_given_each_port_once(two: range) -> None:
    given = free_ports(["one"], two) | free_ports(["other"], two)
    assert set(given.values()) == set(two)


def test_port_in_use_is_not_assigned(two: range) -> None:
    with socket.create_server(("127.0.0.1", two.start)):
        assert free_ports(["only"], two) == {"only": two.start + 1}
