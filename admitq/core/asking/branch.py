"""How functions of this package get disposable states, without knowing how these are created."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from admitq.core.state import AdmissionState

Answer = TypeVar("Answer")


class Branch(Protocol):
    """Calls a question with a disposable copy of a state, and returns the answer.

    Processes use ``admitq.asking.branches``. Its answers must be picklable. Tests and small programs use
    ``copying_branch``.
    """

    def __call__(self, question: Callable[[AdmissionState], Answer], /) -> Answer:
        """Return the answer to the question. Each call begins with the same state."""
        ...


def copying_branch(state: AdmissionState) -> Branch:
    """Return a function that asks questions about copies of a state, in this process."""

    def branch(question: Callable[[AdmissionState], Answer], /) -> Answer:
        return question(state.fork())

    return branch
