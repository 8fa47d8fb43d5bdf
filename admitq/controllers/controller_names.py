"""The names of controllers that other modules refer to."""

from typing import Final

CLUSTER_QUEUE: Final = "clusterqueue"
LOCAL_QUEUE: Final = "localqueue"
COHORT: Final = "cohort"
WORKLOAD: Final = "workload"
"""Controllers that also get keys from the core, when the numbers of their objects change."""

PRIORITY_CLASS: Final = "workloadpriorityclass"
