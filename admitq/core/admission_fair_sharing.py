"""Usage accounts of LocalQueues. In a ClusterQueue, the LocalQueue with the least past usage comes first.

The rules (semantics, Admission fair sharing): past usage decays towards the present usage. The difference
halves in every half-life. So it takes time until new usage counts. Therefore a workload is charged a penalty
once, when its reservation is decided. The penalty becomes part of the consumed amounts when the workload is
admitted. If the workload is never admitted, the penalty is removed.

Amounts are integers, in units of 2⁻⁵³ of the usual unit. The fraction that remains after a time is rounded to
the nearest 2⁻⁵³; all else is exact. It is computed with integers, so that the result is the same on all
machines.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Final, NamedTuple

from admitq.core.amounts import UNLIMITED, Amounts
from admitq.core.model import ConsumedResources, Instant, LocalQueue, ObjectKey
from admitq.core.settings import AdmissionFairSharing

_BITS: Final = 53
_ONE: Final = 1 << _BITS
_ZERO: Final = Fraction()

# --- decay ----------------------------------------------------------------------------------------------

_PRECISION: Final = 192
_DIGITS: Final = 128
"""The number of binary digits of the exponent that count. Errors are below 2⁻¹²⁰ and do not matter."""


def _roots_of_half() -> tuple[int, ...]:
    """Return 2^-½, 2^-¼, 2^-⅛ …, each times 2^192."""
    roots: list[int] = []
    root = 1 << (_PRECISION - 1)
    for _ in range(_DIGITS):
        root = isqrt(root << _PRECISION)
        roots.append(root)
    return tuple(roots)


_ROOTS: Final = _roots_of_half()


@lru_cache(1024)
def remaining(elapsed: int, half_life: int) -> int:
    """Return the fraction of past usage that remains after a time, times 2⁵³ and rounded to the nearest.

    The fraction is 2^-(elapsed / half_life). With a half-life of 0, all past usage remains.

    Args:
        elapsed: nanoseconds, not negative.
        half_life: nanoseconds.
    """
    if not half_life:
        return _ONE
    halvings, remainder = divmod(elapsed, half_life)
    if halvings > _BITS:
        return 0
    value = 1 << _PRECISION
    for root in _ROOTS:
        remainder *= 2
        if remainder >= half_life:
            remainder -= half_life
            value = (value * root) >> _PRECISION
    shift = _PRECISION - _BITS + halvings
    return (value + (1 << (shift - 1))) >> shift


# --- values ---------------------------------------------------------------------------------------------


class PastUsage(NamedTuple):
    """The past usage of a LocalQueue; less usage comes first. It is infinite for a weight of zero or less."""

    infinite: bool
    amount: Fraction


NEVER_USED: Final = PastUsage(infinite=False, amount=_ZERO)


class Charge(NamedTuple):
    """The charge of a workload. ``penalty`` has the amounts that do not count as consumed yet."""

    uid: str
    queue: ObjectKey
    penalty: Amounts


class Balance(NamedTuple):
    """The amounts that a LocalQueue consumed until an instant, in units of 2⁻⁵³."""

    queue: ObjectKey
    weight: Fraction
    consumed: Amounts
    at: Instant


class DumpedAccounts(NamedTuple):
    """All usage accounts as a value."""

    balances: tuple[Balance, ...]
    charges: tuple[Charge, ...]


@dataclass(slots=True, eq=False)
class _Account:
    """The account of one LocalQueue. ``penalties`` sums open penalties, ``version`` counts changes."""

    weight: Fraction
    consumed: dict[str, int]
    at: Instant
    penalties: dict[str, int] = field(default_factory=dict[str, int])
    version: int = 0
    usage: PastUsage | None = None
    """The past usage as last computed; None after a change."""
    stated: ConsumedResources | None = None
    """The status of the LocalQueue from which the amounts were taken last."""


# --- accounts -------------------------------------------------------------------------------------------


class UsageAccounts:
    """The accounts of all LocalQueues.

    Args:
        settings: half-life, interval and weights.
    """

    def __init__(self, settings: AdmissionFairSharing) -> None:
        self._settings = settings
        self._weights = dict(settings.resource_weights)
        self._charged_fraction = _ONE - remaining(settings.sampling_interval, settings.half_life)
        self._accounts: dict[ObjectKey, _Account] = {}
        self._charges: dict[str, Charge] = {}
        self._uids: dict[ObjectKey, set[str]] = {}

    # --- LocalQueues ------------------------------------------------------------------------------

    def open(self, queue: LocalQueue, now: Instant, *, follows_status: bool = False) -> None:
        """Open the account of a LocalQueue with the consumed amounts of its status, or update its weight.

        If the instant in the status is in the future, the present instant counts: else the past usage would
        not decay until then.

        Args:
            queue: the LocalQueue.
            now: the present instant.
            follows_status: whether another program decides and writes the status, so that the amounts of a
                changed status replace those of the account.
        """
        account = self._accounts.get(queue.key)
        if account is None:
            consumed, at = _read_stated(queue.consumed, now)
            self._accounts[queue.key] = _Account(queue.fair_weight, consumed, at, stated=queue.consumed)
            return
        if follows_status and queue.consumed not in {None, account.stated}:
            account.consumed, account.at = _read_stated(queue.consumed, now)
            account.stated = queue.consumed
            _changed(account)
        if account.weight != queue.fair_weight:
            account.weight = queue.fair_weight
            _changed(account)

    def close(self, key: ObjectKey) -> None:
        """Close the account of a LocalQueue that was deleted, and forget the charges of its workloads."""
        self._accounts.pop(key, None)
        for uid in self._uids.pop(key, ()):
            del self._charges[uid]

    # --- workloads --------------------------------------------------------------------------------

    def penalize(self, key: ObjectKey, uid: str, totals: Iterable[Amounts]) -> None:
        """Charge a workload for the first sampling interval, unless it was charged already."""
        account = self._accounts.get(key)
        if account is None or uid in self._charges:
            return
        requested: dict[str, int] = {}
        for part in totals:
            for resource, amount in part:
                requested[resource] = requested.get(resource, 0) + amount
        penalty = tuple(
            sorted((resource, self._charged_fraction * amount) for resource, amount in requested.items())
        )
        self._charges[uid] = Charge(uid, key, penalty)
        self._uids.setdefault(key, set()).add(uid)
        _add(account.penalties, penalty)
        _changed(account)

    def roll_back(self, uid: str) -> ObjectKey | None:
        """Remove the charge of a workload, and its penalty if that is not settled.

        Returns:
            The LocalQueue that was charged; None if there was no charge.
        """
        charge = self._charges.pop(uid, None)
        if charge is None:
            return None
        uids = self._uids[charge.queue]
        uids.discard(uid)
        if not uids:
            del self._uids[charge.queue]
        self._take_off(charge)
        return charge.queue

    def settle(self, key: ObjectKey, uid: str, used: Mapping[str, int], now: Instant) -> None:
        """Take a sample at the admission of a workload, and count its penalty as consumed."""
        account = self._accounts.get(key)
        if account is None:
            return
        self.sample(key, used, now)
        charge = self._charges.get(uid)
        if charge is not None and charge.queue == key:
            self._take_off(charge)
            self._charges[uid] = charge._replace(penalty=())
            _add(account.consumed, charge.penalty)

    def _take_off(self, charge: Charge) -> None:
        account = self._accounts[charge.queue]
        _add(account.penalties, tuple((resource, -amount) for resource, amount in charge.penalty))
        _changed(account)

    # --- time -------------------------------------------------------------------------------------

    def sample(self, key: ObjectKey, used: Mapping[str, int], now: Instant) -> None:
        """Take a sample: decay the consumed amounts of a LocalQueue towards its present usage.

        Args:
            key: the LocalQueue.
            used: the present usage of its admitted workloads, by resource.
            now: the present instant. If it is before the last sample, nothing decays.
        """
        account = self._accounts.get(key)
        if account is None:
            return
        remaining_fraction = remaining(max(0, now - account.at), self._settings.half_life)
        for resource in account.consumed.keys() | used.keys():
            past, present = account.consumed.get(resource, 0), used.get(resource, 0)
            decayed = (remaining_fraction * past + (_ONE - remaining_fraction) * (present << _BITS)) >> _BITS
            if decayed:
                account.consumed[resource] = decayed
            else:
                account.consumed.pop(resource, None)
        account.at = max(account.at, now)
        _changed(account)

    def next_sample(self, key: ObjectKey) -> Instant:
        """Return the instant of the next sample of a LocalQueue."""
        return self._accounts[key].at + self._settings.sampling_interval

    # --- answers ----------------------------------------------------------------------------------

    def usage(self, key: ObjectKey) -> PastUsage:
        """Return the past usage of a LocalQueue: Σ weight · (consumed + penalties) / its fair weight."""
        account = self._accounts.get(key)
        if account is None:
            return NEVER_USED
        if account.usage is None:
            account.usage = self._usage(account)
        return account.usage

    def _usage(self, account: _Account) -> PastUsage:
        if account.weight <= 0:
            return PastUsage(infinite=True, amount=_ZERO)
        total = _ZERO
        for amounts in (account.consumed, account.penalties):
            for resource, amount in amounts.items():
                scale = _ONE * (1000 if resource == "cpu" else 1)
                total += self._weights.get(resource, 1) * Fraction(amount, scale)
        return PastUsage(infinite=False, amount=total / account.weight)

    def consumed(self, key: ObjectKey) -> ConsumedResources | None:
        """Return the consumed amounts for the status of a LocalQueue: rounded up, as of the last sample."""
        account = self._accounts.get(key)
        if account is None:
            return None
        amounts = ((name, min(UNLIMITED, -(-amount >> _BITS))) for name, amount in account.consumed.items())
        return ConsumedResources(tuple(sorted(amounts)), account.at)

    def version(self, key: ObjectKey) -> int:
        """Return the number of changes of the account of a LocalQueue; 0 without an account."""
        account = self._accounts.get(key)
        return 0 if account is None else account.version

    # --- dump -------------------------------------------------------------------------------------

    def to_dump(self) -> DumpedAccounts:
        """Return all accounts as a value."""
        balances = (
            Balance(key, account.weight, tuple(sorted(account.consumed.items())), account.at)
            for key, account in sorted(self._accounts.items())
        )
        return DumpedAccounts(tuple(balances), tuple(sorted(self._charges.values())))

    def restore(self, dumped: DumpedAccounts) -> None:
        """Restore the accounts of a dump."""
        self._accounts = {
            key: _Account(weight, dict(consumed), at) for key, weight, consumed, at in dumped.balances
        }
        self._charges = {charge.uid: charge for charge in dumped.charges}
        self._uids = {}
        for charge in dumped.charges:
            self._uids.setdefault(charge.queue, set()).add(charge.uid)
            _add(self._accounts[charge.queue].penalties, charge.penalty)


def _read_stated(stated: ConsumedResources | None, now: Instant) -> tuple[dict[str, int], Instant]:
    """Return the consumed amounts of a status and their instant; none without a status."""
    known = stated or ConsumedResources((), now)
    return {resource: amount << _BITS for resource, amount in known.consumed}, min(known.at, now)


def _changed(account: _Account) -> None:
    account.usage = None
    account.version += 1


def _add(into: dict[str, int], amounts: Amounts) -> None:
    for resource, amount in amounts:
        into[resource] = into.get(resource, 0) + amount
        if not into[resource]:
            del into[resource]
