"""Tries the mutants of the core: what ``hack/mutate`` runs, in the folder with its copy of the checkout.

mutmut makes the mutants and keeps the books. Its own runner collects the tests anew for every mutant, which
takes longer than most mutants live. So the tests are collected once here, played once unchanged to learn
which of them call what, and every mutant is tried in a process forked from there: by the tests that call it,
those of its own module first, then the quickest first, until one of them fails.

How long a test takes is measured in CPU time, so that a busy machine makes no difference.
"""

import argparse
import gc
import os
import resource
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from time import process_time
from types import FrameType
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, Phase, settings
from mutmut.__main__ import create_mutants
from mutmut.configuration import config
from mutmut.mutation import trampoline
from mutmut.mutation.data import SourceFileMutationData
from mutmut.state import state
from mutmut.utils.file_utils import (
    copy_also_copy_files,
    copy_src_dir,
    setup_source_paths,
    walk_mutatable_files,
)
from mutmut.utils.format_utils import mangled_name_from_mutant_name

# Exit codes as mutmut reads them.
SURVIVED = 0
NOTICED = 1
NO_TEST = 33
TOO_LONG = 36

PATIENCE = 10  # times as long as unchanged is what a test may take,
GRACE = 3.0  # and so many seconds
MEMORY = 4 << 30


class Trials:
    """A plugin of pytest that tries mutants where pytest would run tests.

    Args:
        books: what is known of the mutants of each module.
        names: patterns of the names of those to try; without any, all.
        again: whether to try those once more that nobody noticed, and not only those never tried.
    """

    def __init__(self, books: list[SourceFileMutationData], names: list[str], *, again: bool) -> None:
        self._books = books
        self._names = names
        self._again = again
        self._cost: dict[str, float] = {}
        self._callers: defaultdict[str, list[pytest.Item]] = defaultdict(list)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Learn from the unchanged code, then try the mutants one by one.

        Raises:
            pytest.Session.Failed: a test fails without any change, or none calls what would be changed.
        """
        self._learn(session)
        if session.testsfailed or not self._callers:
            called = len(self._callers)
            raise session.Failed(f"{session.testsfailed} tests fail, {called} functions are called")
        gc.freeze()
        for book in self._books:
            for name in self._chosen(book):
                book.exit_code_by_key[name] = self._try(session, name)
                book.save()
        return True

    def _learn(self, session: pytest.Session) -> None:
        _play("stats")
        calls = state()._stats  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        for item in session.items:
            calls.clear()
            start = process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            self._cost[item.nodeid] = process_time() - start
            for function in calls:
                self._callers[function].append(item)
        cost = sum(self._cost.values())
        print(f"\n{len(session.items)} tests take {cost:.0f} s, with every call noted", flush=True)

    def _chosen(self, book: SourceFileMutationData) -> Iterator[str]:
        for name, code in list(book.exit_code_by_key.items()):
            open_ = code is None or (self._again and code in {SURVIVED, NO_TEST})
            if open_ and (not self._names or any(fnmatch(name, pattern) for pattern in self._names)):
                yield name

    def _try(self, session: pytest.Session, name: str) -> int:
        function = mangled_name_from_mutant_name(name)
        own = "test_" + function.split(".")[2]

        def order(item: pytest.Item) -> tuple[bool, float]:
            return (own not in item.nodeid, self._cost[item.nodeid])

        tests = sorted(self._callers[function], key=order)
        start = sum(os.times()[2:4])
        child = os.fork()
        if not child:
            self._judge(session, name, tests)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        print(f"{sum(os.times()[2:4]) - start:6.1f} s {code:3} {name}", flush=True)
        return code

    def _judge(self, session: pytest.Session, name: str, tests: list[pytest.Item]) -> NoReturn:
        """What a forked process does, that ends with its verdict."""
        verdict = NOTICED
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            signal.signal(signal.SIGPROF, _give_up)
            _play(name)
            verdict = NO_TEST if not tests else SURVIVED
            for item in tests:
                signal.setitimer(signal.ITIMER_PROF, GRACE + PATIENCE * self._cost[item.nodeid])
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                if session.testsfailed:
                    verdict = NOTICED
                    break
        finally:
            os._exit(verdict)


def _play(name: str) -> None:
    # What mutmut asks at every call; its own way is by the environment and takes longer than most functions.
    trampoline.get_mutant_under_test = lambda: name


def _give_up(_signal: int, _frame: FrameType | None) -> NoReturn:
    os._exit(TOO_LONG)


def _books() -> list[SourceFileMutationData]:
    books = [SourceFileMutationData(path=path) for path in sorted(walk_mutatable_files())]
    for book in books:
        book.meta_path = book.meta_path.absolute()
        book.load()
    return books


def main() -> int:
    """Make the mutants of what has changed, and try those that are asked for."""
    parser = argparse.ArgumentParser(prog="hack/mutate", description=__doc__)
    parser.add_argument("--again", action="store_true", help="also those that nobody noticed")
    parser.add_argument("names", nargs="*", metavar="NAME", help="patterns, like admitq.core.quota*")
    asked = parser.parse_args()
    Path("mutants").mkdir(exist_ok=True)
    copy_src_dir()
    copy_also_copy_files()
    setup_source_paths()
    create_mutants(1)
    # Like that of tests/conftest.py, but a failing example need not be made smaller.
    settings.register_profile(
        "mutation",
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("mutation")
    # hypothesis is imported already: of its own asserts more need not be told.
    quiet = ["--rootdir=.", "--capture=no", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    arguments = [*quiet, *config().pytest_add_cli_args, *config().pytest_add_cli_args_test_selection]
    trials = Trials(_books(), asked.names, again=asked.again)
    os.chdir("mutants")
    return int(pytest.main(arguments, plugins=[trials]))


if __name__ == "__main__":
    sys.exit(main())
