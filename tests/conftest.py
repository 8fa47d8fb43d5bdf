"""What every test may use; the control plane's fixtures are described where they are made."""

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

pytest_plugins = ["localcluster.pytest_plugin"]

# Every change runs the same examples on every machine. For new ones
# run with HYPOTHESIS_PROFILE=explore (and hack/laws for histories of the core).
settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(autouse=True)
def usual_garbage_collection() -> Iterator[None]:
    """Undo the settings of a process of admitq that a test started within this one.

    hypothesis looks for referrers of its random source, and frozen objects are not found.
    """
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    for callback in list(gc.callbacks):
        if getattr(callback, "__module__", "") == "admitq.process.garbage_collection":
            gc.callbacks.remove(callback)
    if gc.get_freeze_count():
        gc.unfreeze()
