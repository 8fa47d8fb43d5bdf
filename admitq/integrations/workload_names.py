"""Names of Workloads. They are readable, limited in length, and deterministic for an owner."""

import hashlib

MAX_NAME_LENGTH = 253
"""The maximum length of the name of a Kubernetes object."""

MAX_LABEL_LENGTH = 63
"""The maximum length of a label value, and so of a name that is used as one."""

_HASH_LENGTH = 5


def create_workload_name(
    kind: str, group: str, owner_name: str, owner_uid: str, *, extra: str = "", longest: int = MAX_NAME_LENGTH
) -> str:
    """Return the name of an owner's Workload: ``<kind>-<owner name>-<hash>``, in lower case.

    The hash covers the kind, group, name and UID of the owner. So an owner that is deleted and created again
    with the same name has another Workload. ``extra`` distinguishes several Workloads of one owner. The name
    has at most ``longest`` characters.
    """
    identity = [kind, group, owner_name, owner_uid, *([extra] if extra else [])]
    # The hash is not a security measure. If two owners have the same hash, the owner references distinguish
    # them.
    digest = hashlib.sha1("\n".join(identity).encode(), usedforsecurity=False).hexdigest()[:_HASH_LENGTH]
    readable = f"{kind.lower()}-{owner_name}"[: longest - _HASH_LENGTH - 1]
    # A dot before the hyphen would make the name invalid: a label must not start with a hyphen.
    return f"{readable.rstrip('.')}-{digest}"
