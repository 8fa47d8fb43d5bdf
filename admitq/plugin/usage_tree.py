"""The use of quota by queue and cohort, as a tree. Pure.

The numbers come from the statuses of queues, which the manager writes. Nothing is decided here.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from admitq_api.json_objects import JsonObject, as_int, objects_at, text_at, value_at
from admitq_api.quantity import QuantityError, format_amount, parse_amount

Cell = tuple[str, str]
"""A flavor and a resource."""


class Amount(NamedTuple):
    """The reserved quota of a flavor and resource, and the nominal quota; None if there is no quota here."""

    reserved: int = 0
    quota: int | None = None

    def plus(self, other: "Amount") -> "Amount":
        """Return the sum of two amounts."""
        quotas = [quota for quota in (self.quota, other.quota) if quota is not None]
        return Amount(self.reserved + other.reserved, sum(quotas) if quotas else None)


class UsageNode(NamedTuple):
    """A queue or a cohort, with the sums of what is below it.

    Args:
        kind: ``cohort``, ``clusterqueue`` or ``localqueue``.
        name: its name.
        pending: workloads that wait.
        reserving: workloads that have quota, admitted or not.
        amounts: the amounts of each flavor and resource.
        children: what is below it.
    """

    kind: str
    name: str
    pending: int
    reserving: int
    amounts: Mapping[Cell, Amount]
    children: "tuple[UsageNode, ...]" = ()


def build_tree(cluster_queues: Iterable[JsonObject], cohorts: Iterable[JsonObject]) -> list[UsageNode]:
    """Return the roots: cohorts without a parent, then ClusterQueues without a cohort, by name."""
    queues_of: dict[str, list[JsonObject]] = {}
    for queue in cluster_queues:
        queues_of.setdefault(text_at(queue, ("spec", "cohortName")), []).append(queue)
    stored = {text_at(one, ("metadata", "name")): one for one in cohorts}
    names = stored.keys() | (queues_of.keys() - {""})
    parents = {name: text_at(stored.get(name), ("spec", "parentName")) for name in names}
    names |= {parent for parent in parents.values() if parent}
    children: dict[str, list[str]] = {}
    for name in sorted(names):
        children.setdefault("" if _is_root(name, parents) else parents[name], []).append(name)

    def cohort(name: str) -> UsageNode:
        below = (
            *map(cohort, children.get(name, ())),
            *sorted(map(queue_node, queues_of.get(name, ())), key=lambda node: node.name),
        )
        amounts: dict[Cell, Amount] = {cell: Amount(0, quota) for cell, quota in _quotas(stored.get(name))}
        for node in below:
            for cell, amount in node.amounts.items():
                amounts[cell] = amounts.get(cell, Amount()).plus(amount)
        pending, reserving = (
            sum(getattr(node, field) for node in below) for field in ("pending", "reserving")
        )
        return UsageNode("cohort", name, pending, reserving, amounts, below)

    roots = [cohort(name) for name in children.get("", ())]
    return roots + sorted(map(queue_node, queues_of.get("", ())), key=lambda node: node.name)


def _is_root(name: str, parents: Mapping[str, str]) -> bool:
    """Return whether a cohort has no parent, or is in a cycle of parents, which admits nothing."""
    seen = {name}
    parent = parents.get(name, "")
    if not parent:
        return True
    while parent and parent not in seen:
        seen.add(parent)
        parent = parents.get(parent, "")
    return parent == name


def queue_node(queue: JsonObject) -> UsageNode:
    """Return the node of a ClusterQueue or a LocalQueue."""
    is_local = "clusterQueue" in value_at(queue, ("spec",), {})
    amounts: dict[Cell, Amount] = {cell: Amount(0, quota) for cell, quota in _quotas(queue)}
    for flavor in objects_at(queue, ("status", "flavorsReservation")):
        for resource in objects_at(flavor, ("resources",)):
            cell = (text_at(flavor, ("name",)), text_at(resource, ("name",)))
            reserved = _amount(cell[1], resource.get("total"))
            amounts[cell] = amounts.get(cell, Amount()).plus(Amount(reserved))
    return UsageNode(
        "localqueue" if is_local else "clusterqueue",
        text_at(queue, ("metadata", "name")),
        as_int(value_at(queue, ("status", "pendingWorkloads"))),
        as_int(value_at(queue, ("status", "reservingWorkloads"))),
        amounts,
    )


def _quotas(obj: JsonObject | None) -> Iterable[tuple[Cell, int]]:
    for group in objects_at(obj, ("spec", "resourceGroups")):
        for flavor in objects_at(group, ("flavors",)):
            for resource in objects_at(flavor, ("resources",)):
                name = text_at(resource, ("name",))
                yield (text_at(flavor, ("name",)), name), _amount(name, resource.get("nominalQuota"))


def _amount(resource: str, value: Any) -> int:
    try:
        return parse_amount(resource, value or 0)
    except (QuantityError, TypeError):
        return 0


def usage_rows(roots: Sequence[UsageNode], *, by_flavor: bool) -> tuple[list[str], list[list[str]]]:
    """Return titles and rows of the table of a tree, with a column for each resource, or also each flavor."""
    rows: list[tuple[str, UsageNode, Mapping[str, Amount]]] = []

    def add(node: UsageNode, first: str, further: str) -> None:
        rows.append((f"{first}{node.kind}/{node.name}", node, _by_column(node.amounts, by_flavor=by_flavor)))
        for index, child in enumerate(node.children):
            is_last = index == len(node.children) - 1
            add(child, further + ("└─ " if is_last else "├─ "), further + ("   " if is_last else "│  "))

    for root in roots:
        add(root, "", "")
    columns = sorted({column for _, _, amounts in rows for column in amounts})
    titles = ["NAME", "PENDING", "RESERVING", *(column.upper() for column in columns)]
    return titles, [
        [
            name,
            str(node.pending),
            str(node.reserving),
            *(_text(column, amounts.get(column)) for column in columns),
        ]
        for name, node, amounts in rows
    ]


def _by_column(amounts: Mapping[Cell, Amount], *, by_flavor: bool) -> dict[str, Amount]:
    found: dict[str, Amount] = {}
    for (flavor, resource), amount in amounts.items():
        column = f"{resource} ({flavor})" if by_flavor else resource
        found[column] = found.get(column, Amount()).plus(amount)
    return found


def _text(column: str, amount: Amount | None) -> str:
    if amount is None:
        return ""
    resource = column.partition(" ")[0]
    reserved = format_amount(resource, amount.reserved)
    return reserved if amount.quota is None else f"{reserved}/{format_amount(resource, amount.quota)}"


def tree_document(node: UsageNode) -> dict[str, Any]:
    """Return a node and what is below it, for JSON and YAML."""
    amounts = [
        {
            "flavor": flavor,
            "resource": resource,
            "reserved": format_amount(resource, amount.reserved),
            **({} if amount.quota is None else {"nominalQuota": format_amount(resource, amount.quota)}),
        }
        for (flavor, resource), amount in sorted(node.amounts.items())
    ]
    document: dict[str, Any] = {
        "kind": node.kind,
        "name": node.name,
        "pendingWorkloads": node.pending,
        "reservingWorkloads": node.reserving,
        "amounts": amounts,
    }
    if node.children:
        document["children"] = [*map(tree_document, node.children)]
    return document
