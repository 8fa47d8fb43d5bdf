"""The patches of ``stop`` and ``resume``, and the names that the commands accept."""

from typing import Any

import pytest

from admitq.plugin.application import run
from admitq.plugin.object_kinds import CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD, ObjectKind
from admitq.plugin.stop_resume import resume_patch, stop_patch


@pytest.mark.parametrize(
    ("kind", "keep", "spec"),
    [
        (CLUSTER_QUEUE, False, {"stopPolicy": "HoldAndDrain"}),
        (CLUSTER_QUEUE, True, {"stopPolicy": "Hold"}),
        (LOCAL_QUEUE, False, {"stopPolicy": "HoldAndDrain"}),
        (LOCAL_QUEUE, True, {"stopPolicy": "Hold"}),
        (WORKLOAD, False, {"active": False}),
    ],
    ids=["cq", "cq kept running", "lq", "lq kept running", "workload"],
)
def test_stop_patches_only_the_field_that_stops_the_object(
    kind: ObjectKind, keep: bool, spec: dict[str, Any]
) -> None:
    assert stop_patch(kind, keep_already_running=keep) == {"spec": spec}


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (CLUSTER_QUEUE, {"stopPolicy": "None"}),
        (LOCAL_QUEUE, {"stopPolicy": "None"}),
        (WORKLOAD, {"active": True}),
    ],
    ids=["cq", "lq", "workload"],
)
def test_resume_patches_only_the_field_that_stopped_the_object(
    kind: ObjectKind, spec: dict[str, Any]
) -> None:
    assert resume_patch(kind) == {"spec": spec}


@pytest.mark.parametrize("command", ["stop", "resume"])
@pytest.mark.parametrize("kind", ["workload", "kwl", "clusterqueue", "cq", "localqueue", "lq"])
def test_command_accepts_names_and_short_names_of_kinds(
    command: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        run([command, kind, "--help"])
    assert "NAME" in capsys.readouterr().out


def test_workload_has_no_option_to_keep_it_running(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(["stop", "workload", "w", "--keep-already-running"])
    assert "--keep-already-running" in capsys.readouterr().err
