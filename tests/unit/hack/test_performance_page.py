"""The generated parts and plots of docs/performance.md."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from admitq.simulator.plots import render_svg
from benchmarks.measured_costs import job_costs, measured_costs
from benchmarks.published_figures import PUBLISHED_RUNS
from benchmarks.result_charts import result_charts
from benchmarks.throughput_shapes import SHAPES
from generators import performance_page
from generators.figures import cores, number
from generators.performance_page import PAGE, PARTS, PICTURES, MissingPartError, fill, part
from generators.size_guide import chart_defaults
from localcluster.folders import REPOSITORY
from tests.unit.hack.stored_samples import sample_results

PICTURE = re.compile(r"\]\((performance/[^)]*\.svg)\)")


def rows(text: str) -> dict[str, list[str]]:
    """The rows of the tables of a text, by their first cells."""
    cells = [re.split(r" \| ", line.strip("| ")) for line in text.splitlines() if line.startswith("| ")]
    return {first: others for first, *others in cells}


def plotted(name: str) -> list[dict[str, Any]]:
    """The values that a plot shows."""
    return [*result_charts(sample_results())[name]["data"]["values"]]


# --- the page in docs -----------------------------------------------------------------------------


def test_page_and_plots_show_the_stored_results() -> None:
    outputs = performance_page.outputs()
    for path, text in outputs.items():
        assert (REPOSITORY / path).read_text() == text, f"{path} is not up to date: run hack/generate"


def test_page_shows_every_plot_and_no_other() -> None:
    page = (REPOSITORY / PAGE).read_text()
    files = {f"performance/{path.name}" for path in (REPOSITORY / PICTURES).glob("*.svg")}
    assert {*PICTURE.findall(page)} == files
    assert files == {
        f"performance/{path.name}" for path in performance_page.outputs() if path.suffix == ".svg"
    }


def test_page_without_a_part_is_refused() -> None:
    page = (REPOSITORY / PAGE).read_text()
    with pytest.raises(MissingPartError, match="depth"):
        fill(page.replace("<!-- results: depth -->", ""), {})


def test_filled_page_becomes_empty_and_full_again() -> None:
    page = (REPOSITORY / PAGE).read_text()
    filled, empty = fill(page, sample_results()), fill(page, {})
    assert fill(empty, sample_results()) == filled != empty == fill(filled, {})


# --- parts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PARTS)
def test_part_is_empty_without_results_and_has_tables_with_them(name: str) -> None:
    assert part(name, {}) == ""
    text = part(name, sample_results())
    tables = rows(text)
    assert tables
    assert "None" not in text
    assert "nan" not in text
    for line in text.splitlines():
        assert line == line.rstrip()
        assert len(line) <= 120 or line.startswith(("|", "![", "hack/"))


def test_pictures_of_parts_are_the_plots() -> None:
    text = "".join(part(name, sample_results()) for name in PARTS)
    assert PICTURE.findall(text) == [f"performance/{name}.svg" for name in result_charts(sample_results())]


def test_throughput_table_has_the_figures_of_results_and_of_others() -> None:
    figures, table = sample_results()["baseline"].figures, rows(part("throughput", sample_results()))
    assert table["admitq, s"] == [number(figures["wall_s"])] * 2
    assert table["shortest possible time, s"] == [number(figures["bound_s"])] * 2
    assert table["another queue manager, published mean, s"] == ["351", "1,179"]
    assert table["another queue manager, on two cores, s"] == ["386", "1,223"]
    manager = f"{number(figures['cpu_s']['manager'])}, {number(figures['rss_mb']['manager'])}"
    assert table["admitq manager: CPU-seconds, memory in MB"] == [manager] * 2


def test_depth_table_has_the_figures_of_each_depth() -> None:
    table = rows(part("depth", sample_results()))
    for one in sample_results()["depth"].figures["depths"]:
        cells = table[f"{one['depth']:,}"]
        assert cells[:2] == [number(one["admit_s"][key] * 1_000) for key in ("p50", "p99")]
        assert cells[-1] == number(one["rss_mb"]["manager"])


def test_pods_tables_have_the_figures_with_admitq_and_without_it() -> None:
    found = rows(part("pods", sample_results()))
    assert found["50 \N{MULTIPLICATION SIGN} 1"] == ["3.2", "1.4", "15.4", "36.1", "0.427", "2.99"]
    assert found["api server"] == ["1.5", "0.5", "0.3", "0.2"]
    assert found["manager"] == ["0.5", "\N{EN DASH}", "0", "\N{EN DASH}"]


def test_webhook_table_has_the_figures_of_each_case() -> None:
    table = rows(part("webhook", sample_results()))
    for name, case in sample_results()["webhook"].figures["cases"].items():
        assert table[f"`{name}`"][1:3] == [number(case["p50_ms"]), number(case["p99_ms"])]


# --- plots ----------------------------------------------------------------------------------------


def test_throughput_plot_shows_the_figures_of_the_table() -> None:
    table = rows(part("throughput", sample_results()))
    bars = plotted("throughput")
    assert len(bars) == len(PUBLISHED_RUNS) * 4
    for bar in bars:
        assert number(bar["seconds"]) in table[f"{bar['run']}, s"]


def test_cpu_plot_shows_all_processes() -> None:
    figures = sample_results()["baseline"].figures["cpu_s"]
    assert sum(bar["seconds"] for bar in plotted("throughput-cpu")) == pytest.approx(
        2 * sum(figures.values())
    )


def test_depth_plot_shows_p50_and_p99_of_each_depth() -> None:
    figures = [one["admit_s"] for one in sample_results()["depth"].figures["depths"]]
    expected = [one[key] * 1_000 for one in figures for key in ("p50", "p99")]
    assert [point["milliseconds"] for point in plotted("depth")] == expected


def test_webhook_plot_shows_p50_and_p99_of_each_case() -> None:
    cases = sample_results()["webhook"].figures["cases"].values()
    expected = [case[key] for case in cases for key in ("p50_ms", "p99_ms")]
    assert [point["milliseconds"] for point in plotted("webhook")] == expected


@pytest.mark.parametrize("name", ["throughput", "throughput-cpu", "depth", "webhook"])
def test_plot_is_the_same_each_time_and_has_a_description(name: str) -> None:
    chart = result_charts(sample_results())[name]
    svg = render_svg(chart)
    assert svg == render_svg(chart)
    assert svg.startswith("<svg")
    assert f"<title>{chart['title']}</title><desc>" in svg


def test_missing_results_omit_their_plots() -> None:
    assert result_charts({}) == {}
    depth = {"depth": sample_results()["depth"]}
    assert [*result_charts(depth)] == ["depth"]


# --- sizes ----------------------------------------------------------------------------------------


def test_costs_are_those_of_1000_jobs() -> None:
    results = sample_results()
    costs = {each.load.split("`")[1]: each for each in job_costs(results)}
    assert {*costs} == {*SHAPES, "pods", "seed"} - {"topology"}, "no results are stored for that shape"
    figures = results["baseline"].figures
    share = 1_000 / figures["workloads"]
    assert costs["baseline"].manager_cpu_s == pytest.approx(figures["cpu_s"]["manager"] * share)
    assert costs["baseline"].webhook_cpu_s == pytest.approx(figures["cpu_s"]["webhook"] * share)
    writes = {name: each.writes or 0.0 for name, each in costs.items()}
    # At least the reservation. A Job also needs a new Workload and its start.
    assert writes["baseline"] >= 1
    assert writes["pods"] >= 3
    assert (costs["baseline"].calls or 0.0) >= writes["baseline"]
    assert costs["baseline"].api_server_cpu_s == pytest.approx(
        writes["baseline"] * figures["api_cpu_ms_per_write"]
    )


def test_admitq_is_sized_for_the_dearest_load() -> None:
    results = sample_results()
    costs = measured_costs(results)
    assert costs is not None
    assert costs.manager_cpu_s == max(each.manager_cpu_s for each in job_costs(results))
    assert costs.api_server_cpu_s == pytest.approx(
        max(each.api_server_cpu_s or 0 for each in job_costs(results))
    )
    restart = results["restart"].figures
    memory = costs.manager_mb(restart["pending"], restart["finished"])
    assert memory >= restart["rss_peak_mb"] - 0.01


@pytest.mark.parametrize("missing", ["depth", "restart"])
def test_sizes_need_the_results_about_memory(missing: str) -> None:
    results = {name: result for name, result in sample_results().items() if name != missing}
    assert measured_costs(results) is None
    assert part("sizes", results) == ""


def leaves(values: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}"


def test_values_for_the_chart_are_rows_of_the_table() -> None:
    text = part("sizes", sample_results())
    values = yaml.safe_load(text.partition("# values.yaml\n")[2].partition("```")[0])
    table = rows(text)
    for path in leaves(values):
        row = next(cells for title, cells in table.items() if title.startswith(f"`{path}`"))
        value: Any = values
        for key in path.split("."):
            value = value[key]
        assert row[-1] == f"`{value}`"


def test_defaults_are_those_of_the_chart() -> None:
    values = yaml.safe_load((REPOSITORY / "charts/admitq/values.yaml").read_text())
    defaults = chart_defaults()
    assert f"{defaults.manager_cpu_milli}m" == values["manager"]["resources"]["requests"]["cpu"]
    assert f"{defaults.manager_memory_mib}Mi" == values["manager"]["resources"]["requests"]["memory"]
    assert f"{defaults.webhook_cpu_milli}m" == values["webhook"]["resources"]["requests"]["cpu"]


# --- figures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\N{EN DASH}"),
        (0, "0"),
        (15_000, "15,000"),
        (1_223.4, "1,223"),
        (227.6, "228"),
        (3.449, "3.45"),
        (0.0123, "0.0123"),
        (12.0, "12"),
    ],
)
def test_figure_has_three_significant_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_cpu_use_is_in_cores_or_thousandths() -> None:
    assert (cores(0.0123), cores(1.5)) == ("12.3m", "1.5 cores")
