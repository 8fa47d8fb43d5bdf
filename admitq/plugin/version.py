"""``version``: the version of the plugin, and the images of the managers in the cluster."""

from typing import TYPE_CHECKING, Any, Final

from admitq.plugin.command import Arguments, Command, Parameter
from admitq.plugin.documents import print_document
from admitq.plugin.options import CLUSTER, ClusterOptions
from admitq.plugin.remedies import CommandError
from admitq_api.json_objects import JsonObject, objects_at, text_at
from admitq_api.version import VERSION

if TYPE_CHECKING:
    from admitq.plugin.cluster_access import ClusterAccess

MANAGERS: Final = "app.kubernetes.io/part-of=admitq,app.kubernetes.io/component=manager"
"""The labels of the Deployment of a manager, as the chart sets them."""

TEXT: Final = "text"
"""The format for people."""


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


def print_versions(arguments: Arguments) -> None:
    """Print the version of the plugin, and the image of each manager."""
    if arguments.client:
        _print({"clientVersion": VERSION}, arguments.output)
        return
    from admitq.plugin.cluster_access import call_cluster

    async def read(access: "ClusterAccess") -> dict[str, Any]:
        from admitq.runtime.resources import DEPLOYMENTS

        found, _ = await access.client.list(DEPLOYMENTS, arguments.namespace, MANAGERS)
        return {"apiGroup": access.names.group, "managers": manager_images([*found])}

    try:
        versions = call_cluster(ClusterOptions.of(arguments), read)
    except CommandError as error:
        if arguments.output == TEXT:
            _print({"clientVersion": VERSION}, arguments.output)
        raise CommandError(f"{error}\nkubectl admitq version --client calls no cluster.") from error
    _print({"clientVersion": VERSION, **versions}, arguments.output)


def _print(versions: dict[str, Any], output: str) -> None:
    if output == TEXT:
        print("\n".join(_lines(versions)))
    else:
        print_document(versions, output)


def _lines(versions: dict[str, Any]) -> list[str]:
    lines = [f"Client version: {versions['clientVersion']}"]
    if "managers" in versions:
        lines.append(f"API group: {versions['apiGroup']}")
        lines += [f"Manager {one['namespace']}/{one['name']}: {one['image']}" for one in versions["managers"]]
        if not versions["managers"]:
            lines.append("Manager: no Deployment of a manager exists")
    return lines


VERSIONS: Final = Command(
    ("version",),
    "Print the version of the plugin, and the image of each manager.\n\n"
    "Without --namespace it lists the managers of all namespaces, and needs the right to list Deployments.",
    (
        Parameter(
            ("--client",), "Print only the version of the plugin, and call no cluster.", is_switch=True
        ),
        Parameter(("--output", "-o"), "Format.", choices=(TEXT, "json", "yaml"), default=TEXT),
        *CLUSTER,
    ),
    print_versions,
)
