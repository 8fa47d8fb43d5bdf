"""The users of requests that an API server forwards as the front proxy of an aggregated API.

The API server authenticates the user itself. It connects with its client certificate, and names the user in
headers. The ConfigMap ``extension-apiserver-authentication`` in kube-system says which authority signs this
certificate, which common names it may have, and which headers count. Headers of other clients are ignored.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast
from urllib.parse import unquote

from cryptography import x509
from cryptography.x509.oid import NameOID

from admitq.serving.authorization import User
from admitq.serving.http import HttpRequest

AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
ANONYMOUS: Final = "system:anonymous"

_AUTHORITIES: Final = "requestheader-client-ca-file"


class InvalidFrontProxy(ValueError):
    """The published settings of the front proxy cannot be read."""


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """How an API server identifies itself and names users.

    Attributes:
        authorities: PEM bundle of the authorities that sign its client certificate.
        allowed_names: the common names of its certificate; empty for any.
        user_headers: the headers with the name of the user. The first one with a value counts.
        uid_headers: the headers with the uid of the user.
        group_headers: the headers with the groups of the user.
        extra_prefixes: prefixes of the headers with further attributes of the user.
    """

    authorities: bytes
    allowed_names: frozenset[str]
    user_headers: tuple[str, ...]
    uid_headers: tuple[str, ...]
    group_headers: tuple[str, ...]
    extra_prefixes: tuple[str, ...]

    @classmethod
    def from_config_map(cls, data: Mapping[str, Any]) -> "FrontProxy":
        """Read the data of the ConfigMap.

        Raises:
            InvalidFrontProxy: the API server has no front proxy, or a value has another form.
        """
        authorities = data.get(_AUTHORITIES)
        if not authorities:
            raise InvalidFrontProxy(
                f"it has no {_AUTHORITIES}: start kube-apiserver with --requestheader-client-ca-file"
            )
        return cls(
            authorities=str(authorities).encode(),
            allowed_names=frozenset(_names(data, "requestheader-allowed-names")),
            user_headers=_names(data, "requestheader-username-headers"),
            uid_headers=_names(data, "requestheader-uid-headers"),
            group_headers=_names(data, "requestheader-group-headers"),
            extra_prefixes=_names(data, "requestheader-extra-headers-prefix"),
        )

    def find_user(self, request: HttpRequest, now: float) -> User | None:
        """Return the user that the headers name; None if no front proxy sent the request.

        Args:
            request: the request. The TLS handshake has verified its client certificate.
            now: the present time, in seconds since the epoch.
        """
        if request.client_certificate is None:
            return None
        certificate = _read_certificate(request.client_certificate)
        if not certificate.not_before <= now < certificate.not_after:
            return None
        if self.allowed_names and certificate.common_name not in self.allowed_names:
            return None
        name = _first_value(request, self.user_headers)
        if not name:
            return None
        groups = tuple(value for header in self.group_headers for value in request.header_values(header))
        return User(
            name,
            _first_value(request, self.uid_headers),
            _with_authenticated_group(name, groups),
            tuple(sorted(self._read_extra(request).items())),
        )

    def _read_extra(self, request: HttpRequest) -> dict[str, tuple[str, ...]]:
        extra: dict[str, tuple[str, ...]] = {}
        for key, value in self._iterate_extra(request):
            extra[key] = (*extra.get(key, ()), value)
        return extra

    def _iterate_extra(self, request: HttpRequest) -> Iterator[tuple[str, str]]:
        for line, value in request.header_lines:
            for prefix in self.extra_prefixes:
                if line.lower().startswith(prefix.lower()):
                    yield unquote(line[len(prefix) :].lower()), value


def _names(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    text = data.get(key)
    if not text:
        return ()
    try:
        read: Any = json.loads(text)
    except ValueError as error:
        raise InvalidFrontProxy(f"{key} is not JSON: {error}") from error
    if not isinstance(read, list) or not all(isinstance(one, str) for one in cast("list[Any]", read)):
        raise InvalidFrontProxy(f"{key} is not a list of texts")
    return tuple(cast("list[str]", read))


def _first_value(request: HttpRequest, headers: tuple[str, ...]) -> str:
    values = (value for header in headers for value in request.header_values(header))
    return next(filter(None, values), "")


def _with_authenticated_group(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """Return the groups as an API server completes them: headers do not name this group for its own calls."""
    if name == ANONYMOUS or AUTHENTICATED in groups or UNAUTHENTICATED in groups:
        return groups
    return (*groups, AUTHENTICATED)


class _ClientCertificate(NamedTuple):
    common_name: str
    not_before: float
    not_after: float


@lru_cache(maxsize=256)
def _read_certificate(encoded: bytes) -> _ClientCertificate:
    certificate = x509.load_der_x509_certificate(encoded)
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return _ClientCertificate(
        str(names[0].value) if names else "",
        certificate.not_valid_before_utc.timestamp(),
        certificate.not_valid_after_utc.timestamp(),
    )


class FrontProxyUsers:
    """The users of forwarded requests. Without settings, no request counts as forwarded.

    Args:
        clock: the present time, in seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.front_proxy: FrontProxy | None = None

    def find_user(self, request: HttpRequest) -> User | None:
        """Return the user of a forwarded request; None for all other requests."""
        return None if self.front_proxy is None else self.front_proxy.find_user(request, self._clock())
