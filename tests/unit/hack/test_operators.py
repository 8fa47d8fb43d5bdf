from pathlib import Path

import pytest

from localcluster import pod_network, project_modules
from localcluster.operator_builds import OperatorBuildError, apply_edit
from localcluster.operator_processes import filled
from localcluster.operator_table import OPERATORS, UnknownOperatorError, named, with_needs
from localcluster.operators import Edit


def test_names_of_operators_are_unique_and_needed_operators_exist() -> None:
    names = [operator.name for operator in OPERATORS]
    assert len(names) == len(set(names))
    assert {name for operator in OPERATORS for name in operator.needs} <= set(names)


def test_unknown_operator_is_reported_with_the_known_ones() -> None:
    with pytest.raises(UnknownOperatorError, match="no operator 'nothing'; available are: jobset, "):
        named("nothing")


def test_needed_operators_come_first_and_once() -> None:
    for operator in OPERATORS:
        order = [each.name for each in with_needs([operator.name, operator.name])]
        assert order == [*(each.name for each in with_needs(operator.needs)), operator.name]


def test_content_of_a_module_determines_its_checksum() -> None:
    assert project_modules.checksum("sigs.k8s.io/jobset").startswith("h1:")
    with pytest.raises(project_modules.ModuleError, match="no module example"):
        project_modules.checksum("example.com/unknown")


def test_names_in_braces_are_filled_and_ports_become_numbers() -> None:
    template = {"port": "{webhook}", "address": "127.0.0.1:{health}", "list": ["{folder}/a"], "number": 1}
    values = {"webhook": "1", "health": "2", "metrics": "3", "folder": "/f"}
    assert filled(template, values) == {
        "port": 1,
        "address": "127.0.0.1:2",
        "list": ["/f/a"],
        "number": 1,
    }


def test_edit_must_find_its_text_once(tmp_path: Path) -> None:
    (tmp_path / "main.go").write_text("a := 9443 // b\n")
    apply_edit("o", tmp_path, Edit("main.go", "9443", "port"))
    assert (tmp_path / "main.go").read_text() == "a := port // b\n"
    with pytest.raises(OperatorBuildError, match=r"o: main\.go has 0 times '9443', not once"):
        apply_edit("o", tmp_path, Edit("main.go", "9443", "port"))


@pytest.mark.parametrize(
    ("target", "expected"),
    [("10.0.0.1:8265", ("10.0.0.1", 8265)), ("[fd00::1]:80", ("fd00::1", 80))],
    ids=["IPv4", "IPv6"],
)
def test_address_of_a_connect_request_is_read(target: str, expected: tuple[str, int]) -> None:
    head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
    assert pod_network.parse_connect(head) == expected


def test_other_requests_are_no_connect_requests() -> None:
    with pytest.raises(ValueError, match="not CONNECT but GET"):
        pod_network.parse_connect(b"GET http://10.0.0.1:80/ HTTP/1.1\r\n\r\n")
