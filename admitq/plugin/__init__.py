"""``kubectl admitq``: commands for the queues and workloads of a cluster.

kubectl runs the console script ``kubectl-admitq``. It must start quickly: a command imports the client of the
API server, and other large modules, only when it calls the cluster.
"""

import sys
from io import TextIOWrapper


def main() -> None:
    """Entry point of the ``kubectl-admitq`` command."""
    from admitq.plugin.application import run

    for stream in (sys.stdout, sys.stderr):
        # Names and trees are printed also where the terminal has other characters.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.exit(run(sys.argv[1:]))


def answer_kubectl() -> None:
    """Entry point of ``kubectl_complete-admitq``, which kubectl runs to complete a command line."""
    from admitq.plugin.shells import answer_kubectl

    answer_kubectl()


__all__ = ["answer_kubectl", "main"]
