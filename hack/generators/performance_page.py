"""Generate the tables and plots of docs/performance.md from the stored results of benchmarks.

The page is written by hand, except for the parts between two marks. A part without results is empty.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

from admitq.simulator.plots import render_svg
from benchmarks.published_figures import PUBLISHED_RUNS
from benchmarks.result_charts import (
    PROCESSES,
    latency_cases,
    result_charts,
    throughput_results,
    throughput_runs,
)
from benchmarks.stored_results import (
    FOLDER,
    StoredResult,
    StoredResults,
    commands,
    read_results,
    seed_results,
)
from generators.figures import number, numbers, percent
from generators.reference_tables import table
from generators.size_guide import sizes
from localcluster.folders import REPOSITORY

PAGE: Final = Path("docs/performance.md")
PICTURES: Final = Path("docs/performance")

_PART: Final = re.compile(
    r"(?P<begin><!-- results: (?P<name>[a-z]+) -->\n).*?(?P<end><!-- end of results -->)",
    re.DOTALL,
)


class MissingPartError(Exception):
    """The page has no marks for a part, or marks for an unknown one."""


def outputs() -> dict[Path, str]:
    """Return the page and its plots."""
    results = read_results(REPOSITORY / FOLDER)
    page = fill((REPOSITORY / PAGE).read_text(encoding="utf-8"), results)
    plots = {PICTURES / f"{name}.svg": render_svg(chart) for name, chart in result_charts(results).items()}
    return {PAGE: page, **plots}


def fill(page: str, results: StoredResults) -> str:
    """Return the page with all generated parts.

    Raises:
        MissingPartError: the parts of the page are not those of ``PARTS``.
    """
    found = [match["name"] for match in _PART.finditer(page)]
    if sorted(found) != sorted(PARTS):
        raise MissingPartError(f"{PAGE} has the generated parts {found}, but must have {[*PARTS]}")
    return _PART.sub(lambda match: f"{match['begin']}{part(match['name'], results)}{match['end']}", page)


def part(name: str, results: StoredResults) -> str:
    """Return the text of one part; empty without results."""
    lines = [*PARTS[name](results)]
    return "\n".join(["", *lines, "", ""]) if lines else ""


# --- Jobs of ten pods -----------------------------------------------------------------------------


def seed(results: StoredResults) -> Iterator[str]:
    """Yield how long the Jobs of ten pods take with and without admitq, and what each process uses."""
    runs = seed_results(results)
    if not runs:
        return
    columns = (
        "setting",
        "run times divided by",
        "queue manager",
        "slots",
        "done",
        "failed",
        "time, s",
        "time \N{DIVISION SIGN} bound",
        "Jobs a second",
        "slots in use",
    )
    yield from (
        *table(columns, [_seed_row(result.figures) for result in runs]),
        "",
        commands(runs),
        "",
        "CPU-seconds, and peak memory in MB:",
        "",
        *table(("process", *map(_seed_name, runs)), [*_seed_processes(runs)]),
    )


def _seed_name(run: StoredResult) -> str:
    one = run.figures
    queue = "" if one["queue"] else ", without admitq"
    return f"`{one['setting']}` \N{DIVISION SIGN} {number(one['scale'])}, {one['slots']:,} slots{queue}"


def _seed_row(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"`{one['setting']}`",
        number(one["scale"]),
        "admitq" if one["queue"] else "none",
        f"{one['slots']:,}",
        f"{one['done']:,}",
        f"{one['failed']:,}",
        number(one["wall_s"]),
        number(one["ratio"]),
        number(one["jobs_per_s"]),
        percent(one["mean_use_of_slots"]),
    )


def _seed_processes(runs: list[StoredResult]) -> Iterator[tuple[str, ...]]:
    used = [run.figures["processes"] for run in runs]
    for process in _names_of_processes(used):
        figures = [one.get(process, {}) for one in used]
        if any(one.get("cpu_s") for one in figures):
            yield (process, *(numbers(one.get("cpu_s"), one.get("rss_mb")) for one in figures))


def _names_of_processes(used: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Return the keys of all mappings once, in their order."""
    return dict.fromkeys(chain.from_iterable(used))


