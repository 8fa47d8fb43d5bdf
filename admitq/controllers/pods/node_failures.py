"""The controller of failed nodes: it finds the failed hosts of one Workload, or of one chain of slices.

It decides only while all nodes, and all pods of jobs with a topology, are known: a node that was not listed
yet is not gone.
"""

from collections.abc import Iterator
from typing import Any, Final

from admitq.controllers.context import Context
from admitq.controllers.controller_specs import ControllerSpec, Watch
from admitq.controllers.indexes import (
    BY_ASSIGNED_HOST,
    BY_CHAIN,
    BY_HOST,
    BY_TOPOLOGY_ASSIGNMENT,
    host_of_node,
    namespaced_index_value,
    topology_assignment_index,
)
from admitq.controllers.plan import execute_plan
from admitq.controllers.pods.failed_nodes import (
    NodeFailureCase,
    handle_failed_nodes,
)
from admitq.controllers.pods.topology_pods import (
    BY_AWAITED_HOST,
    BY_CHAIN_IF_WAITING,
    PLACED_PODS,
    find_placed_workload,
    get_awaited_host,
    key_of_chain,
    list_unhealthy_nodes,
    pod_chain_index,
    select_members,
)
from admitq.controllers.pods.topology_slots import read_slots
from admitq.core.topology.domains import HOST_NAME
from admitq.integrations.families import pods
from admitq.runtime.errors import PermanentRejection
from admitq.runtime.kinds import TOPOLOGY_NODES
from admitq.runtime.store import Key, ObjectChange, Store
from admitq.translate.taints import read_tolerations
from admitq.workloads.host_failures import (
    READY,
    NodeFailureSettings,
    TolerationsOfPodSets,
    find_failed_hosts,
    list_hosts,
    read_node_health,
)
from admitq.workloads.template_injection import FlavorMissing, InjectionConflict, pod_set_infos
from admitq.workloads.transitions import is_admitted, is_condition_true
from admitq_api.conditions import ConditionType, is_true
from admitq_api.json_objects import JsonObject, value_at
from admitq_api.stored_fields import MalformedField

NODE_FAILURES: Final = "nodefailures"
"""Name of the controller."""

WORKERS: Final = 4
BATCH_SECONDS: Final = 0.1
"""The minimum time between two decisions about a Workload (semantics, Node failure)."""

_UNTIL_KNOWN_SECONDS: Final = 1.0


