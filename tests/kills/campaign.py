"""Kill the manager at every await of every history; continue an interrupted run (``hack/kills``).

Results are stored by a fingerprint of the product and of the histories: after a change of either, all kills
are played again. Each process has its own control plane.
"""

import argparse
import asyncio
import hashlib
import json
import logging
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, Final

import structlog

from admitq_api.labels import DEFAULT_GROUP
from localcluster import processes
from localcluster.cluster import LocalCluster
from localcluster.installation import Installation
from tests.kills import runner
from tests.kills.histories import HISTORIES
from tests.kills.killable_manager import KillPoint
from tests.kills.plays import End, Outcome, kills_of

ROOT = Path(__file__).resolve().parents[2]
TOGETHER = 5
"""The number of kills that a process gets at a time."""

PLAYS: Final = {
    **{history.name: (history, KillPoint.AT_REQUEST) for history in HISTORIES},
    KillPoint.AT_SWITCH.value: (HISTORIES[0], KillPoint.AT_SWITCH),
    **{
        f"{KillPoint.WITH_LATE_WRITE}:{history.name}": (history, KillPoint.WITH_LATE_WRITE)
        for history in HISTORIES
    },
}
"""All plays by name: every history, the first one with kills at every task switch, and every history with
each of its writes made late."""

Finished = list[tuple[str, int, str, list[str]]]
"""Name of the play, number and name of the await, and differences from the play without a kill."""


