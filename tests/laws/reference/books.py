"""What LocalQueues have used lately (semantics, Admission fair sharing), with decay as exact as one likes.

Past use decays by half every half-life towards what is in use. A workload is charged a penalty when it is
assumed, once; it becomes consumption when the workload is admitted, and is taken back if it never is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction

from admitq.core.settings import AdmissionFairSharing

DIGITS = 60

Exact = dict[str, Fraction]


def remaining(elapsed: int, half_life: int) -> Fraction:
    """What remains of past use after a time: everything, for ever, without a half-life."""
    if not half_life:
        return Fraction(1)
    with localcontext() as context:
        context.prec = DIGITS
        return Fraction(Decimal("0.5") ** (Decimal(elapsed) / Decimal(half_life)))


@dataclass
class Account:
    """One LocalQueue."""

    weight: Fraction
    at: int
    consumed: Exact = field(default_factory=dict)
    penalties: dict[str, Exact] = field(default_factory=dict)
    """By workload, what is not settled yet."""
    charged: set[str] = field(default_factory=set)


class Books:
    """All LocalQueues, by any name."""

    def __init__(self, settings: AdmissionFairSharing) -> None:
        self.settings = settings
        self.accounts: dict[str, Account] = {}

    def penalize(self, queue: str, uid: str, totals: Mapping[str, int]) -> None:
        """A workload is about to be admitted: it is charged for the first interval, unless it was before."""
        account = self.accounts[queue]
        if any(uid in each.charged for each in self.accounts.values()):
            return
        share = 1 - remaining(self.settings.sampling_interval, self.settings.half_life)
        account.charged.add(uid)
        account.penalties[uid] = {resource: share * amount for resource, amount in totals.items()}

    def roll_back(self, uid: str) -> None:
        """It is not: nothing is known of it any more, and what is not settled is taken back."""
        for account in self.accounts.values():
            account.charged.discard(uid)
            account.penalties.pop(uid, None)

    def sample(self, queue: str, used: Mapping[str, int], now: int) -> None:
        """Time passes."""
        account = self.accounts[queue]
        left = remaining(max(0, now - account.at), self.settings.half_life)
        account.consumed = {
            resource: left * account.consumed.get(resource, Fraction(0)) + (1 - left) * used.get(resource, 0)
            for resource in {*account.consumed, *used}
        }
        account.at = max(account.at, now)

    def settle(self, queue: str, uid: str, used: Mapping[str, int], now: int) -> None:
        """A workload is admitted: time passes, and its penalty becomes part of what was consumed."""
        self.sample(queue, used, now)
        account = self.accounts[queue]
        for resource, amount in account.penalties.pop(uid, {}).items():
            account.consumed[resource] = account.consumed.get(resource, Fraction(0)) + amount

    def usage(self, queue: str) -> Fraction | None:
        """Σ weight · (consumed + penalties) / the queue's weight, CPU in cores; None if that is infinite."""
        account = self.accounts[queue]
        if account.weight <= 0:
            return None
        weights = dict(self.settings.resource_weights)
        total = Fraction(0)
        for of in (account.consumed, *account.penalties.values()):
            for resource, amount in of.items():
                cores = Fraction(1, 1000) if resource == "cpu" else Fraction(1)
                total += weights.get(resource, Fraction(1)) * cores * amount
        return total / account.weight
