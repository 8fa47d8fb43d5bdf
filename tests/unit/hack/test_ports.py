"""Processes that start at the same time never get the same port."""

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
"""First ports of pairs that no other test uses, in any process. Nothing else uses ports below 20,000."""


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def port_pair() -> range:
    """Return two free ports."""
    return next(range(first, first + 2) for first in _PAIRS if not (_listens(first) or _listens(first + 1)))


def test_two_processes_get_different_ports(port_pair: range) -> None:
    command = [sys.executable, "-c", _CHOOSE, str(port_pair.start), str(port_pair.stop)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        port_of_other_process = int(other.stdout.readline())
        port_of_this_process = free_ports(["only"], port_pair)["only"]
        other.communicate()
    assert {port_of_this_process, port_of_other_process} == set(port_pair)


def test_one_process_gets_each_port_once(port_pair: range) -> None:
    ports = free_ports(["first"], port_pair) | free_ports(["second"], port_pair)
    assert set(ports.values()) == set(port_pair)


def test_port_in_use_is_not_assigned(port_pair: range) -> None:
    with socket.create_server(("127.0.0.1", port_pair.start)):
        assert free_ports(["only"], port_pair) == {"only": port_pair.start + 1}
