"""The syntax of names, labels and annotations in Kubernetes.

Each check returns the error of a text, with a remedy, or None if the text is valid.
"""

import re

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

SUBDOMAIN_PATTERN = rf"^{_LABEL}(\.{_LABEL})*$"
"""The pattern of a DNS subdomain, for schemas."""

LABEL_PATTERN = rf"^{_LABEL}$"
"""The pattern of a DNS label, for schemas."""

_NAME_PATTERN = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])"

QUALIFIED_NAME_PATTERN = rf"^({_LABEL}(\.{_LABEL})*/)?{_NAME_PATTERN}$"
"""The pattern of a label key, for schemas."""

LABEL_VALUE_PATTERN = rf"^{_NAME_PATTERN}?$"
"""The pattern of the value of a label, which may be empty, for schemas."""


def check_dns_label(text: str) -> str | None:
    """Return the error of a DNS label (63 characters), such as the name of a pod set or namespace."""
    if len(text) > 63:
        return "must be no more than 63 characters"
    if _DNS_LABEL.fullmatch(text) is None:
        return (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
            "and must start and end with an alphanumeric character, like 'my-name' or '123-abc'"
        )
    return None


def check_dns_subdomain(text: str) -> str | None:
    """Return the error of a DNS subdomain (253 characters), such as the name of most objects."""
    if len(text) > 253:
        return "must be no more than 253 characters"
    if _DNS_SUBDOMAIN.fullmatch(text) is None:
        return (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
            "and must start and end with an alphanumeric character, like 'example.com'"
        )
    return None


def check_qualified_name(text: str) -> str | None:
    """Return the error of a label or annotation key: `name` or `prefix.example/name`."""
    prefix, slash, name = text.rpartition("/")
    if slash and (problem := check_dns_subdomain(prefix)) is not None:
        return f"prefix part {problem}"
    if len(name) > 63:
        return "name part must be no more than 63 characters"
    if _NAME.fullmatch(name) is None:
        return (
            "name part must consist of alphanumeric characters, '-', '_' or '.', "
            "and must start and end with an alphanumeric character, like 'MyName' or 'example.com/my.name'"
        )
    return None


def check_label_value(text: str) -> str | None:
    """Return the error of the value of a label. An empty value is valid."""
    if len(text) > 63:
        return "must be no more than 63 characters"
    if text and _NAME.fullmatch(text) is None:
        return (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
            "and must start and end with an alphanumeric character, like 'MyValue' or '12345'"
        )
    return None
