"""What every test may use; the control plane's fixtures are described where they are made."""

import os

from hypothesis import settings

pytest_plugins = ["localcluster.pytest_plugin"]

# A change is judged by the same examples as the one before it, wherever it runs. Whoever looks for new ones
# runs with HYPOTHESIS_PROFILE=explore (and hack/laws for histories of the core).
settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
