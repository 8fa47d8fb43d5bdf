"""The controller that ungates pods with a topology assignment: it gives each its domain and removes its gate.

It reconciles the pods of one Workload, or of one chain of slices, at a time. Each pod gets its domain in one
patch, which removes the gate and fails if the pod has changed. After a crash between the admission and the
patches, the next manager decides again from the stored pods and Workloads (semantics, Ungater).

A pod that was patched without a known result is read before the next decision about its Workload. Otherwise
this decision could give the domain of the pod to another pod.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Iterator
from typing import Final, NamedTuple

from admitq.controllers.context import Context
from admitq.controllers.controller_specs import ControllerSpec, StartCondition, Watch, WhenServed
from admitq.controllers.indexes import (
    BY_CHAIN,
    BY_TOPOLOGY_ASSIGNMENT,
    namespaced_index_value,
    topology_assignment_index,
)
from admitq.controllers.plan import RemoveSchedulingGate, execute_plan, plan_of, record_gate_wait
from admitq.controllers.pods.topology_pods import (
    PLACED_PODS,
    find_placed_workload,
    key_of_chain,
    list_unhealthy_nodes,
    placed_pod_indexes,
    pod_chain_index,
    select_members,
    trim_placed_pod,
)
from admitq.controllers.pods.topology_slots import (
    InvalidIndexOffset,
    PlacedPod,
    PodState,
    place_pods,
    read_pod_state,
    read_slots,
)
from admitq.integrations.families import pods
from admitq.integrations.ownership import is_group_workload
from admitq.runtime.errors import ApiError, PermanentRejection
from admitq.runtime.store import Key, ObjectChange
from admitq_api.json_objects import JsonObject
from admitq_api.labels import Names
from admitq_api.stored_fields import MalformedField

TOPOLOGY_UNGATER: Final = "topologyungater"
"""Name of the controller."""

CONCERN: Final = "topology-ungater"
WORKERS: Final = 4
BATCH_SECONDS: Final = 1.0
"""The minimum time between two decisions about a Workload because of its pods."""

_PARALLEL_CALLS: Final = 32
_MAX_PODS: Final = 2000
"""The maximum number of pods to patch in one reconcile, which must end before its deadline."""
_READ_AT_A_TIME: Final = 250


class UngatingDecision(NamedTuple):
    """The gated pods that get their domain now, and why others cannot get one; empty without a problem."""

    placed: list[PlacedPod]
    problem: str = ""


def find_pods_to_ungate(workload: JsonObject, members: Iterable[PodState], names: Names) -> UngatingDecision:
    """Return which of the pods of a Workload are ungated, and into which domains."""
    by_podset: dict[str, list[PodState]] = {}
    for pod in members:
        by_podset.setdefault(pod.podset, []).append(pod)
    waiting = {name for name, listed in by_podset.items() if any(pod.is_gated for pod in listed)}
    if not waiting:
        return UngatingDecision([])
    unhealthy = frozenset(list_unhealthy_nodes(workload))
    try:
        slots_of_podsets = read_slots(workload, names)
    except MalformedField as error:
        return UngatingDecision([], str(error))
    found: list[PlacedPod] = []
    problem = ""
    for slots in slots_of_podsets:
        if slots.name in waiting:
            try:
                found += place_pods(slots, by_podset[slots.name], unhealthy)
            except InvalidIndexOffset as error:
                problem = str(error)
    excluded = [item for item in found if item.is_excluded]
    if not excluded:
        return UngatingDecision(found, problem)
    problem = (
        f"pod {excluded[0].state.pod['metadata']['name']}: its node selector excludes its topology domain"
    )
    placed = [item for item in found if not item.is_excluded]
    return UngatingDecision(placed, problem)


# --- watching -------------------------------------------------------------------------------------


class TopologyUngater:
    """Reconciles the pods of one Workload or chain of slices at a time."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._pod_chains = pod_chain_index(ctx.names)
        self._workload_chains = topology_assignment_index(ctx.names)
        self._unconfirmed: dict[Key, set[str]] = {}
        """Names of pods with a patch that has no known result."""

    async def reconcile(self, key: Key) -> float | None:
        """Ungate the pods that have a domain; returns 0 if there are more than are patched at a time.

        Raises:
            ApiError: a read or a write failed. Other pods may have been patched.
            PermanentRejection: the Workload or its pods are invalid.
        """
        ctx, chain = self._ctx, namespaced_index_value(*key)
        workloads = ctx.stores.of(ctx.kinds.workloads).by_index(BY_TOPOLOGY_ASSIGNMENT, chain)
        workload = find_placed_workload(workloads, ctx.names)
        if workload is None:
            self._unconfirmed.pop(key, None)
            return None
        await self._confirm(key)
        decision = find_pods_to_ungate(workload, await self._read_pods(workload, chain), ctx.names)
        for start in range(0, min(len(decision.placed), _MAX_PODS), _PARALLEL_CALLS):
            batch = decision.placed[start : min(start + _PARALLEL_CALLS, _MAX_PODS)]
            await _run_all(self._ungate(key, workload, placed) for placed in batch)
        if len(decision.placed) > _MAX_PODS:
            return 0.0
        if decision.problem:
            raise PermanentRejection(decision.problem)
        return None

    async def _read_pods(self, workload: JsonObject, chain: str) -> list[PodState]:
        """Return the states of the stored pods of a chain. Other tasks run while many pods are read."""
        store, names = self._ctx.stores.find(PLACED_PODS), self._ctx.names
        if store is None:
            return []
        is_member = select_members(workload, names)
        states: list[PodState] = []
        for number, pod_key in enumerate(store.keys_by_index(BY_CHAIN, chain), 1):
            pod = store.get(*pod_key)
            if pod is not None and is_member(pod) and (state := read_pod_state(pod, names)) is not None:
                states.append(state)
            if number % _READ_AT_A_TIME == 0:
                await asyncio.sleep(0)
        return states

    async def _ungate(self, key: Key, workload: JsonObject, placed: PlacedPod) -> None:
        ctx, pod, gate = self._ctx, placed.state.pod, self._ctx.names.topology_gate
        is_group = is_group_workload(workload, ctx.names)
        unconfirmed = self._unconfirmed.setdefault(key, set())
        unconfirmed.add(pod["metadata"]["name"])
        await execute_plan(
            ctx,
            plan_of(
                RemoveSchedulingGate(PLACED_PODS, pod, gate, CONCERN, placed.node_selector),
                record_gate_wait(gate, pod, workload, ctx.clock(), is_group=is_group),
            ),
        )
        unconfirmed.discard(pod["metadata"]["name"])

    async def _confirm(self, key: Key) -> None:
        """Read the pods with a patch that has no known result."""
        unconfirmed = sorted(self._unconfirmed.get(key, ()))
        for start in range(0, len(unconfirmed), _PARALLEL_CALLS):
            batch = unconfirmed[start : start + _PARALLEL_CALLS]
            await _run_all(self._read(key, name) for name in batch)
        self._unconfirmed.pop(key, None)

    async def _read(self, key: Key, name: str) -> None:
        try:
            pod = await self._ctx.client.get(PLACED_PODS, name, namespace=key.namespace)
        except ApiError as error:
            if not error.is_not_found:
                raise
        else:
            if not pods.has_ended(pod):
                self._ctx.observe_write(PLACED_PODS, pod)
        self._unconfirmed[key].discard(name)

    def when_served(self, *beside: ControllerSpec) -> WhenServed:
        """Return the record that describes this controller, and those ``beside`` it with the same pods."""
        names, workloads = self._ctx.names, self._ctx.kinds.workloads
        spec = ControllerSpec(
            name=TOPOLOGY_UNGATER,
            reconcile=self.reconcile,
            watches=(
                Watch(PLACED_PODS, self._keys_of_pod, refreshes=lambda _: True),
                Watch(workloads, self._keys_of_workload),
            ),
            workers=WORKERS,
            refresh_interval=BATCH_SECONDS,
        )
        return WhenServed(
            PLACED_PODS,
            placed_pod_indexes(names),
            spec,
            beside,
            known=self._known_keys,
            label_selector=names.podset,
            field_selector=pods.NOT_ENDED,
            transform=lambda pod: trim_placed_pod(pod, names),
            # So clusters without topologies have no watch of all pods of jobs.
            start_condition=StartCondition(workloads, self._has_assignments),
        )

    def _assigned_chains(self) -> tuple[str, ...]:
        return self._ctx.stores.of(self._ctx.kinds.workloads).index_values(BY_TOPOLOGY_ASSIGNMENT)

    def _has_assignments(self) -> bool:
        return bool(self._assigned_chains())

    def _known_keys(self) -> Iterator[Key]:
        return map(key_of_chain, self._assigned_chains())

    def _keys_of_workload(self, change: ObjectChange) -> Iterator[Key]:
        return map(key_of_chain, self._workload_chains(change.object))

    def _keys_of_pod(self, change: ObjectChange) -> Iterator[Key]:
        """Yield the key of a pod that waits for a domain, or that may leave its domain to another pod."""
        pod = change.object
        gate = self._ctx.names.topology_gate
        if pods.has_gate(pod, gate) or change.kind == "deleted" or pods.is_being_deleted(pod):
            workloads = self._ctx.stores.of(self._ctx.kinds.workloads)
            for chain in self._pod_chains(pod):
                if workloads.keys_by_index(BY_TOPOLOGY_ASSIGNMENT, chain):
                    yield key_of_chain(chain)


async def _run_all(calls: Iterable[Awaitable[None]]) -> None:
    """Run calls in parallel, all to their end, and raise the first error.

    Raises:
        Exception: that of the first call that failed.
    """
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
