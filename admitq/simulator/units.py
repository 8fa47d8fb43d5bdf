"""Format durations and amounts for people."""

from typing import Final

_BINARY: Final = ((1 << 50, "Pi"), (1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))
_DECIMAL: Final = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_PLAIN: Final = 10_000
"""Smaller numbers of pieces are printed in full."""
_BYTES: Final = ("memory", "ephemeral-storage", "hugepages-")


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units: "2h 5m", "3m 20s", "1.5s", "200ms"."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms" if seconds else "0s"
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    for unit, size, below, inner in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            remainder = whole % size // inner
            return f"{whole // size}{unit} {remainder}{below}" if remainder else f"{whole // size}{unit}"
    return f"{whole}s"


def natural(resource: str, amount: float) -> float:
    """Return an amount in the resource's own unit: the core counts CPU in thousandths."""
    return amount / 1000 if resource == "cpu" else amount


def is_bytes(resource: str) -> bool:
    """Whether the resource is counted in bytes."""
    return resource.startswith(_BYTES)


def amount_text(resource: str, amount: float) -> str:
    """Return an amount in a suitable unit: "1.5", "12k", "3.2Gi"."""
    if not is_bytes(resource) and abs(amount) < _PLAIN:
        return _short(amount)
    for size, suffix in _BINARY if is_bytes(resource) else _DECIMAL:
        if abs(amount) >= size:
            return f"{_short(amount / size)}{suffix}"
    return _short(amount)


def _short(value: float) -> str:
    """Return the value with at most four significant digits."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.2f}" if abs(value) < 100 else f"{value:.1f}"
    return text.rstrip("0").rstrip(".")
