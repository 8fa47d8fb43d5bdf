"""The watches of the controllers that protect objects from deletion while other objects use them."""

from collections.abc import Callable, Iterable

from admitq.controllers.context import Context
from admitq.controllers.controller_specs import ControllerSpec, Watch
from admitq.controllers.in_use_protection import InUseProtectionController
from admitq.controllers.indexes import (
    BY_CHECK,
    BY_FLAVOR,
    BY_TOPOLOGY,
    checks_of,
    flavors_of,
    topologies_of,
)
from admitq.controllers.key_maps import key_of_change, map_to_named
from admitq.runtime.resources import Resource
from admitq_api.json_objects import JsonObject


def _in_use_controller(
    ctx: Context,
    resource: Resource,
    users: Resource,
    index: str,
    named: Callable[[JsonObject], Iterable[str]],
) -> ControllerSpec:
    """Return the controller that keeps objects of one kind while objects of another kind name them.

    Args:
        ctx: the context of the controllers.
        resource: the kind of the protected objects.
        users: the kind of the objects that name them.
        index: the index of ``users`` by the names that they contain.
        named: returns the names that an object of ``users`` contains.
    """

    def is_in_use(name: str) -> bool:
        return bool(ctx.stores.of(users).keys_by_index(index, name))

    return ControllerSpec(
        name=resource.kind.lower(),
        reconcile=InUseProtectionController(ctx, resource, is_in_use).reconcile,
        watches=(Watch(resource, key_of_change), Watch(users, map_to_named(named))),
    )


def in_use_controllers(ctx: Context) -> tuple[ControllerSpec, ...]:
    """Return the controllers that protect flavors, admission checks and topologies."""
    kinds = ctx.kinds
    flavors, checks = kinds.resource_flavors, kinds.admission_checks
    return (
        _in_use_controller(ctx, flavors, kinds.cluster_queues, BY_FLAVOR, flavors_of),
        _in_use_controller(ctx, checks, kinds.cluster_queues, BY_CHECK, checks_of),
        _in_use_controller(ctx, kinds.topologies, flavors, BY_TOPOLOGY, topologies_of),
    )
