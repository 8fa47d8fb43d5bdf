"""Run tests against mutants of the core, in the folder with ``hack/mutate``'s copy of the checkout.

mutmut creates the mutants and records results. Its own runner collects the tests again for every mutant,
which takes longer than most tests. This runner collects the tests once, and runs them once without a mutant,
to record which functions each test calls. Then it forks a process for each mutant. The process runs the tests
that call the changed function until one fails: first those of the same module, then the fastest ones.

Times are CPU times, so that a busy machine makes no difference.
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

# Exit codes that mutmut expects.
SURVIVED = 0
NOTICED = 1
NO_TEST = 33
TOO_LONG = 36

TIME_FACTOR = 10
TIME_ALLOWANCE = 3.0
"""A test with a mutant can take TIME_FACTOR times its normal CPU time, plus TIME_ALLOWANCE seconds."""
MEMORY = 4 << 30


class Trials:
    """A pytest plugin that tries mutants in place of the normal test run.

    Args:
        results: the results of each module.
        names: patterns of the names of mutants to try; if empty, all.
        retry: whether to also retry mutants that no test noticed.
    """

    def __init__(self, results: list[SourceFileMutationData], names: list[str], *, retry: bool) -> None:
        self._results = results
        self._names = names
        self._retry = retry
        self._cost: dict[str, float] = {}
        self._callers: defaultdict[str, list[pytest.Item]] = defaultdict(list)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests on the unchanged code, then try the mutants one by one.

        Raises:
            pytest.Session.Failed: a test fails on the unchanged code, or no test calls a function with
                mutants.
        """
        self._learn(session)
        if session.testsfailed or not self._callers:
            called = len(self._callers)
            raise session.Failed(f"{session.testsfailed} tests fail, {called} functions are called")
        gc.freeze()
        for result in self._results:
            for name in self._chosen(result):
                result.exit_code_by_key[name] = self._try(session, name)
                result.save()
        return True

    def _learn(self, session: pytest.Session) -> None:
        _activate("stats")
        calls = state()._stats  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        for item in session.items:
            calls.clear()
            start = process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            self._cost[item.nodeid] = process_time() - start
            for function in calls:
                self._callers[function].append(item)
        cost = sum(self._cost.values())
        print(f"\n{len(session.items)} tests take {cost:.0f} s with recorded calls", flush=True)

    def _chosen(self, result: SourceFileMutationData) -> Iterator[str]:
        for name, code in list(result.exit_code_by_key.items()):
            open_ = code is None or (self._retry and code in {SURVIVED, NO_TEST})
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
            self._run_tests(session, name, tests)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        print(f"{sum(os.times()[2:4]) - start:6.1f} s {code:3} {name}", flush=True)
        return code

    def _run_tests(self, session: pytest.Session, name: str, tests: list[pytest.Item]) -> NoReturn:
        """Run the tests in the forked process, and exit with the result."""
        exit_code = NOTICED
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            signal.signal(signal.SIGPROF, _exit_too_long)
            _activate(name)
            exit_code = NO_TEST if not tests else SURVIVED
            for item in tests:
                signal.setitimer(signal.ITIMER_PROF, TIME_ALLOWANCE + TIME_FACTOR * self._cost[item.nodeid])
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                if session.testsfailed:
                    exit_code = NOTICED
                    break
        finally:
            os._exit(exit_code)


def _activate(name: str) -> None:
    # mutmut calls this at every function call. Its default reads the environment, which is slow.
    trampoline.get_mutant_under_test = lambda: name


def _exit_too_long(_signal: int, _frame: FrameType | None) -> NoReturn:
    os._exit(TOO_LONG)


def _results() -> list[SourceFileMutationData]:
    results = [SourceFileMutationData(path=path) for path in sorted(walk_mutatable_files())]
    for result in results:
        result.meta_path = result.meta_path.absolute()
        result.load()
    return results


def main() -> int:
    """Create mutants of changed functions, and try the requested ones."""
    parser = argparse.ArgumentParser(prog="hack/mutate", description=__doc__)
    parser.add_argument("--again", action="store_true", help="also retry mutants that no test noticed")
    parser.add_argument("names", nargs="*", metavar="NAME", help="pattern, such as admitq.core.quota*")
    options = parser.parse_args()
    Path("mutants").mkdir(exist_ok=True)
    copy_src_dir()
    copy_also_copy_files()
    setup_source_paths()
    create_mutants(1)
    # As in tests/conftest.py, but without shrinking failing examples.
    settings.register_profile(
        "mutation",
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("mutation")
    # hypothesis is imported already, so pytest cannot rewrite its assertions.
    quiet = ["--rootdir=.", "--capture=no", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    arguments = [*quiet, *config().pytest_add_cli_args, *config().pytest_add_cli_args_test_selection]
    trials = Trials(_results(), options.names, retry=options.again)
    os.chdir("mutants")
    return int(pytest.main(arguments, plugins=[trials]))


if __name__ == "__main__":
    sys.exit(main())
