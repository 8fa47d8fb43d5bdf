"""The tables of a report in a terminal of 80 columns."""

from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from admitq.simulator import Report, report
from admitq.simulator.report import Preemptions, QueuePreemptions, WaitingAtEnd
from admitq.simulator.table import print_report_tables
from tests.unit.simulator.stage import run_scenario

LONG_NAME = "research-and-development-of-large-models"
GPU = "example.com/accelerators"
SPEC = """
    until: 90s
    workloads:
      - {name: w, queue: team/main, requests: {cpu: 2}, runTime: 1m, arrivals: {fixed: {count: 3}}}
      - {name: v, queue: team/main, requests: {cpu: 9}, runTime: 1m}
    """


def printed_lines(result: Report, width: int = 80) -> list[str]:
    file = StringIO()
    print_report_tables(result, Console(file=file, width=width))
    return file.getvalue().splitlines()


@pytest.fixture
def long_report(tmp_path: Path) -> Report:
    """A report with long names and large figures in every table."""
    simulation, _ = run_scenario(tmp_path, SPEC)
    small = report(simulation)
    waits = replace(small.all.waits, p50=1_123_200.0, p90=1_123_200.0, p99=1_123_200.0, most=1_123_200.0)
    figures = replace(
        small.all, name=f"team/{LONG_NAME}", submitted=1_000_000, finished=1_000_000, waits=waits
    )
    use = replace(
        small.flavors[0],
        flavor=LONG_NAME,
        resource=GPU,
        quota=1500.5,
        mean=1400.0,
        peak=1500.0,
        utilisation=0.931,
    )
    queue = replace(
        small.cluster_queues[0], cluster_queue=LONG_NAME, cohort="all", use=use, borrowed_mean=1234.0,
        borrowed_peak=1235.0, borrowed_share=0.5,
    )  # fmt: skip
    lost: Mapping[str, float] = {"cpu": 3_600_000.0, "memory": 3600.0 * 2**40, GPU: 7200.0}
    preemptions = Preemptions(
        {"InClusterQueue": 77}, (QueuePreemptions(LONG_NAME, 55, 66, lost),), lost, 0.123
    )
    waiting = WaitingAtEnd(
        f"team/{LONG_NAME}", f"team/{LONG_NAME}", LONG_NAME, 61.0, "ExceedsMaxQuota", f"needs 1 {GPU}"
    )
    return replace(
        small, queues=(figures,), classes=(figures, figures), flavors=(use,), cluster_queues=(queue,),
        preemptions=preemptions, left_waiting=(waiting,),
    )  # fmt: skip


def test_tables_fit_80_columns(long_report: Report) -> None:
    assert max(map(len, printed_lines(long_report))) <= 80


def test_tables_at_80_columns_show_every_header_and_figure(long_report: Report) -> None:
    lines = printed_lines(long_report)
    words = set(" ".join(lines).split())
    assert not any("…" in line for line in lines)
    for header in (
        "LocalQueue submitted finished wait p50 p90 p99 max", "Class",
        "Flavor resource quota mean use peak utilisation",
        "ClusterQueue flavor quota use borrowed at most share", "preempted preempting work lost",
    ):  # fmt: skip
        assert set(header.split()) <= words
    figures = "1,000,000 13d 1,234 1,235 1,400 1,500 50.0% 93.1% 55 66 77 12.3% ExceedsMaxQuota"
    assert set(figures.split()) <= words


def test_long_names_are_wrapped(long_report: Report) -> None:
    text = "".join(line[:12].strip() for line in printed_lines(long_report))
    assert LONG_NAME in text


def test_pending_workload_is_shown_with_its_message(long_report: Report) -> None:
    lines = printed_lines(long_report)
    start = lines.index(next(line for line in lines if line.startswith("Pending at the end")))
    text = " ".join(" ".join(lines[start + 1 :]).split())
    assert text.startswith(f"team/{LONG_NAME} in LocalQueue team/{LONG_NAME} since 1m 1s: ExceedsMaxQuota")
    assert f"needs 1 {GPU}" in text
