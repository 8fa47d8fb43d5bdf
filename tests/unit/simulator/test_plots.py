"""Pictures: well-formed, told to those who cannot see them, with sensible ticks, the same each time."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from admitq.simulator import Simulation, read, shipped_scenarios
from admitq.simulator.axes import amount_ticks, count_ticks, log_time_ticks, time_ticks
from admitq.simulator.plots import pictures, write_plots
from admitq.simulator.svg import between, steps
from admitq.simulator.units import amount_text, duration_text

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def borrowing() -> Simulation:
    simulation = Simulation(read([shipped_scenarios()["borrowing"]]))
    simulation.run()
    return simulation


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 we wrote it ourselves


def test_a_run_has_its_pictures(borrowing: Simulation, tmp_path: Path) -> None:
    write_plots(borrowing, tmp_path / "new" / "folder")
    names = {path.name for path in (tmp_path / "new" / "folder").iterdir()}
    assert names == {"queue-depth.svg", "waits.svg", "use-default-cpu.svg"}


def test_pictures_are_well_formed_and_described(borrowing: Simulation) -> None:
    for name, text in pictures(borrowing).items():
        root = parsed(text)
        assert root.tag == f"{SVG}svg", name
        assert root.get("role") == "img"
        title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
        assert title is not None
        assert description is not None
        assert (title.text or "").startswith("borrowing: ")
        assert description.text
        assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"


def test_pictures_need_nothing_else_and_suit_light_and_dark(borrowing: Simulation) -> None:
    for text in pictures(borrowing).values():
        assert "prefers-color-scheme: dark" in text
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_pictures_stay_within_their_frame(borrowing: Simulation) -> None:
    for text in pictures(borrowing).values():
        root = parsed(text)
        width, height = float(root.get("width", 0)), float(root.get("height", 0))
        for node in root.iter(f"{SVG}text"):
            assert 0 <= float(node.get("x", -1)) <= width
            assert 0 <= float(node.get("y", -1)) <= height


def test_what_is_borrowed_is_told_apart_by_more_than_colour(borrowing: Simulation) -> None:
    text = pictures(borrowing)["use-default-cpu.svg"]
    assert "<pattern" in text
    assert 'fill="url(#hatch-1)"' in text


def test_the_same_run_gives_the_same_pictures(borrowing: Simulation) -> None:
    again = Simulation(read([shipped_scenarios()["borrowing"]]))
    again.run()
    assert pictures(again) == pictures(borrowing)


def test_many_queues_are_shown_together(tmp_path: Path) -> None:
    path = tmp_path / "few.yaml"
    few = shipped_scenarios()["baseline"].read_text().replace("count: 350", "count: 2")
    path.write_text(few.replace("count: 100", "count: 1").replace("count: 50", "count: 1"))
    simulation = Simulation(read([path]))
    simulation.run()
    for name in ("use-default-cpu.svg", "queue-depth.svg"):
        assert "30 ClusterQueues together" in pictures(simulation)[name]


@pytest.mark.parametrize(
    ("end", "labels"),
    [
        (0.5, "0s 100ms 200ms 300ms 400ms 500ms"),
        (66, "0s 10s 20s 30s 40s 50s 1m"),
        (2700, "0s 5m 10m 15m 20m 25m 30m 35m 40m 45m"),
        (30000, "0s 1h 2h 3h 4h 5h 6h 7h 8h"),
        (30 * 86400, "0s 5d 10d 15d 20d 25d 30d"),
    ],
)
def test_time_axes_count_as_people_do(end: float, labels: str) -> None:
    assert " ".join(tick.label for tick in time_ticks(end)) == labels


@pytest.mark.parametrize(
    ("resource", "most", "labels"),
    [
        ("cpu", 0, "0 1"),
        ("cpu", 20, "0 5 10 15 20"),
        ("cpu", 24, "0 10 20 30"),
        ("cpu", 1.2, "0 0.5 1 1.5"),
        ("memory", 3.2 * 2**30, "0 1Gi 2Gi 3Gi 4Gi"),
        ("example.com/gpu", 130000, "0 50k 100k 150k"),
    ],
)
def test_amounts_have_round_ticks(resource: str, most: float, labels: str) -> None:
    assert " ".join(tick.label for tick in amount_ticks(resource, most)) == labels


def test_whole_things_have_no_fractions() -> None:
    assert [tick.label for tick in count_ticks(2)] == ["0", "1", "2"]
    assert [tick.label for tick in count_ticks(0)] == ["0", "1"]


def test_logarithmic_ticks_lie_within_their_axis() -> None:
    assert [tick.label for tick in log_time_ticks(1, 600)] == ["1s", "3s", "10s", "30s", "1m", "3m", "10m"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (0.25, "250ms"), (1, "1s"), (12.34, "12.3s"), (59.96, "1m"), (61, "1m 1s"), (3600, "1h"),
        (5400, "1h 30m"), (90000, "1d 1h"), (2592000, "30d"),
    ],
)  # fmt: skip
def test_durations_are_told_in_two_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 0, "0"), ("cpu", 1.5, "1.5"), ("cpu", 958.852, "958.9"), ("cpu", 1500, "1,500"),
        ("cpu", 15000, "15k"), ("memory", 1.5 * 2**30, "1.5Gi"), ("memory", 512, "512"),
    ],
)  # fmt: skip
def test_amounts_are_short(resource: str, amount: float, text: str) -> None:
    assert amount_text(resource, amount) == text


def test_paths_leave_out_what_does_not_change() -> None:
    assert steps([0, 1, 2, 3], [5, 5, 7, 7], 4) == "M0,5H2V7H4"
    assert steps([], [], 4) == ""


def test_the_shape_between_two_lines_is_closed_and_empty_where_they_meet() -> None:
    assert between([0, 1, 2, 3], [5, 3, 3, 5], [5, 5, 5, 5], 4) == "M1,3H3V5H1Z"
    assert between([0, 1], [5, 5], [5, 5], 2) == ""
    assert between([0, 1], [3, 3], [5, 4], 2) == "M0,3H2V4H1V5H0Z"
