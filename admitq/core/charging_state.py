"""The usage accounts of LocalQueues, with the charges and samples that are due (see ``charging``)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from admitq.core.admission_fair_sharing import UsageAccounts
from admitq.core.model import Instant, ObjectKey
from admitq.core.settings import CoreSettings


class SampleTimer(NamedTuple):
    """The instant of the next sample of a LocalQueue."""

    at: Instant
    key: ObjectKey


class SeenAdmitted(NamedTuple):
    """A workload that was observed as admitted, and the LocalQueue to charge."""

    at: Instant
    local_queue: ObjectKey
    uid: str


@dataclass(slots=True, eq=False)
class ChargingState:
    """The state of admission fair sharing. Without accounts, all of it stays empty."""

    accounts: UsageAccounts | None = None
    """Usage accounts of LocalQueues; None without admission fair sharing."""
    local_queue_usage: Callable[[ObjectKey], Any] | None = None
    """Returns the past usage of a LocalQueue, as a sort key; None without admission fair sharing."""
    seen_admitted: list[SeenAdmitted] = field(default_factory=list[SeenAdmitted])
    """Workloads observed as admitted at the present instant. Their charges are settled when it is over."""
    seen_leaving: set[str] = field(default_factory=set[str])
    """Uids of these workloads, if their charges must be removed afterwards."""
    samples: list[SampleTimer] = field(default_factory=list[SampleTimer])
    """A heap of the next samples."""

    @classmethod
    def of(cls, settings: CoreSettings) -> "ChargingState":
        """Return a state, with accounts if the settings enable admission fair sharing."""
        sharing = settings.admission_fair_sharing
        if sharing is None or not settings.gates.admission_fair_sharing:
            return cls()
        accounts = UsageAccounts(sharing)
        return cls(accounts, accounts.usage)
