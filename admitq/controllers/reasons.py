"""Reasons of QuotaReserved=False, as the feature gates have them reported."""

from collections.abc import Mapping
from typing import Final

from admitq.controllers.settings import Settings
from admitq_api.conditions import Reason

_COARSE_REASONS: Final[Mapping[str, str]] = {
    Reason.PENDING_EVALUATION: Reason.PENDING,
    Reason.MISCONFIGURED: Reason.INADMISSIBLE,
    Reason.SUSPENDED: Reason.INADMISSIBLE,
    Reason.DEACTIVATED: Reason.INADMISSIBLE,
}
"""Reason by detailed reason, for clusters whose gates switch detailed reasons off."""


def reported_reason(reason: str, settings: Settings) -> str:
    """Return the reason to report in QuotaReserved=False instead of a detailed one."""
    return str(reason if settings.pending.detailed_reasons else _COARSE_REASONS.get(reason, reason))
