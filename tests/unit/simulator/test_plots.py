"""Charts and plots: content, axes, titles and descriptions. Plots of equal runs are equal."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from admitq.simulator import Simulation, read, shipped_scenarios
from admitq.simulator.plots import plots, write_plots
from admitq.simulator.run_charts import charts
from admitq.simulator.units import amount_text, duration_text
from tests.unit.simulator.stage import WORLD, run_scenario

SVG = "{http://www.w3.org/2000/svg}"

NAMES = {"queue-depth", "waits", "use-default-cpu"}


def run_shipped(name: str) -> Simulation:
    simulation = Simulation(read([shipped_scenarios()[name]]))
    simulation.run()
    return simulation


@pytest.fixture(scope="module")
def borrowing() -> Simulation:
    return run_shipped("borrowing")


@pytest.fixture(scope="module")
def rendered(borrowing: Simulation) -> dict[str, str]:
    return plots(borrowing)


def texts(svg: str) -> list[str]:
    """Return all texts of a plot."""
    return [node.text or "" for node in ET.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314 we wrote it ourselves


def chart_of(folder: Path, spec: str, name: str, world: str = WORLD) -> Any:
    simulation, _ = run_scenario(folder, spec, world)
    return charts(simulation)[name]


def test_run_has_charts_of_waits_queue_depth_and_each_flavor(borrowing: Simulation) -> None:
    assert set(charts(borrowing)) == NAMES


def test_write_plots_writes_one_svg_for_each_chart(borrowing: Simulation, tmp_path: Path) -> None:
    write_plots(charts(borrowing), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.svg" for name in NAMES}


def test_plots_have_title_and_description_for_screen_readers(rendered: dict[str, str]) -> None:
    for name, svg in rendered.items():
        root = ET.fromstring(svg)  # noqa: S314 we wrote it ourselves
        assert (root.tag, root.get("role")) == (f"{SVG}svg", "img"), name
        assert (root.findtext(f"{SVG}title") or "").startswith("borrowing: ")
        assert root.findtext(f"{SVG}desc")


def test_plots_refer_to_no_external_resource(rendered: dict[str, str]) -> None:
    for svg in rendered.values():
        known = ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink")
        assert "http" not in svg.replace(known[0], "").replace(known[1], "")


def test_plots_of_the_same_run_are_equal(rendered: dict[str, str]) -> None:
    assert plots(run_shipped("borrowing")) == rendered


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "use-default-cpu",
            {
                "borrowing: use of cpu, flavor default", "cpu (cores)", "production", "research",
                "time since the start of the run (minutes)", "within quota", "borrowed", "nominal quota",
            },
        ),
        (
            "queue-depth",
            {
                "borrowing: workloads waiting", "workloads waiting", "production", "research",
                "time since the start of the run (minutes)",
            },
        ),
        (
            "waits",
            {
                "borrowing: time from submission to admission", "workloads that waited no longer", "100%",
                "wait (logarithmic; shorter waits are shown at 100ms)", "10m",
            },
        ),
    ],
)  # fmt: skip
def test_plots_show_title_axes_with_units_and_legend(
    rendered: dict[str, str], name: str, expected: set[str]
) -> None:
    assert expected <= set(texts(rendered[f"{name}.svg"]))


def test_use_chart_without_borrowing_has_no_legend_of_borrowing(tmp_path: Path) -> None:
    spec = "workloads: [{name: w, queue: team/main, requests: {cpu: 2}, runTime: 1m}]"
    layers = chart_of(tmp_path, spec, "use-default-cpu")["spec"]["layer"]
    assert [layer["encoding"].get("color", {}).get("datum") for layer in layers] == ["within quota", None]


def test_use_chart_rows_are_steps_of_use_and_quota(tmp_path: Path) -> None:
    spec = "workloads: [{name: w, queue: team/main, requests: {cpu: 2}, runTime: 512s}]"
    rows = chart_of(tmp_path, spec, "use-default-cpu")["data"]["values"]
    assert [(row["time"], row["use"], row["quota"]) for row in rows] == [(0, 2, 4), (8.53333, 2, 4)]


def test_memory_is_shown_in_binary_unit(tmp_path: Path) -> None:
    world = WORLD.replace("coveredResources: [cpu]", "coveredResources: [memory]")
    world = world.replace("name: cpu", "name: memory").replace("nominalQuota: 4", "nominalQuota: 4Gi")
    spec = "workloads: [{name: w, queue: team/main, requests: {memory: 1Gi}, runTime: 1m}]"
    chart = chart_of(tmp_path, spec, "use-default-memory", world)
    assert chart["spec"]["layer"][0]["encoding"]["y"]["title"] == "memory (GiB)"
    assert chart["data"]["values"][0]["quota"] == 4


@pytest.mark.parametrize(
    ("run_time", "unit"), [("2s", "seconds"), ("10m", "minutes"), ("5h", "hours"), ("90h", "days")]
)
def test_time_axis_has_unit_for_length_of_run(tmp_path: Path, run_time: str, unit: str) -> None:
    spec = f"workloads: [{{name: w, queue: team/main, requests: {{cpu: 2}}, runTime: {run_time}}}]"
    chart = chart_of(tmp_path, spec, "queue-depth")
    assert chart["encoding"]["x"]["title"] == f"time since the start of the run ({unit})"


def test_many_cluster_queues_are_shown_as_their_sum(tmp_path: Path) -> None:
    path = tmp_path / "few.yaml"
    short_scenario = shipped_scenarios()["baseline"].read_text().replace("count: 350", "count: 2")
    path.write_text(short_scenario.replace("count: 100", "count: 1").replace("count: 50", "count: 1"))
    simulation = Simulation(read([path]))
    simulation.run()
    all_charts = charts(simulation)
    for name in ("use-default-cpu", "queue-depth"):
        queues = {row["queue"] for row in all_charts[name]["data"]["values"]}
        assert "30 ClusterQueues together" in queues
        assert len(queues) <= 4


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (0.25, "250ms"), (1, "1s"), (12.34, "12.3s"), (59.96, "1m"), (61, "1m 1s"), (3600, "1h"),
        (5400, "1h 30m"), (90000, "1d 1h"), (2592000, "30d"),
    ],
)  # fmt: skip
def test_duration_text_has_at_most_two_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 0, "0"), ("cpu", 1.5, "1.5"), ("cpu", 958.852, "958.9"), ("cpu", 1500, "1,500"),
        ("cpu", 15000, "15k"), ("memory", 1.5 * 2**30, "1.5Gi"), ("memory", 512, "512"),
    ],
)  # fmt: skip
def test_amount_text_is_short(resource: str, amount: float, text: str) -> None:
    assert amount_text(resource, amount) == text
