"""The core's benchmark with a simulated API server that answers few writes a second."""

from admitq.core.instructions import Instruction, Preempt, ReserveQuota
from benchmarks.core_rationed import RationedApiServer, one_cohort


def test_all_workloads_finish_and_each_run_gets_the_same_decisions() -> None:
    shape = one_cohort(0.05)
    decided: list[list[Instruction]] = []
    results = []
    for _ in range(2):
        instructions: list[Instruction] = []
        results.append(RationedApiServer(shape, 16, instructions.extend).run())
        decided.append([each for each in instructions if isinstance(each, ReserveQuota | Preempt)])
    assert decided[0] == decided[1]
    first, second = results
    assert first.finished == shape.workloads == 400
    assert first.preemptions > 0, "queues reclaim their quota"
    assert first.admissions >= shape.workloads
    assert (first.cycles, first.virtual_s) == (second.cycles, second.virtual_s)


def test_fewer_cycles_run_if_more_writes_come_before_each() -> None:
    shape = one_cohort(0.025)
    cycles = [RationedApiServer(shape, writes).run().cycles for writes in (8, 32)]
    assert cycles[1] < cycles[0]
