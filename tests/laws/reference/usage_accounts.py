"""Past usage of LocalQueues (semantics, Admission fair sharing), with exact decay.

Past usage decays by half every half-life towards the present usage. A workload is charged a penalty once,
when its reservation is decided. The penalty becomes consumption when the workload is admitted, and is removed
if it never is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction

from admitq.core.settings import AdmissionFairSharing

DIGITS = 60

Exact = dict[str, Fraction]


def remaining_share(elapsed: int, half_life: int) -> Fraction:
    """Return which share of past usage remains after a time; all of it without a half-life."""
    if not half_life:
        return Fraction(1)
    with localcontext() as context:
        context.prec = DIGITS
        return Fraction(Decimal("0.5") ** (Decimal(elapsed) / Decimal(half_life)))


@dataclass
class Account:
    """The account of one LocalQueue."""

    weight: Fraction
    at: int
    consumed: Exact = field(default_factory=dict)
    penalties: dict[str, Exact] = field(default_factory=dict)
    """By workload, the charges that are not settled yet."""
    charged: set[str] = field(default_factory=set)


class ExactAccounts:
    """The accounts of all LocalQueues by name."""

    def __init__(self, settings: AdmissionFairSharing) -> None:
        self.settings = settings
        self.accounts: dict[str, Account] = {}

    def penalize(self, queue: str, uid: str, totals: Mapping[str, int]) -> None:
        """Charge a workload for the first interval before its admission, unless it was charged before."""
        account = self.accounts[queue]
        if any(uid in each.charged for each in self.accounts.values()):
            return
        share = 1 - remaining_share(self.settings.sampling_interval, self.settings.half_life)
        account.charged.add(uid)
        account.penalties[uid] = {resource: share * amount for resource, amount in totals.items()}

    def roll_back(self, uid: str) -> None:
        """Remove the charge of a workload that is not admitted."""
        for account in self.accounts.values():
            account.charged.discard(uid)
            account.penalties.pop(uid, None)

    def sample(self, queue: str, used: Mapping[str, int], now: int) -> None:
        """Decay past usage up to this time."""
        account = self.accounts[queue]
        left = remaining_share(max(0, now - account.at), self.settings.half_life)
        account.consumed = {
            resource: left * account.consumed.get(resource, Fraction(0)) + (1 - left) * used.get(resource, 0)
            for resource in {*account.consumed, *used}
        }
        account.at = max(account.at, now)

    def settle(self, queue: str, uid: str, used: Mapping[str, int], now: int) -> None:
        """Sample, and turn the penalty of an admitted workload into consumption."""
        self.sample(queue, used, now)
        account = self.accounts[queue]
        for resource, amount in account.penalties.pop(uid, {}).items():
            account.consumed[resource] = account.consumed.get(resource, Fraction(0)) + amount

    def usage(self, queue: str) -> Fraction | None:
        """Return Σ weight · (consumed + penalties) / the queue's weight, CPU in cores; None if infinite."""
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
