"""What every test may use; the control plane's fixtures are described where they are made."""

import os

from hypothesis import settings

pytest_plugins = ["localcluster.pytest_plugin"]

# Every change runs the same examples on every machine. For new ones
# run with HYPOTHESIS_PROFILE=explore (and hack/laws for histories of the core).
settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
