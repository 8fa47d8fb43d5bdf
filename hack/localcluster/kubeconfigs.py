"""Kubeconfig files of clients of a local cluster, and tokens of ServiceAccounts."""

import json
from collections.abc import Mapping
from pathlib import Path

from localcluster.api import Api


def kubeconfig(
    cluster: str,
    server: str,
    authority: Path,
    user: str,
    credentials: Mapping[str, str],
    *,
    namespace: str | None = None,
) -> str:
    """Return the content of a kubeconfig file.

    Args:
        cluster: the name of the cluster and of the context.
        server: the URL of the API server.
        authority: the file with the certificate of the cluster's authority.
        user: the name of the client.
        credentials: its ``token`` or ``tokenFile``.
        namespace: the namespace of the context.
    """
    context = {"cluster": cluster, "user": user}
    # JSON is YAML, so no YAML library is needed.
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": cluster, "cluster": {"server": server, "certificate-authority": str(authority)}}
            ],
            "users": [{"name": user, "user": dict(credentials)}],
            "contexts": [
                {
                    "name": cluster,
                    "context": context if namespace is None else {**context, "namespace": namespace},
                }
            ],
            "current-context": cluster,
        },
        indent=2,
    )


def request_token(api: Api, namespace: str, account: str, lifetime_s: int) -> str:
    """Return a new token of a ServiceAccount, which is valid for ``lifetime_s`` seconds.

    Raises:
        ApiFailure: the API server refused the call.
        OSError: there is no answer.
    """
    answer = api.request(
        "POST",
        f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": lifetime_s},
        },
    )
    return str(answer["status"]["token"])