class NodeFailureController:
    """Reconciles the failed hosts of one Workload or chain of slices at a time."""

    def __init__(self, ctx: Context, settings: NodeFailureSettings) -> None:
        self._ctx = ctx
        self._settings = settings
        self._pod_chains = pod_chain_index(ctx.names)
        self._workload_chains = topology_assignment_index(ctx.names)

    async def reconcile(self, key: Key) -> float | None:
        """List unhealthy hosts, evict, and end pods that wait; returns after how many seconds to look again.

        Raises:
            ApiError: a write failed.
            PermanentRejection: the Workload or a flavor is invalid.
        """
        ctx, chain = self._ctx, namespaced_index_value(*key)
        workloads = ctx.stores.of(ctx.kinds.workloads).by_index(BY_TOPOLOGY_ASSIGNMENT, chain)
        workload = find_placed_workload(workloads, ctx.names)
        if workload is None:
            return None
        nodes, placed = ctx.stores.of(TOPOLOGY_NODES), ctx.stores.find(PLACED_PODS)
        if placed is None or not (nodes.is_complete and placed.is_complete):
            return _UNTIL_KNOWN_SECONDS
        try:
            return await execute_plan(ctx, handle_failed_nodes(self._case(workload, chain, nodes, placed)))
        except (MalformedField, FlavorMissing, InjectionConflict) as error:
            raise PermanentRejection(str(error)) from error

    def _case(self, workload: JsonObject, chain: str, nodes: Store, placed: Store) -> NodeFailureCase:
        ctx = self._ctx
        slots = read_slots(workload, ctx.names)
        hosts = list_hosts((each.name, each.levels, each.domains) for each in slots)
        failed = find_failed_hosts(
            hosts,
            lambda host: map(read_node_health, nodes.by_index(BY_HOST, host)),
            self._read_tolerations(workload),
        )
        is_member = select_members(workload, ctx.names)
        # Most reconciles find no failure, and jobs may have ten thousand pods.
        members = placed.by_index(BY_CHAIN if failed else BY_CHAIN_IF_WAITING, chain)
        return NodeFailureCase(
            workload,
            ctx.kinds.workloads,
            hosts,
            failed,
            tuple(pod for pod in members if is_member(pod)),
            ctx.names,
            self._settings,
            ctx.clock(),
        )

    def _read_tolerations(self, workload: JsonObject) -> TolerationsOfPodSets:
        """Return the tolerations of each podset, of its flavors and of its admission checks."""
        ctx = self._ctx
        flavors = ctx.stores.of(ctx.kinds.resource_flavors)
        infos = pod_set_infos(
            workload, lambda name: flavors.get("", name), ctx.names, ctx.settings.jobs.marks
        )
        added = {info.name: info.tolerations for info in infos}
        return {
            name: read_tolerations(
                [*value_at(pod_set, ("template", "spec", "tolerations"), []), *added.get(name, ())],
                f"tolerations of podset {name}",
            )
            for pod_set in value_at(workload, ("spec", "podSets"), [])
            if (name := pod_set.get("name", "main"))
        }

    def spec(self) -> ControllerSpec:
        """Return the record that describes this controller. It needs the pods of the ungater."""

        def always(_: ObjectChange) -> bool:
            return True

        return ControllerSpec(
            name=NODE_FAILURES,
            reconcile=self.reconcile,
            watches=(
                Watch(PLACED_PODS, self._keys_of_pod, refreshes=always),
                Watch(TOPOLOGY_NODES, self._keys_of_node, refreshes=always),
                Watch(self._ctx.kinds.workloads, self._keys_of_workload, refreshes=always),
            ),
            workers=WORKERS,
            refresh_interval=BATCH_SECONDS,
        )

    # --- which changes matter ---------------------------------------------------------------------

    def _keys_of_node(self, change: ObjectChange) -> Iterator[Key]:
        """Yield the Workloads on a node that came, went, or changed its readiness or taints."""
        if change.old is not None and change.new is not None and _state(change.old) == _state(change.new):
            return
        hosts = {host for node in (change.old, change.new) if node is not None for host in host_of_node(node)}
        stores = self._ctx.stores
        workloads, placed = stores.of(self._ctx.kinds.workloads), stores.of(PLACED_PODS)
        for host in hosts:
            for workload in workloads.by_index(BY_ASSIGNED_HOST, host):
                yield from map(key_of_chain, self._workload_chains(workload))
            for pod in placed.by_index(BY_AWAITED_HOST, host):
                yield from self._chains_of_pod(pod)

    def _keys_of_workload(self, change: ObjectChange) -> Iterator[Key]:
        if change.old is None or change.new is None or _decided(change.old) != _decided(change.new):
            yield from map(key_of_chain, self._workload_chains(change.object))

    def _keys_of_pod(self, change: ObjectChange) -> Iterator[Key]:
        """Yield the Workload of a pod that ends or waits, unless its host is healthy and assigned to it."""
        pod, names = change.object, self._ctx.names
        waits, ends = get_awaited_host(pod, names), change.kind == "deleted" or pods.is_being_deleted(pod)
        host = pods.get_text(pod, "spec", "nodeSelector", HOST_NAME)
        if not host or not (waits or ends):
            return
        workloads = self._ctx.stores.of(self._ctx.kinds.workloads)
        on_host = frozenset(workloads.keys_by_index(BY_ASSIGNED_HOST, host))
        may_have_failed = self._may_have_failed(host)
        for chain in self._pod_chains(pod):
            of_chain = workloads.keys_by_index(BY_TOPOLOGY_ASSIGNMENT, chain)
            if of_chain and (may_have_failed or on_host.isdisjoint(of_chain)):
                yield key_of_chain(chain)

    def _may_have_failed(self, host: str) -> bool:
        """Whether the host has any of the signs of a failure; some pods may tolerate a taint."""
        nodes = self._ctx.stores.of(TOPOLOGY_NODES).by_index(BY_HOST, host)
        return not nodes or any(
            value_at(node, ("spec", "taints")) or not is_true(value_at(node, ("status", "conditions")), READY)
            for node in nodes
        )

    def _chains_of_pod(self, pod: dict[str, Any]) -> Iterator[Key]:
        workloads = self._ctx.stores.of(self._ctx.kinds.workloads)
        for chain in self._pod_chains(pod):
            if workloads.keys_by_index(BY_TOPOLOGY_ASSIGNMENT, chain):
                yield key_of_chain(chain)


def _state(node: JsonObject) -> tuple[Any, ...]:
    """Return what decides whether a node has failed."""
    return (
        value_at(node, ("status", "conditions")),
        value_at(node, ("spec", "taints")),
        list(host_of_node(node)),
    )


def _decided(workload: JsonObject) -> tuple[Any, ...]:
    """Return what other programs decide about the hosts of a Workload."""
    return (
        value_at(workload, ("status", "admission")),
        list_unhealthy_nodes(workload),
        is_admitted(workload),
        is_condition_true(workload, ConditionType.EVICTED),
    )