# --- throughput -----------------------------------------------------------------------------------


def throughput(results: StoredResults) -> Iterator[str]:
    """Yield the figures of the published load shapes, one column for each."""
    shapes = throughput_results(results)
    if not shapes:
        return
    yield from (
        "### Results",
        "",
        "![Time of each load shape, its bound, and published times](performance/throughput.svg)",
        "",
        "![CPU time of each load shape, by process](performance/throughput-cpu.svg)",
        "",
        *table(("", *(f"`{shape}`" for shape in shapes)), [*_throughput_rows(shapes)]),
        "",
        commands(shapes.values()),
    )


def _throughput_rows(shapes: Mapping[str, StoredResult]) -> Iterator[tuple[str, ...]]:
    times = [dict(throughput_runs(shape, result)) for shape, result in shapes.items()]
    for run in dict.fromkeys(name for runs in times for name in runs):
        yield f"{run}, s", *(number(runs.get(run)) for runs in times)
    figures = [result.figures for result in shapes.values()]
    for title, figure in _THROUGHPUT_FIGURES.items():
        yield title, *map(figure, figures)
    for key, process in PROCESSES.items():
        yield f"{process}: CPU-seconds, memory in MB", *(_usage(one, key) for one in figures)
    runs = [[run for run in PUBLISHED_RUNS[shape] if run.manager_cpu_s is not None] for shape in shapes]
    if all(runs):
        yield (
            "another queue manager, on two cores: CPU-seconds, memory in MB",
            *(numbers(run.manager_cpu_s, run.manager_mb) for run, *_ in runs),
        )


_THROUGHPUT_FIGURES: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "time ÷ shortest possible time": lambda one: number(one["ratio"]),
    "admissions a second": lambda one: number(one["admissions_per_s"]),
    "mean use of the quota": lambda one: percent(one["use"]),
    "evictions": lambda one: number(one["evictions"]),
    "mean time to admission, s": lambda one: ", ".join(
        f"{name} {number(seconds)}" for name, seconds in one["admit_mean_s"].items()
    ),
    "writes of all callers": lambda one: number(one["api_writes"]),
    "status writes of the manager for a workload": lambda one: number(one["status_writes_per_workload"]),
    "CPU time of kube-apiserver for a write, ms": lambda one: number(one["api_cpu_ms_per_write"]),
}


def _usage(figures: Mapping[str, Any], process: str) -> str:
    return numbers(figures["cpu_s"].get(process), figures["rss_mb"].get(process))


# --- other benchmarks -----------------------------------------------------------------------------


def webhook(results: StoredResults) -> Iterator[str]:
    """Yield the latency of reviews by case."""
    if (result := results.get("webhook")) is None:
        return
    rows = [
        (
            f"`{name}`",
            *(number(case[key]) for key in ("reviews_per_s", "p50_ms", "p99_ms", "p999_ms")),
            number(case["cpu_ms_per_review"]),
        )
        for name, case in latency_cases(result).items()
    ]
    columns = ("case", "reviews a second", "p50, ms", "p99, ms", "p99.9, ms", "CPU time of a review, ms")
    yield from (
        f"Results on {result.figures['cores']} cores:",
        "",
        "![Latency of reviews, by case](performance/webhook.svg)",
        "",
        *table(columns, rows),
        "",
        commands([result]),
    )