def fingerprint(api_group: str) -> str:
    """A hash of all sources that the results depend on."""
    digest = hashlib.sha256(api_group.encode())
    for folder in ("admitq", "api", "webhooks", "tests/kills"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


class Record:
    """Finished kills on disk: one line for each; the line with number 0 lists all kills of a play."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "finished.jsonl"
        self.numbers: dict[str, list[int]] = {}
        self.kills: dict[tuple[str, int], Outcome] = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                self._take(*json.loads(line))

    def _take(self, name: str, number: int, at: str, found: list[str]) -> None:
        if number:
            self.kills[name, number] = Outcome(at, found)
        else:
            self.numbers[name] = json.loads(at)

    def add(self, name: str, number: int, at: str, found: list[str]) -> None:
        """Store a finished kill; for number 0, the numbers of all kills of the play."""
        self._take(name, number, at, found)
        with self.path.open("a") as file:
            file.write(json.dumps([name, number, at, found]) + "\n")

    def left(self, name: str) -> list[int]:
        """The kills of a play that are not finished."""
        return [one for one in self.numbers[name] if (name, one) not in self.kills]

    def failing(self, names: Sequence[str]) -> list[tuple[str, int]]:
        """The kills after which the end differed."""
        return [one for one, outcome in self.kills.items() if outcome.problems and one[0] in names]


class Worker:
    """A process with a control plane, and the ends of histories without a kill."""

    def __init__(self, number: int, api_group: str, owner: Any) -> None:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        logging.disable()
        self._group = api_group
        self._ends: dict[str, End] = {}
        cluster = LocalCluster(f"kills-{number}")
        cluster.stop()  # objects of an interrupted run would be part of the histories
        cluster.start((), owner=owner, say=lambda _: None)
        self._installation = Installation(cluster)
        self._installation.install(api_group=api_group, config=runner.CONFIG)
        self._installation.start()
        runner.stop_chart_manager(self._installation)

    def numbers(self, name: str) -> list[int]:
        """The numbers of the awaits at which kills are played."""
        return kills_of(asyncio.run(self._play(name, ()))[1], PLAYS[name][1])

    def play(self, name: str, numbers: Sequence[int]) -> Finished:
        """Play some kills of a history."""
        outcomes, _ = asyncio.run(self._play(name, numbers))
        return [(name, number, one.at, one.problems) for number, one in zip(numbers, outcomes, strict=True)]

    async def _play(self, name: str, numbers: Sequence[int]) -> tuple[list[Outcome], End]:
        history, kill_point = PLAYS[name]
        with tempfile.TemporaryDirectory() as folder:
            async with runner.history_runner(self._installation, self._group, Path(folder)) as history_runner:
                if name not in self._ends:
                    self._ends[name] = await history_runner.play_without_kill(history, kill_point)
                reference = self._ends[name]
                outcomes = [
                    await history_runner.play_with_kill(history, number, reference, kill_point)
                    for number in numbers
                ]
        return outcomes, reference


_worker: list[Worker] = []


def _begin(numbers: Any, api_group: str, owner: Any) -> None:
    _worker.append(Worker(numbers.get(), api_group, owner))


def _count(name: str) -> tuple[str, list[int]]:
    return name, _worker[0].numbers(name)


def _play(name: str, numbers: Sequence[int]) -> Finished:
    return _worker[0].play(name, numbers)


def portions(record: Record, names: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    """What is left to play, in portions."""
    for name in names:
        left = record.left(name)
        for index in range(0, len(left), TOGETHER):
            yield name, left[index : index + TOGETHER]


def campaign(names: Sequence[str], jobs: int, api_group: str, record: Record) -> None:
    """Play all unfinished kills, and print the progress."""
    numbers: Any = multiprocessing.Manager().Queue()
    for number in range(jobs):
        numbers.put(number)
    arguments = (numbers, api_group, processes.current())
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=arguments) as pool:
        for name, found in pool.map(_count, [name for name in names if name not in record.numbers]):
            record.add(name, 0, json.dumps(found), [])
        total = sum(len(record.numbers[name]) for name in names)
        todo = sum(len(record.left(name)) for name in names)
        played, begin = 0, time.monotonic()
        waiting = portions(record, names)
        running: set[Future[Finished]] = set()
        while True:
            while len(running) < 2 * jobs and (portion := next(waiting, None)) is not None:
                running.add(pool.submit(_play, *portion))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for finished in (one for each in done for one in each.result()):
                record.add(*finished)
                played += 1
            pace = played / (time.monotonic() - begin)
            print(
                f"\r{total - todo + played:,} of {total:,} kills, {len(record.failing(names))} failing, "
                f"{pace:.1f} a second, {(todo - played) / pace / 60:.0f} min left ",
                end="",
                flush=True,
            )


def main() -> int:
    """The command."""
    known = list(PLAYS)
    parser = argparse.ArgumentParser(prog="hack/kills", description=__doc__)
    parser.add_argument(
        "--histories", default="all", metavar="NAMES", help=f"all, or some of: {', '.join(known)} (all)"
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (2)")
    parser.add_argument("--again", action="store_true", help="play failing kills again")
    parser.add_argument("--api-group", default=DEFAULT_GROUP, help=f"the API group ({DEFAULT_GROUP})")
    chosen = parser.parse_args()
    names = known if chosen.histories == "all" else chosen.histories.split(",")
    if unknown := set(names) - set(known):
        parser.error(f"--histories: {', '.join(sorted(unknown))}: use some of {', '.join(known)}")
    record = Record(ROOT / ".state" / "kills" / fingerprint(chosen.api_group))
    if chosen.again:
        for one in record.failing(names):
            del record.kills[one]
    try:
        campaign(names, chosen.jobs, chosen.api_group, record)
    finally:
        for number in range(chosen.jobs):
            LocalCluster(f"kills-{number}").stop()
    failing = record.failing(names)
    print()
    for name in names:
        reached = sum(bool(outcome.at) for one, outcome in record.kills.items() if one[0] == name)
        bad = [number for one, number in failing if one == name]
        print(f"{name}: {len(record.numbers[name])} awaits, {reached} kills, {len(bad)} failing {bad or ''}")
    for one in failing[:10]:
        print("\n".join(["", *record.kills[one].problems]))
    print(f"\n(all of it in {record.path})")
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main())
