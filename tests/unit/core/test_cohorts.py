import pytest

from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import CohortTrees, Node, declared_quotas
from admitq.core.model import FlavorQuotas, ResourceGroup, ResourceQuota

CPU = FlavorResource("default", "cpu")
GPU = FlavorResource("default", "gpu")


def quotas(nominal: int) -> dict[FlavorResource, ResourceQuota]:
    return {CPU: ResourceQuota(nominal)}


def heights(forest: CohortTrees) -> dict[str, int]:
    return {name: node.height.value for name, node in (forest.cohorts | forest.cluster_queues).items()}


def test_height_counts_cohorts_below() -> None:
    forest = CohortTrees()
    forest.put_cohort("childless", "root", {})
    assert heights(forest) == {"childless": 0, "root": 1}
    forest.put_cohort("left", "root", {})
    forest.put_cluster_queue("q", "left", {})
    assert heights(forest) == {"childless": 0, "left": 1, "root": 2, "q": 0}
    forest.put_cluster_queue("q", "root", {})
    assert heights(forest) == {"childless": 0, "left": 0, "root": 1, "q": 0}


def test_an_implicit_cohort_lasts_while_it_is_named() -> None:
    forest = CohortTrees()
    forest.put_cluster_queue("q", "org", quotas(1))
    forest.put_cohort("inner", "org", {})
    assert set(forest.cohorts) == {"org", "inner"}
    forest.put_cluster_queue("q", None, quotas(1))
    assert set(forest.cohorts) == {"org", "inner"}
    forest.drop_cohort("inner")
    assert set(forest.cohorts) == set()


def test_a_cohort_without_its_object_goes_on_without_quota_while_it_is_named() -> None:
    forest = CohortTrees()
    forest.put_cohort("org", "root", quotas(5))
    forest.put_cluster_queue("q", "org", quotas(1))
    forest.drop_cohort("org")
    org = forest.cohorts["org"]
    assert (org.cells[CPU].subtree, org.parent, set(forest.cohorts)) == (1, None, {"org"})


def test_quota_and_usage_move_with_a_subtree() -> None:
    forest = CohortTrees()
    forest.put_cohort("south", "world", {})
    forest.put_cohort("team", "north", quotas(2))
    queue = forest.put_cluster_queue("q", "team", quotas(3))
    forest.add_usage(queue, ((CPU, 4),))

    def numbers(name: str) -> tuple[int, int, int]:
        cell = forest.cohorts[name].cells[CPU]
        return cell.subtree, cell.usage, cell.reserved

    assert numbers("north") == (5, 4, 4)
    forest.put_cohort("team", "south", quotas(2))
    assert numbers("south") == numbers("world") == (5, 4, 4)
    assert "north" not in forest.cohorts
    forest.put_cohort("world", None, quotas(1))
    forest.put_cohort("team", None, quotas(2))
    assert numbers("world") == (1, 0, 0)


def test_cells_that_nothing_speaks_of_are_dropped() -> None:
    forest = CohortTrees()
    queue = forest.put_cluster_queue("q", "org", {CPU: ResourceQuota(1), GPU: ResourceQuota(1)})
    forest.add_usage(queue, ((GPU, 1),))
    forest.put_cluster_queue("q", "org", quotas(1))
    assert set(forest.cohorts["org"].cells) == {CPU, GPU}
    forest.remove_usage(queue, ((GPU, 1),))
    assert set(queue.cells) == set(forest.cohorts["org"].cells) == {CPU}


def test_cells_go_with_the_quota_that_made_them() -> None:
    both = {CPU: ResourceQuota(1), GPU: ResourceQuota(1)}
    forest = CohortTrees()
    mover = forest.put_cluster_queue("mover", "org", both)
    forest.put_cluster_queue("stayer", "org", quotas(1))
    forest.put_cluster_queue("mover", "org", quotas(1))
    assert set(mover.cells) == set(forest.cohorts["org"].cells) == {CPU}
    forest.put_cluster_queue("mover", "org", both)
    forest.put_cluster_queue("mover", "elsewhere", both)
    assert set(forest.cohorts["org"].cells) == {CPU}