def restart(results: StoredResults) -> Iterator[str]:
    """Yield the figures of a restart."""
    if (result := results.get("restart")) is None:
        return
    one = result.figures
    rows = [
        ("first decision, s", number(one["first_decision_s"])),
        ("ready, and at rest, s", numbers(one["ready_s"], one["rest_s"])),
        (
            "CPU-seconds of the manager until ready, and until rest",
            numbers(one["cpu_ready_s"], one["cpu_rest_s"]),
        ),
        (
            "memory of the manager, peak and at rest, MB",
            numbers(one["rss_peak_mb"], one["rss_rest_mb"]),
        ),
        ("CPU-seconds of kube-apiserver", number(one["api_server_cpu_s"])),
        ("writes that do not follow from the reservation", number(sum(one["unneeded_writes"].values()))),
    ]
    yield from (
        f"Results with {one['pending']:,} pending and {one['finished']:,} finished Workloads:",
        "",
        *table(("", ""), rows),
        "",
        commands([result]),
    )


def depth(results: StoredResults) -> Iterator[str]:
    """Yield the time to admission of a newcomer, by the number of Workloads that wait."""
    if (result := results.get("depth")) is None:
        return
    rows = [
        (
            f"{one['depth']:,}",
            *(number(one["admit_s"][key] * 1_000) for key in ("p50", "p99", "max")),
            number(one["cpu_ms_per_newcomer"]["manager"]),
            number(one["rss_mb"]["manager"]),
        )
        for one in result.figures["depths"]
    ]
    columns = (
        "Workloads that wait",
        "p50, ms",
        "p99, ms",
        "longest, ms",
        "CPU time of the manager for a newcomer, ms",
        "memory of the manager, MB",
    )
    yield from (
        f"Results: p99 beside most Workloads is {number(result.figures['ratio'])} times that beside fewest.",
        "",
        "![Time to admission of a newcomer, by the number of Workloads that wait](performance/depth.svg)",
        "",
        *table(columns, rows),
        "",
        commands([result]),
    )


def pods(results: StoredResults) -> Iterator[str]:
    """Yield how fast Jobs start all of their pods, with admitq and without a queue manager."""
    if (result := results.get("pods")) is None:
        return
    forms = [*result.figures["forms"].values()]
    columns = (
        "Jobs \N{MULTIPLICATION SIGN} pods of each",
        "s",
        "without admitq, s",
        "pods a second",
        "without admitq, pods a second",
        "rate \N{DIVISION SIGN} rate without admitq",
        "all pods of a Job run after, p99, s",
    )
    yield from ("Results:", "", *table(columns, [*map(_pods_row, forms)]), "", commands([result]), "")
    titles = ("process", *chain.from_iterable((_pods_title(form), "without admitq") for form in forms))
    yield from ("CPU-seconds, with admitq and without it:", "", *table(titles, [*_pods_processes(forms)]))


def _with_and_without(form: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the figures of a form with admitq and without it, empty if not measured."""
    return form.get("queue", {}), form.get("no_queue", {})


def _pods_title(form: Mapping[str, Any]) -> str:
    """Return the number of Jobs of a form, and of the pods of each Job."""
    queued, alone = _with_and_without(form)
    figures = queued or alone
    return f"{figures['jobs']:,} \N{MULTIPLICATION SIGN} {figures['pods_per_job']:,}"


def _pods_row(form: Mapping[str, Any]) -> tuple[str, ...]:
    queued, alone = _with_and_without(form)
    return (
        _pods_title(form),
        *(number(one.get("wall_s")) for one in (queued, alone)),
        *(number(one.get("pods_per_s")) for one in (queued, alone)),
        number(form.get("rate_ratio")),
        number(queued.get("start_p99_s")),
    )


def _pods_processes(forms: list[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    used = [one.get("cpu_s", {}) for form in forms for one in _with_and_without(form)]
    for process in _names_of_processes(used):
        yield process.replace("_", " "), *(number(one.get(process)) for one in used)


PARTS: Final[Mapping[str, Callable[[StoredResults], Iterator[str]]]] = {
    "sizes": sizes,
    "seed": seed,
    "throughput": throughput,
    "restart": restart,
    "depth": depth,
    "pods": pods,
    "webhook": webhook,
}
"""The generated parts of the page, by name."""
