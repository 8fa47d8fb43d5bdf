"""Questions to the core in child processes: few at once, each with a deadline."""

import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from admitq.asking.branch_processes import BranchDeadlineExceeded, BranchFailed
from admitq.asking.branches import ask_in_background, branch_of
from admitq.core.asking.branch import Branch
from admitq.core.asking.execution import EndlessDecisionsError
from admitq.core.model import Instant
from admitq.core.state import AdmissionState
from admitq.process.logs import logger
from admitq.visibility.answers import RequestRejected

Answer = TypeVar("Answer")

log = logger(__name__)

MOST_QUESTIONS: Final = 2
"""The number of questions at once. Each needs a processor, and memory for what it changes."""

ANSWER_SECONDS: Final = 1.0
"""The seconds after which an answer begins no other step, and has what is known by then."""

DEADLINE_SECONDS: Final = 2.0
"""The seconds after which a question has no answer."""


class Asked(NamedTuple):
    """What a question gets.

    Attributes:
        state: a disposable state.
        now: the present instant, in nanoseconds since the Unix epoch.
        branch: asks questions about the state as it is at each call.
        branch_from: returns such a function for another state.
        seconds: the time for the answer.
    """

    state: AdmissionState
    now: Instant
    branch: Branch
    branch_from: Callable[[AdmissionState], Branch]
    seconds: float


class BackgroundQuestions:
    """Asks a state in child processes, so that neither watches nor other requests wait.

    Args:
        state: the state. It does not change.
        most: how many questions run at once.
        deadline: the seconds after which a question has no answer.
        seconds: the seconds after which an answer begins no other step.
        clock: the present instant, in nanoseconds since the Unix epoch.
    """

    def __init__(
        self,
        state: AdmissionState,
        *,
        most: int = MOST_QUESTIONS,
        deadline: float = DEADLINE_SECONDS,
        seconds: float = ANSWER_SECONDS,
        clock: Callable[[], Instant] = time.time_ns,
    ) -> None:
        self._state = state
        self._most = most
        self._deadline = deadline
        self._seconds = seconds
        self._clock = clock
        self._running = 0

    def now(self) -> Instant:
        """Return the present instant."""
        return self._clock()

    async def ask(self, question: Callable[[Asked], Answer]) -> Answer:
        """Return the answer to a question.

        Raises:
            RequestRejected: too many questions run, or there is no answer.
        """
        if self._running >= self._most:
            raise RequestRejected(429, "too many questions at the same time, try again later")
        deadline, seconds, now = self._deadline, self._seconds, self._clock()

        def ask(state: AdmissionState) -> Answer:
            branch_from = partial(branch_of, deadline_s=deadline)
            return question(Asked(state, now, branch_from(state), branch_from, seconds))

        self._running += 1
        try:
            return await ask_in_background(self._state, ask, deadline_s=deadline)
        except BranchDeadlineExceeded:
            raise RequestRejected(503, f"no answer within {deadline:g} s, try again later") from None
        except (BranchFailed, EndlessDecisionsError) as error:
            log.error("question failed", error=str(error))  # noqa: TRY400 the caller gets an answer
            raise RequestRejected(500, f"the question failed: {error}") from None
        finally:
            self._running -= 1
