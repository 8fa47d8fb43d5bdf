"""``version``: the version of the plugin, and the images of the managers in the cluster."""

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from admitq.plugin.failures import exit_on_failure
from admitq.plugin.options import (
    ApiGroupOption,
    ClusterOptions,
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
)
from admitq.plugin.remedies import CommandError
from admitq_api.json_objects import JsonObject, objects_at, text_at

if TYPE_CHECKING:
    from admitq.plugin.cluster_access import ClusterAccess

MANAGERS: Final = "app.kubernetes.io/part-of=admitq,app.kubernetes.io/component=manager"
"""The labels of the Deployment of a manager, as the chart sets them."""


class VersionFormat(StrEnum):
    """How the versions are printed."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


def manager_images(deployments: list[JsonObject]) -> list[dict[str, str]]:
    """Return namespace, name and image of each manager, in the order of namespaces and names."""
    managers = [
        {
            "namespace": text_at(one, ("metadata", "namespace")),
            "name": text_at(one, ("metadata", "name")),
            "image": text_at(container, ("image",)),
        }
        for one in deployments
        for container in objects_at(one, ("spec", "template", "spec", "containers"))[:1]
    ]
    return sorted(managers, key=lambda one: (one["namespace"], one["name"]))


@exit_on_failure
def print_versions(
    only_client: Annotated[
        bool, typer.Option("--client", help="Print only the version of the plugin, and call no cluster.")
    ] = False,
    output: Annotated[VersionFormat, typer.Option("--output", "-o", help="Format.")] = VersionFormat.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    api_group: ApiGroupOption = None,
) -> None:
    """Print the version of the plugin, and the image of each manager.

    Without --namespace the managers of all namespaces are listed, which needs the right to list Deployments.
    """
    # The package is read for its version, which takes a while.
    from admitq_api.version import VERSION

    if only_client:
        _print({"clientVersion": VERSION}, output)
        return
    from admitq.plugin.cluster_access import call_cluster

    async def read(access: "ClusterAccess") -> dict[str, Any]:
        from admitq.runtime.resources import DEPLOYMENTS

        found, _ = await access.client.list(DEPLOYMENTS, namespace, MANAGERS)
        return {"apiGroup": access.names.group, "managers": manager_images([*found])}

    try:
        versions = call_cluster(ClusterOptions(kubeconfig, context, namespace, api_group), read)
    except CommandError as error:
        if output is VersionFormat.TEXT:
            _print({"clientVersion": VERSION}, output)
        raise CommandError(f"{error}\nkubectl admitq version --client calls no cluster.") from error
    _print({"clientVersion": VERSION, **versions}, output)


def _print(versions: dict[str, Any], output: VersionFormat) -> None:
    if output is VersionFormat.JSON:
        typer.echo(json.dumps(versions, indent=2))
    elif output is VersionFormat.YAML:
        import yaml

        typer.echo(yaml.dump(versions, Dumper=yaml.CSafeDumper, sort_keys=False), nl=False)
    else:
        typer.echo("\n".join(_lines(versions)))


def _lines(versions: dict[str, Any]) -> list[str]:
    lines = [f"Client version: {versions['clientVersion']}"]
    if "managers" in versions:
        lines.append(f"API group: {versions['apiGroup']}")
        lines += [f"Manager {one['namespace']}/{one['name']}: {one['image']}" for one in versions["managers"]]
        if not versions["managers"]:
            lines.append("Manager: no Deployment of a manager exists")
    return lines