def test_usage_counts_where_no_quota_is_declared() -> None:
    forest = CohortTrees()
    queue = forest.put_cluster_queue("q", "org", quotas(1))
    forest.add_usage(queue, ((GPU, 2),))
    assert [queue.cells[GPU].usage, forest.cohorts["org"].cells[GPU].usage] == [2, 2]


@pytest.mark.parametrize("last", ["a", "b", "c"])
def test_a_circle_is_cut_the_same_way_whichever_edge_closes_it(last: str) -> None:
    parents = {"a": "b", "b": "c", "c": "a"}
    forest = CohortTrees()
    for name in sorted(parents, key=lambda name: (name == last, name)):
        forest.put_cohort(name, parents[name], quotas(1))
    queue = forest.put_cluster_queue("q", "a", quotas(1))
    assert queue.is_cyclic
    assert {name: node.parent for name, node in forest.cohorts.items()} == dict.fromkeys(parents)
    assert forest.cohorts["c"].cells[CPU].subtree == 1


def test_what_hangs_below_a_circle_is_cyclic_and_what_is_elsewhere_is_not() -> None:
    forest = CohortTrees()
    forest.put_cohort("a", "b", {})
    forest.put_cohort("b", "a", {})
    forest.put_cohort("below", "a", {})
    assert forest.put_cluster_queue("q", "below", {}).is_cyclic
    assert not forest.put_cluster_queue("other", "elsewhere", {}).is_cyclic


def test_a_broken_circle_is_put_together_as_declared() -> None:
    forest = CohortTrees()
    forest.put_cohort("a", "b", quotas(1))
    forest.put_cohort("b", "c", quotas(1))
    forest.put_cohort("c", "a", quotas(1))
    forest.put_cohort("b", None, quotas(1))
    assert [node.name for node in forest.cohorts["c"].ancestors] == ["a", "b"]
    assert forest.cohorts["b"].cells[CPU].subtree == 3
    assert not forest.cohorts["c"].is_cyclic
    # Whatever happens elsewhere, what is put together is put together once.
    forest.put_cohort("elsewhere", "far", {})
    forest.put_cohort("elsewhere", None, {})
    assert (forest.cohorts["a"].cells[CPU].subtree, forest.cohorts["b"].cells[CPU].subtree) == (2, 3)


def test_a_cohort_that_names_itself_can_be_dropped() -> None:
    forest = CohortTrees()
    assert forest.put_cohort("a", "a", {}).is_cyclic
    forest.drop_cohort("a")
    assert forest.cohorts == {}


def test_of_two_circles_that_which_is_broken_alone_is_put_together() -> None:
    forest = CohortTrees()
    for name, parent in (("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")):
        forest.put_cohort(name, parent, quotas(1))
    forest.put_cohort("b", None, quotas(1))
    assert {name: node.is_cyclic for name, node in forest.cohorts.items()} == {
        "a": False,
        "b": False,
        "c": True,
        "d": True,
    }
    assert forest.cohorts["b"].cells[CPU].subtree == 2


def names_waiting(node: Node) -> list[str]:
    return node.root.waiting.names


def test_waiting_cluster_queues_are_indexed_in_their_tree_alone() -> None:
    forest = CohortTrees()
    forest.put_cohort("left", "root", {})
    near = forest.put_cluster_queue("near", "left", {})
    forest.put_cluster_queue("far", "root", {})
    alone = forest.put_cluster_queue("alone", None, {})
    for registration in forest.registrations.values():
        registration.set_any_return(waits=True)
    assert names_waiting(near) == ["far", "near"]
    assert names_waiting(alone) == ["alone"]


def test_waiting_cluster_queues_move_with_their_tree() -> None:
    forest = CohortTrees()
    forest.put_cohort("left", "root", {})
    near = forest.put_cluster_queue("near", "left", {})
    far = forest.put_cluster_queue("far", "root", {})
    for registration in forest.registrations.values():
        registration.set_any_return(waits=True)
    forest.put_cohort("left", None, {})
    assert (names_waiting(near), names_waiting(far)) == (["near"], ["far"])
    forest.put_cohort("left", "root", {})
    assert names_waiting(far) == ["far", "near"]


