"""The reference model: a second, slow, obvious implementation of every decision, from the rules alone.

Nothing is kept between two questions that could be computed again: who holds what, quota, fitness, victims
and the order of a cycle all follow from what was observed. It reads the same frozen values as the core
(model, settings, events) and shares no other code with it, so that the two agree only by both being right.

=====================  ====================================================================
module                 answers
=====================  ====================================================================
observed               what exists, what was decided and not answered yet, who waits where
requests               what a pod, and so a podset, asks for
tree                   quota, usage and what is available at every node
assignment             which flavors a workload gets, and how
preemption             whom classical preemption takes
fair_sharing           shares, the order of fair sharing, and whom it preempts
cycle                  what one cycle does with its heads
second_pass            who holds quota and is tried once more, and when
=====================  ====================================================================
"""
