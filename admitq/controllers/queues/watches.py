"""The watches of the controllers of queues and cohorts. The core also adds keys to these controllers."""

from admitq.controllers.context import Context, CoreView
from admitq.controllers.controller_names import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE
from admitq.controllers.controller_specs import ControllerSpec, Watch
from admitq.controllers.key_maps import changes_only_status, key_of_change
from admitq.controllers.queues.controllers import (
    WRITE_INTERVAL,
    ClusterQueueController,
    CohortController,
    LocalQueueController,
)
from admitq.controllers.queues.refused_jobs import RefusedJobs
from admitq.core.model import SECOND
from admitq.runtime.resources import Resource


def queue_controllers(ctx: Context, core: CoreView, refused: RefusedJobs) -> tuple[ControllerSpec, ...]:
    """Return the controllers of ClusterQueues, LocalQueues and cohorts."""
    kinds = ctx.kinds
    return (
        ControllerSpec(
            name=CLUSTER_QUEUE,
            reconcile=ClusterQueueController(ctx, core).reconcile,
            watches=_watches(kinds.cluster_queues),
            refresh_interval=WRITE_INTERVAL / SECOND,
        ),
        ControllerSpec(
            name=LOCAL_QUEUE,
            reconcile=LocalQueueController(ctx, core, refused).reconcile,
            watches=_watches(kinds.local_queues),
            refresh_interval=WRITE_INTERVAL / SECOND,
        ),
        ControllerSpec(
            name=COHORT,
            reconcile=CohortController(ctx, core).reconcile,
            watches=_watches(kinds.cohorts),
            refresh_interval=WRITE_INTERVAL / SECOND,
        ),
    )


def _watches(resource: Resource) -> tuple[Watch, ...]:
    # The controller's own writes change only statuses, so they do not cause another reconcile at once.
    return (Watch(resource, key_of_change, refreshes=changes_only_status),)
