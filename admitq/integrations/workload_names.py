"""Names of Workloads: readable, bounded, and the same each time they are computed for the same owner."""

import hashlib

MAX_NAME_LENGTH = 253
"""Longest name of a Kubernetes object."""

MAX_LABEL_LENGTH = 63
"""Longest name that is also the value of a label."""

_HASH_LENGTH = 5


def create_workload_name(
    kind: str, group: str, owner_name: str, owner_uid: str, *, extra: str = "", longest: int = MAX_NAME_LENGTH
) -> str:
    """Name of the Workload of an owner: ``<kind>-<owner name>-<hash>``, lower case, at most ``longest``.

    The hash covers kind, group, name and UID of the owner, so that an owner which is deleted and created
    again under its old name gets another Workload. ``extra`` tells apart the Workloads of one owner.
    """
    identity = [kind, group, owner_name, owner_uid, *([extra] if extra else [])]
    # A short name for a reader, not a safeguard: equal hashes of different owners are caught by ownership.
    digest = hashlib.sha1("\n".join(identity).encode(), usedforsecurity=False).hexdigest()[:_HASH_LENGTH]
    readable = f"{kind.lower()}-{owner_name}"[: longest - _HASH_LENGTH - 1]
    # A name cut right behind a dot would have a label that starts with the hyphen, which is refused.
    return f"{readable.rstrip('.')}-{digest}"
