"""``create``: queues and flavors from options."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from admitq.plugin.command import Arguments, Command, Parameter
from admitq.plugin.documents import print_document
from admitq.plugin.object_kinds import CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR, ObjectKind
from admitq.plugin.options import CLUSTER, ClusterOptions
from admitq.plugin.remedies import CommandError

if TYPE_CHECKING:
    from admitq.plugin.cluster_access import ClusterAccess
    from admitq_api.labels import Names

NONE: Final = "none"
CLIENT: Final = "client"
SERVER: Final = "server"
NAME_ONLY: Final = "name"

DONE: Final = {NONE: "created", CLIENT: "created (dry run)", SERVER: "created (server dry run)"}
"""What is printed after the name of a new object."""

DRY_RUN: Final = Parameter(
    ("--dry-run",),
    "client: send nothing; with --api-group, call no cluster. server: send the object, and do not store it.",
    choices=(NONE, CLIENT, SERVER),
    default=NONE,
)
OUTPUT: Final = Parameter(
    ("--output", "-o"), "Print the object, or only its name.", choices=("json", "yaml", NAME_ONLY)
)


def cluster_queue_spec(arguments: Arguments) -> dict[str, Any]:
    """Return the spec of a new ClusterQueue.

    Raises:
        CommandError: an option is not valid.
    """
    from admitq.plugin.new_objects import Quotas, parse_labels, resource_groups

    labels = parse_labels("--namespace-selector", arguments.namespace_selector)
    spec: dict[str, Any] = {"namespaceSelector": {"matchLabels": labels} if labels else {}}
    if arguments.cohort:
        spec["cohortName"] = arguments.cohort
    elif arguments.borrowing_limit or arguments.lending_limit:
        option = "--borrowing-limit" if arguments.borrowing_limit else "--lending-limit"
        raise CommandError(
            f"{option}: a ClusterQueue without cohort has no limits\nAdd --cohort, or leave it out."
        )
    spec["queueingStrategy"] = arguments.queuing_strategy
    preemption = {
        "reclaimWithinCohort": arguments.reclaim_within_cohort,
        "withinClusterQueue": arguments.preemption_within_cluster_queue,
    }
    if chosen := {field: policy for field, policy in preemption.items() if policy}:
        spec["preemption"] = chosen
    quotas = Quotas(*(",".join(texts) for texts in _amounts(arguments)))
    if groups := resource_groups(quotas):
        spec["resourceGroups"] = groups
    return spec


def _amounts(arguments: Arguments) -> tuple[list[str], ...]:
    return arguments.nominal_quota, arguments.borrowing_limit, arguments.lending_limit


def local_queue_spec(arguments: Arguments) -> dict[str, Any]:
    """Return the spec of a new LocalQueue."""
    return {"clusterQueue": arguments.clusterqueue}


def resource_flavor_spec(arguments: Arguments) -> dict[str, Any]:
    """Return the spec of a new ResourceFlavor.

    Raises:
        CommandError: an option is not valid.
    """
    from admitq.plugin.new_objects import parse_labels, parse_taints, parse_tolerations

    spec = {
        "nodeLabels": parse_labels("--node-labels", ",".join(arguments.node_labels)),
        "nodeTaints": parse_taints("--node-taints", ",".join(arguments.node_taints)),
        "tolerations": parse_tolerations("--tolerations", ",".join(arguments.tolerations)),
    }
    return {field: value for field, value in spec.items() if value}


def new_object(
    kind: ObjectKind, names: "Names", name: str, namespace: str | None, spec: Any
) -> dict[str, Any]:
    """Return a new object; ``namespace`` is None for kinds without one, or if it is not known."""
    metadata = {"name": name, **({} if namespace is None else {"namespace": namespace})}
    return {
        "apiVersion": f"{names.group}/{names.version}",
        "kind": kind.title,
        "metadata": metadata,
        "spec": spec,
    }


def _create(kind: ObjectKind, spec_of: Callable[[Arguments], dict[str, Any]], arguments: Arguments) -> None:
    from admitq.plugin.new_objects import check_name

    check_name(arguments.name)
    spec = spec_of(arguments)
    if arguments.dry_run == CLIENT and arguments.api_group:
        created = _without_cluster(kind, arguments, spec)
    else:
        from admitq.plugin.cluster_access import call_cluster

        write = partial(_write, kind, arguments, spec)
        created = call_cluster(ClusterOptions.of(arguments), write, about=kind)
    group = created["apiVersion"].partition("/")[0]
    full_name = f"{kind.name}.{group}/{arguments.name}"
    if arguments.output == NAME_ONLY:
        print(full_name)
    elif arguments.output:
        print_document(created, arguments.output)
    else:
        print(full_name, DONE[arguments.dry_run])


def _without_cluster(kind: ObjectKind, arguments: Arguments, spec: dict[str, Any]) -> dict[str, Any]:
    from admitq.plugin.remedies import choose_group
    from admitq_api.labels import GROUPS, names_for

    names = names_for(choose_group(GROUPS, arguments.api_group))
    return new_object(kind, names, arguments.name, arguments.namespace if kind is LOCAL_QUEUE else None, spec)


async def _write(
    kind: ObjectKind, arguments: Arguments, spec: dict[str, Any], access: "ClusterAccess"
) -> dict[str, Any]:
    from admitq.plugin.cluster_access import FIELD_MANAGER

    resource = kind.resource(access.kinds)
    namespace = access.namespace if resource.namespaced else None
    created = new_object(kind, access.names, arguments.name, namespace, spec)
    if arguments.dry_run == CLIENT:
        return created
    if kind is LOCAL_QUEUE and not arguments.ignore_unknown_cq:
        await _check_cluster_queue(access, arguments.clusterqueue)
    return await access.client.create(
        resource, created, dry_run=arguments.dry_run == SERVER, field_manager=FIELD_MANAGER
    )


async def _check_cluster_queue(access: "ClusterAccess", name: str) -> None:
    from admitq.runtime.errors import ApiError

    queues = access.kinds.cluster_queues
    try:
        await access.client.get(queues, name)
    except ApiError as error:
        if error.is_not_found:
            raise CommandError(
                f"--clusterqueue: {error.message}\nkubectl get {queues} lists what exists. With "
                "--ignore-unknown-cq, the LocalQueue may be created first."
            ) from error
        if error.is_forbidden:
            raise CommandError(
                f"--clusterqueue: {error.message}\nWith --ignore-unknown-cq, this right is not needed."
            ) from error
        raise


def _amounts_option(name: str, text: str) -> Parameter:
    return Parameter((name,), text, "FLAVOR:RESOURCE=AMOUNT;…,…", is_repeated=True)


def _name(kind: ObjectKind) -> Parameter:
    return Parameter(("name",), f"The name of the new {kind.title}.", "NAME")


_WRITE: Final = (DRY_RUN, OUTPUT, *CLUSTER)

CREATIONS: Final = (
    Command(
        ("create", CLUSTER_QUEUE.name),
        "Create a ClusterQueue.\n\n"
        "Flavors with the same resources share a resource group, in the order of --nominal-quota.",
        (
            _name(CLUSTER_QUEUE),
            Parameter(("--cohort",), "The cohort, with which it shares quota.", "NAME"),
            Parameter(
                ("--queuing-strategy", "--queueing-strategy"),
                "Whether a workload that does not fit blocks those behind it: StrictFIFO.",
                choices=("BestEffortFIFO", "StrictFIFO"),
                default="BestEffortFIFO",
            ),
            Parameter(
                ("--namespace-selector",),
                "Labels of the namespaces that may use it: KEY=VALUE,…; without it, all may.",
                "LABELS",
                default="",
            ),
            Parameter(
                ("--reclaim-within-cohort",),
                "Which workloads of other ClusterQueues may be preempted for its nominal quota.",
                choices=("Never", "LowerPriority", "Any"),
            ),
            Parameter(
                ("--preemption-within-cluster-queue",),
                "Which of its own workloads may be preempted.",
                choices=("Never", "LowerPriority", "LowerOrNewerEqualPriority"),
            ),
            _amounts_option("--nominal-quota", "The quota of each flavor. It can be repeated."),
            _amounts_option("--borrowing-limit", "How much of the cohort it may use beyond its quota."),
            _amounts_option("--lending-limit", "How much of its quota the cohort may use."),
            *_WRITE,
        ),
        partial(_create, CLUSTER_QUEUE, cluster_queue_spec),
        ("cq",),
    ),
    Command(
        ("create", LOCAL_QUEUE.name),
        "Create a LocalQueue.",
        (
            _name(LOCAL_QUEUE),
            Parameter(
                ("--clusterqueue", "-c"),
                "The ClusterQueue of the LocalQueue.",
                "NAME",
                is_required=True,
                completes=CLUSTER_QUEUE.plural,
            ),
            Parameter(
                ("--ignore-unknown-cq", "-i"), "Do not check that the ClusterQueue exists.", is_switch=True
            ),
            *_WRITE,
        ),
        partial(_create, LOCAL_QUEUE, local_queue_spec),
        ("lq",),
    ),
    Command(
        ("create", RESOURCE_FLAVOR.name),
        "Create a ResourceFlavor.",
        (
            _name(RESOURCE_FLAVOR),
            Parameter(
                ("--node-labels",),
                "The labels of its nodes: KEY=VALUE,… It can be repeated.",
                "LABELS",
                is_repeated=True,
            ),
            Parameter(
                ("--node-taints",),
                "The taints that its nodes have: KEY[=VALUE]:EFFECT,… It can be repeated.",
                "TAINTS",
                is_repeated=True,
            ),
            Parameter(
                ("--tolerations",),
                "Tolerations that its pods get: KEY[=VALUE][:EFFECT],… It can be repeated.",
                "TOLERATIONS",
                is_repeated=True,
            ),
            *_WRITE,
        ),
        partial(_create, RESOURCE_FLAVOR, resource_flavor_spec),
        ("rf",),
    ),
)
