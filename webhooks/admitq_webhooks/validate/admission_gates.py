"""Rules of the annotation with admission gates: a job waits until other programs have removed all gates."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from admitq.integrations.admission_gates import list_gates
from admitq_api.field_errors import ErrorPath, FieldError
from admitq_api.labels import Names
from admitq_api.syntax import check_dns_subdomain
from admitq_webhooks.validate.syntax import find_duplicates

_LONGEST: Final = 63
_PATH: Final = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


def validate_create(obj: Mapping[str, Any], names: Names) -> Iterator[FieldError]:
    """Check the syntax of the gates."""
    yield from _errors(list_gates(obj, names), (), _path(names))


def validate_update(old: Mapping[str, Any], new: Mapping[str, Any], names: Names) -> Iterator[FieldError]:
    """Check that an update only removes gates.

    The syntax of stored gates is not checked, so that each gate can be removed separately.
    """
    path = _path(names)
    before, after = list_gates(old, names), list_gates(new, names)
    if not after or after == before:
        return
    if not before:
        yield FieldError.forbidden(path, "cannot add admission gate after creation", "create another job")
        return
    added = [gate for gate in after if gate not in before]
    if added:
        yield FieldError.forbidden(
            path, "can only remove gates, not add new ones", f"leave out {', '.join(added)}"
        )
    yield from _errors(after, before, path)


def _path(names: Names) -> ErrorPath:
    return ErrorPath("metadata.annotations").key(names.admission_gated_by)


def _errors(gates: Sequence[str], stored: Sequence[str], path: ErrorPath) -> Iterator[FieldError]:
    """Check the syntax of gates that the stored list does not contain."""
    for gate in gates:
        if gate in stored:
            continue
        if not gate:
            yield FieldError.invalid(path, ",".join(gates), "gate name cannot be empty")
        elif (wrong := _gate(gate)) is not None:
            yield FieldError.invalid(path, gate, wrong)
    for _, gate in find_duplicates(gates):
        if gates.count(gate) > stored.count(gate):
            yield FieldError.duplicate(path, gate, "name each gate once")


def _gate(gate: str) -> str | None:
    domain, slash, path = gate.partition("/")
    if len(gate) > _LONGEST:
        return f"must be no more than {_LONGEST} characters"
    if not slash or not path:
        return 'must be a domain-prefixed path, like "example.com/approval"'
    if (wrong := check_dns_subdomain(domain)) is not None:
        return f"prefix part {wrong}"
    if not _PATH.fullmatch(path):
        return "the path after the domain contains characters that are not allowed in a URL"
    return None
