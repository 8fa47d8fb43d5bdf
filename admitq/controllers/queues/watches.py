"""The watches of the controllers of queues and cohorts. The core also adds keys to these controllers."""

from admitq.controllers.context import Context, CoreView
from admitq.controllers.controller_names import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE
from admitq.controllers.controller_specs import ControllerSpec, Watch
from admitq.controllers.key_maps import key_of_change
from admitq.controllers.queues.controllers import (
    ClusterQueueController,
    CohortController,
    LocalQueueController,
)
from admitq.controllers.queues.refused_jobs import RefusedJobs


def queue_controllers(ctx: Context, core: CoreView, refused: RefusedJobs) -> tuple[ControllerSpec, ...]:
    """Return the controllers of ClusterQueues, LocalQueues and cohorts."""
    kinds = ctx.kinds
    cluster_queues, local_queues = kinds.cluster_queues, kinds.local_queues
    return (
        ControllerSpec(
            name=CLUSTER_QUEUE,
            reconcile=ClusterQueueController(ctx, core).reconcile,
            watches=(Watch(cluster_queues, key_of_change),),
        ),
        ControllerSpec(
            name=LOCAL_QUEUE,
            reconcile=LocalQueueController(ctx, core, refused).reconcile,
            watches=(Watch(local_queues, key_of_change),),
        ),
        ControllerSpec(
            name=COHORT,
            reconcile=CohortController(ctx, core).reconcile,
            watches=(Watch(kinds.cohorts, key_of_change),),
        ),
    )
