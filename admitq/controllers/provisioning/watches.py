"""The watches of the ProvisioningRequest check controller, and which keys each change reconciles."""

from collections.abc import Iterable, Iterator
from typing import Final

from admitq.controllers.context import Context
from admitq.controllers.controller_specs import ControllerSpec, Watch, WhenServed
from admitq.controllers.indexes import BY_CHECK, BY_CONFIG, BY_OWNER, controller_index_values
from admitq.controllers.key_maps import iterate_states
from admitq.controllers.provisioning.controller import ProvisioningController
from admitq.controllers.provisioning.requests import PROVISIONING_REQUESTS
from admitq.integrations.ownership import get_controller
from admitq.runtime.resources import POD_TEMPLATES
from admitq.runtime.store import Key, ObjectChange
from admitq.workloads.admission_check_reports import listed_checks

PROVISIONING: Final = "provisioningrequest"
"""Name of the controller."""

WORKERS: Final = 4


class _ProvisioningKeys:
    """Maps changes to keys of Workloads and AdmissionChecks."""

    def __init__(self, ctx: Context) -> None:
        self._checks = ctx.stores.of(ctx.kinds.admission_checks)
        self._workloads = ctx.stores.of(ctx.kinds.workloads)

    def itself(self, change: ObjectChange) -> Iterable[Key]:
        """Return the Workload, if it has or had checks."""
        return (change.key,) if any(map(listed_checks, iterate_states(change))) else ()

    def owner(self, change: ObjectChange) -> Iterator[Key]:
        """Yield the Workload that a request or a template was created for."""
        for obj in iterate_states(change):
            reference = get_controller(obj)
            if reference is not None and reference.get("kind") == "Workload":
                yield Key(change.key.namespace, reference.get("name", ""))

    def check(self, change: ObjectChange) -> Iterator[Key]:
        """Yield the check; if its spec changed, also the Workloads that list it."""
        yield change.key
        specs = [obj.get("spec") for obj in iterate_states(change)]
        if len(specs) == 1 or specs[0] != specs[1]:
            yield from self._workloads.keys_by_index(BY_CHECK, change.key.name)

    def config(self, change: ObjectChange) -> Iterator[Key]:
        """Yield the checks that name a config, and the Workloads that list these checks."""
        for check in self._checks.keys_by_index(BY_CONFIG, change.key.name):
            yield check
            yield from self._workloads.keys_by_index(BY_CHECK, check.name)

    def known(self) -> Iterator[Key]:
        """Yield all checks, and all Workloads that list any."""
        for name in self._workloads.index_values(BY_CHECK):
            yield from self._workloads.keys_by_index(BY_CHECK, name)
        yield from self._checks.keys()


def provisioning_controller(ctx: Context) -> WhenServed:
    """Return the controller, which runs while the API server serves ProvisioningRequests."""
    kinds, keys = ctx.kinds, _ProvisioningKeys(ctx)
    spec = ControllerSpec(
        name=PROVISIONING,
        reconcile=ProvisioningController(ctx).reconcile,
        watches=(
            Watch(kinds.workloads, keys.itself),
            Watch(PROVISIONING_REQUESTS, keys.owner),
            Watch(POD_TEMPLATES, keys.owner),
            Watch(kinds.admission_checks, keys.check),
            Watch(kinds.provisioning_request_configs, keys.config),
        ),
        workers=WORKERS,
    )
    return WhenServed(PROVISIONING_REQUESTS, {BY_OWNER: controller_index_values}, spec, known=keys.known)
