"""``kubectl admitq``: commands for the queues and workloads of a cluster.

kubectl runs the console script ``kubectl-admitq``. It must start quickly: a command imports the client of the
API server, and other large modules, only when it calls the cluster.
"""

import sys


def main() -> None:
    """Entry point of the ``kubectl-admitq`` command."""
    from admitq.plugin.application import run

    sys.exit(run(sys.argv[1:]))


__all__ = ["main"]
