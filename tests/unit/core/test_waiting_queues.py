"""Events that end the waiting of lanes in other ClusterQueues of the cohort tree."""

from admitq.core.model import FlavorQuotas, PodSet, ResourceGroup, ResourceQuota
from admitq.core.requests import template_requesting
from tests.unit.core.small_cluster import SmallCluster, queue


def _covers(**quotas: int) -> tuple[ResourceGroup, ...]:
    amounts = tuple((resource, ResourceQuota(amount)) for resource, amount in quotas.items())
    return (ResourceGroup(tuple(quotas), (FlavorQuotas("default", amounts),)),)


def _gpus(count: int) -> tuple[PodSet, ...]:
    return (PodSet("main", 1, template_requesting({"gpu": count})),)


def test_return_of_quota_that_its_queue_no_longer_covers_ends_waiting_in_tree() -> None:
    cluster = SmallCluster()
    cluster.put(
        queue("former", cohort="org", resource_groups=_covers(cpu=1, gpu=0)),
        queue("other", cohort="org", resource_groups=_covers(gpu=2)),
    )
    cluster.submit("running", "former", pod_sets=_gpus(2))
    cluster.run("running")
    cluster.put(queue("former", cohort="org", resource_groups=_covers(cpu=1)))
    cluster.submit("waits", "other", pod_sets=_gpus(1))
    cluster.run()
    assert cluster.is_quiet
    cluster.finish("running")
    cluster.run("waits")
