"""What every test may use; the control plane's fixtures are described where they are made."""

pytest_plugins = ["localcluster.pytest_plugin"]
