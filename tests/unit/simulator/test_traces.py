"""Traces in CSV and in the Standard Workload Format."""

from pathlib import Path
from typing import Any

import pytest

from admitq.simulator import InputError
from admitq.simulator.report import report
from admitq.simulator.schema import Trace
from admitq.simulator.traces import RecordedTrace, read_trace
from tests.unit.simulator.stage import run_scenario

SECOND = 1_000_000_000

CSV = """\
submit_time,queue,priority,pods,requests.cpu,requests.memory,run_time
10,team/main,high,2,500m,1Gi,90
0,batch,-5,,2,,1h30m
"""

SWF = """\
; Version: 2.2
;  MaxProcs: 128
1 100 5 60 8 -1 1024 16 120 2048 1 3 1 7 1 2 -1 -1
2 130 0 -1 4 -1 -1 4 60 -1 5 3 1 7 1 2 -1 -1

3 160 0 30 4 -1 512 -1 60 -1 1 4 2 7 0 2 -1 -1
"""


def read(folder: Path, text: str, suffix: str = "csv", **options: Any) -> RecordedTrace:
    path = folder / f"trace.{suffix}"
    path.write_text(text)
    return read_trace(Trace.model_validate({"name": "t", "file": path.name, **options}), path, path.name)


QUEUE_MAP: dict[str, Any] = {"queues": {"map": {"batch": "team/low"}}}


def test_csv_rows_are_read_with_all_columns(tmp_path: Path) -> None:
    first, second = read(tmp_path, CSV, **QUEUE_MAP).rows
    assert first == (0, ("team/low", "-5", 1, (("cpu", "2"),)), 5400 * SECOND, 3)
    large = ("team/main", "high", 2, (("cpu", "500m"), ("memory", "1Gi")))
    assert second == (10 * SECOND, large, 90 * SECOND, 2)


def test_csv_rows_with_equal_requests_share_one_shape(tmp_path: Path) -> None:
    header = "job,submit_time,queue,requests.cpu,run_time,user\n"
    lines = ("1,0,team/main,2,5,ann\n", "2,10,team/main,2,1h,bob\n", "3,20,team/main,3,5,bob\n")
    first, second, other = (row.shape for row in read(tmp_path, header + "".join(lines)).rows)
    assert first is second
    assert other.requests == (("cpu", "3"),)


@pytest.mark.parametrize(
    ("options", "submitted"),
    [
        ({"fromFirst": False}, [0, 10]),
        ({"start": "1m"}, [60, 70]),
        ({"speed": 2.0}, [0, 5]),
        ({"limit": 1}, [0]),
    ],
)
def test_trace_options_shift_speed_up_and_limit_rows(
    tmp_path: Path, options: dict[str, Any], submitted: list[int]
) -> None:
    rows = read(tmp_path, CSV, **QUEUE_MAP, **options).rows
    assert [row.submitted // SECOND for row in rows] == submitted


def test_csv_columns_may_be_renamed(tmp_path: Path) -> None:
    text = "when,queue,run_time,requests.cpu\n5,team/main,1,1\n"
    (row,) = read(tmp_path, text, columns={"submit_time": "when"}).rows
    assert (row.shape.pods, row.shape.priority, row.shape.queue) == (1, "", "team/main")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "queue,run_time\n",
            "trace.csv:1: submit_time: this column is missing in the header\ntrace.csv:1: requests.cpu: no",
        ),
        (CSV.replace("10,team", "x,team"), "trace.csv:2: submit_time: 'x' is neither a number of seconds"),
        (CSV.replace("10,team", "-1,team"), "trace.csv:2: submit_time: '-1' is negative"),
        (CSV.replace(",2,500m", ",two,500m"), "trace.csv:2: pods: 'two' is not a whole number of pods"),
        (CSV.replace(",1h30m", ""), "trace.csv:3: has 6 columns and the header 7"),
        (CSV.replace("batch", "other"), "trace.csv:3: queue: 'other' has no LocalQueue: add it to"),
    ],
)
def test_invalid_csv_is_refused_with_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, text, **QUEUE_MAP)
    assert str(error.value).startswith(message)


