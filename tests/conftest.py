"""Fixtures and settings of all tests."""

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

pytest_plugins = ["localcluster.pytest_plugin"]

# By default, hypothesis draws the same examples on every machine. HYPOTHESIS_PROFILE=explore draws new ones
# (and hack/laws draws new histories of the core).
settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "repeatable")
settings.load_profile(PROFILE)
if PROFILE == "repeatable":
    # hypothesis also draws constants of the imported modules of admitq. Which of these modules are imported
    # differs between the workers of a run. hypothesis has no setting for this.
    providers.is_local_module_file = lambda _path: False  # pyright: ignore[reportPrivateImportUsage]


@pytest.fixture(autouse=True)
def restore_garbage_collection() -> Iterator[None]:
    """Undo the garbage collection settings of an admitq process that a test started inside the test process.

    hypothesis looks for referrers of its random source. It does not find objects that are frozen.
    """
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    for callback in list(gc.callbacks):
        if getattr(callback, "__module__", "") == "admitq.process.garbage_collection":
            gc.callbacks.remove(callback)
    if gc.get_freeze_count():
        gc.unfreeze()
