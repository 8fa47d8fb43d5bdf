"""The reference model: a second, slow, obvious implementation of every decision.

It keeps nothing between two questions that it can compute again: holders of quota, what fits, targets and the
order of a cycle all follow from what was observed. It reads the same frozen values as the core (model,
settings, events) and shares no other code with it. So the two agree only if both are right.

=====================  ====================================================================
module                 answers
=====================  ====================================================================
observed               which objects exist, which decisions are unanswered, which workload waits where
requests               the requests of a pod and of a podset
tree                   quota, usage and what is available at every node
assignment             the flavors of a workload
preemption             the targets of classical preemption
fair_sharing           shares, the order of fair sharing and its targets
cycle                  the decisions of one cycle over its heads
second_pass            workloads with quota that wait for places, and when they are evaluated again
usage_accounts         the past usage of LocalQueues, with exact decay
=====================  ====================================================================
"""