def test_standard_workload_format_is_read(tmp_path: Path) -> None:
    by_user = {"by": "user", "map": {"3": "team/three"}, "default": "team/main"}
    recorded = read(tmp_path, SWF, "swf", queues=by_user)
    assert recorded.left_out == 1
    first, second = recorded.rows
    assert first[:3] == (0, ("team/three", "", 16, (("cpu", "1"),)), 60 * SECOND)
    assert second[:3] == (60 * SECOND, ("team/main", "", 4, (("cpu", "1"),)), 30 * SECOND)


@pytest.mark.parametrize(
    ("by", "queue"),
    [("queue", "team/one"), ("group", "team/one"), ("partition", "team/two"), ("user", "team/three")],
)
def test_swf_queue_is_mapped_from_configured_column(tmp_path: Path, by: str, queue: str) -> None:
    names = {"1": "team/one", "2": "team/two", "3": "team/three"}
    first, *_ = read(tmp_path, SWF, "swf", queues={"by": by, "map": names, "default": "team/none"}).rows
    assert first.shape.queue == queue


def test_swf_processors_and_memory_become_pods_and_requests(tmp_path: Path) -> None:
    rows = read(
        tmp_path, SWF, "swf", queues={"default": "team/main"}, memory=True, processorsPerPod=8,
        requests={"cpu": 8},
    ).rows  # fmt: skip
    assert [(row.shape.pods, row.shape.requests) for row in rows] == [
        (2, (("cpu", "8"), ("memory", "16384Ki"))),
        (1, (("cpu", "8"), ("memory", "4096Ki"))),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 3\n", "trace.swf:1: has 3 columns; the Standard Workload Format has 18"),
        (SWF.replace("100 5 60", "100 5 x"), "trace.swf:3: column 4: 'x' is not a number"),
        (SWF, "trace.swf:3: column 12 (user): '3' has no LocalQueue: add it to queues.map"),
    ],
)
def test_invalid_swf_record_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, text, "swf", queues={"by": "user"})
    assert str(error.value).startswith(message)


def test_trace_is_simulated(tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text(SWF)
    spec = """
        traces:
          - name: log
            file: log.swf
            queues: {default: team/main}
            requests: {cpu: 250m}
        """
    simulation, timeline = run_scenario(tmp_path, spec)
    assert timeline.lines == [
        "0 Submitted log-1", "0 Admitted log-1",
        "60 Submitted log-2", "60 Finished log-1", "60 Admitted log-2",
        "90 Finished log-2",
    ]  # fmt: skip
    assert report(simulation).left_out == {"jobs of log.swf that never ran": 1}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0,team/none,,1,1,1m", "trace.csv:2: queue: LocalQueue team/none is not among the manifests"),
        ("0,team/main,,1,1x,1m", "trace.csv:2: requests.cpu: '1x' is not a quantity"),
        ("0,team/main,none,1,1,1m", 'trace.csv:2: priority: WorkloadPriorityClass "none" not found'),
    ],
)
def test_trace_row_with_unknown_queue_priority_or_quantity_is_refused(
    tmp_path: Path, row: str, message: str
) -> None:
    (tmp_path / "trace.csv").write_text(f"submit_time,queue,priority,pods,requests.cpu,run_time\n{row}\n")
    with pytest.raises(InputError) as error:
        run_scenario(tmp_path, "traces: [{name: t, file: trace.csv}]")
    assert str(error.value).replace(f"{tmp_path}/", "").startswith(message)


def test_csv_priorities_are_numbers_or_classes(tmp_path: Path) -> None:
    rows = "0,team/main,,4,1,1m\n1,team/main,7,4,1,1m\n2,team/main,high,4,1,1m\n3,team/main,-1,4,1,1m\n"
    (tmp_path / "trace.csv").write_text(f"submit_time,queue,priority,pods,requests.cpu,run_time\n{rows}")
    _, timeline = run_scenario(tmp_path, "traces: [{name: t, file: trace.csv}]")
    assert [line.split()[2] for line in timeline.lines if "Admitted" in line] == ["t-1", "t-3", "t-2", "t-4"]