def test_waiting_cluster_queue_is_indexed_in_the_tree_that_it_moved_to() -> None:
    forest = CohortTrees()
    forest.put_cluster_queue("mover", "north", {})
    stayer = forest.put_cluster_queue("stayer", "north", {})
    other = forest.put_cluster_queue("other", "south", {})
    forest.registrations["mover"].set_waiting(waits=True)
    forest.put_cluster_queue("mover", "south", {})
    assert (names_waiting(stayer), names_waiting(other)) == ([], ["mover"])


def test_need_is_met_by_quota_of_the_tree_that_the_cluster_queue_moved_to() -> None:
    forest = CohortTrees()
    mover = forest.put_cluster_queue("mover", "north", quotas(1))
    other = forest.put_cluster_queue("other", "south", quotas(9))
    forest.add_usage(other, ((CPU, 9),))
    registration = forest.registrations["mover"]
    registration.set_need(CPU, 5)
    forest.put_cluster_queue("mover", "south", quotas(1))
    forest.remove_usage(other, ((CPU, 4),))
    assert mover.root.waiting.met_by_return(other.cells[CPU]) == [registration]


def test_deleted_cluster_queue_is_indexed_in_no_tree() -> None:
    forest = CohortTrees()
    forest.put_cluster_queue("deleted", "org", quotas(1))
    stayer = forest.put_cluster_queue("stayer", "org", quotas(1))
    forest.registrations["deleted"].set_any_return(waits=True)
    forest.drop_cluster_queue("deleted")
    assert (names_waiting(stayer), list(forest.registrations)) == ([], ["stayer"])


@pytest.mark.parametrize(("greatest", "smaller"), [((70, 30), (5, 3)), ((30, 70), (3, 5))])
def test_changes_after_a_restart_differ_from_all_before_it(
    greatest: tuple[int, int], smaller: tuple[int, int]
) -> None:
    forest = CohortTrees()
    one = forest.put_cluster_queue("one", "north", quotas(1))
    two = forest.put_cluster_queue("two", "south", quotas(1))
    forest.restore_counts(one, *greatest)
    forest.restore_counts(two, *smaller)
    for node in (one, two):
        forest.touch(node)
        forest.count_progress(node.root)
        assert min(node.root.generation, node.root.progress) > 70


def test_changes_of_usage_and_progress_are_counted_one_by_one() -> None:
    forest = CohortTrees()
    assert forest.changes == 0
    node = forest.put_cluster_queue("q", "org", quotas(1))
    before = forest.changes
    forest.add_usage(node, ((CPU, 1),))
    assert (node.root.generation, forest.changes) == (before + 1, before + 1)
    forest.count_progress(node.root)
    assert (node.root.progress, forest.changes) == (before + 2, before + 2)


def test_a_change_is_counted_in_its_tree_alone() -> None:
    forest = CohortTrees()
    one = forest.put_cluster_queue("one", "north", quotas(1))
    two = forest.put_cluster_queue("two", "south", quotas(1))
    before = (one.root.generation, two.root.generation)
    forest.add_usage(one, ((CPU, 1),))
    assert one.root.generation > before[0]
    assert two.root.generation == before[1]


def test_what_is_covered_and_not_stated_is_a_quota_of_nothing() -> None:
    group = ResourceGroup(("cpu", "gpu"), (FlavorQuotas("default", (("cpu", ResourceQuota(3)),)),))
    assert declared_quotas((group,)) == {CPU: ResourceQuota(3), GPU: ResourceQuota(0)}


def test_a_root_counts_changes_of_quota_and_shape_but_not_of_usage() -> None:
    forest = CohortTrees()
    node = forest.put_cluster_queue("a", "left", {CPU: ResourceQuota(1)})
    seen = [node.root.quota_generation]

    def differs() -> bool:
        seen.append(node.root.quota_generation)
        return seen[-1] not in seen[:-1]

    forest.add_usage(node, ((CPU, 1),))
    assert not differs()
    forest.put_cohort("left", "root", {})
    assert differs()
    forest.put_cohort("root", None, {CPU: ResourceQuota(3)})
    assert differs()
    forest.put_cohort("left", None, {})
    assert differs()
