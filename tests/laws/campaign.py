"""Play many histories in parallel; a later call continues where an earlier one stopped (``hack/laws``).

Finished histories are recorded under a fingerprint of the core and the laws. When either changes, all are
played again.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from tests.laws.history import find_failure, generate, report

ROOT = Path(__file__).resolve().parents[2]
TOGETHER = 10
"""How many histories a worker process gets at once."""


def fingerprint(length: int) -> str:
    """Return a fingerprint of everything that the results depend on."""
    digest = hashlib.sha256(str(length).encode())
    for folder in ("admitq/core", "tests/laws"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


class Record:
    """Finished histories on disk: one line for each chunk of seeds, with the failing ones."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "finished.jsonl"
        self.failing: list[int] = []
        self.finished: set[int] = set()
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                self._add(*json.loads(line))

    def _add(self, seeds: list[int], failing: list[int]) -> None:
        self.finished.update(seeds)
        self.failing += failing

    def add(self, seeds: list[int], failing: list[int]) -> None:
        """Record that these seeds were played."""
        self._add(seeds, failing)
        with self.path.open("a") as file:
            file.write(json.dumps([seeds, failing]) + "\n")


def play_all(seeds: list[int], length: int) -> tuple[list[int], list[int]]:
    """Play histories; return their seeds and those that broke a law."""
    return seeds, [seed for seed in seeds if find_failure(generate(seed, length)) is not None]


def chunks(seeds: Sequence[int]) -> Iterator[list[int]]:
    """Yield the seeds in portions."""
    for index in range(0, len(seeds), TOGETHER):
        yield list(seeds[index : index + TOGETHER])


def campaign(seeds: Sequence[int], length: int, jobs: int, record: Record) -> None:
    """Play the histories that are not finished, and print the progress."""
    unfinished = [seed for seed in seeds if seed not in record.finished]
    played, begin = 0, time.monotonic()
    portions = chunks(unfinished)
    running: set[Future[tuple[list[int], list[int]]]] = set()
    with ProcessPoolExecutor(jobs) as pool:
        while True:
            while len(running) < 2 * jobs and (portion := next(portions, None)) is not None:
                running.add(pool.submit(play_all, portion, length))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                record.add(*each.result())
                played += len(each.result()[0])
                pace = played / (time.monotonic() - begin)
                print(
                    f"\r{len(seeds) - len(unfinished) + played:,} of {len(seeds):,} histories, "
                    f"{len(record.failing)} failing, {pace:.1f} a second, "
                    f"{(len(unfinished) - played) / pace / 60:.0f} min left ",
                    end="",
                    flush=True,
                )


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="hack/laws", description=__doc__)
    parser.add_argument("--histories", type=int, default=1000, metavar="N", help="how many (1000)")
    parser.add_argument("--seed", type=int, default=100_000, metavar="S", help="of the first (100000)")
    parser.add_argument("--length", type=int, default=120, metavar="N", help="operations in each (120)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (2)")
    chosen = parser.parse_args()
    folder = ROOT / ".state" / "laws" / fingerprint(chosen.length)
    record = Record(folder)
    seeds = range(chosen.seed, chosen.seed + chosen.histories)
    campaign(seeds, chosen.length, chosen.jobs, record)
    failing = sorted(set(record.failing) & set(seeds))
    print(f"\n{len(seeds):,} histories from seed {chosen.seed}: {len(failing)} failing")
    for seed in failing[:5]:
        description = report(seed, generate(seed, chosen.length))
        (folder / f"seed-{seed}.txt").write_text(description)
        print(f"\n{description}\n(in {folder / f'seed-{seed}.txt'})")
    if failing:
        print(f"failing seeds: {failing}")
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main())
