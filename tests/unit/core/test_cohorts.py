import pytest

from admitq.core.amounts import FlavorResource
from admitq.core.cohorts import CohortTrees, Node, declared_quotas
from admitq.core.model import FlavorQuotas, ResourceGroup, ResourceQuota
from admitq.core.statuses import cohort_status

CPU = FlavorResource("default", "cpu")
GPU = FlavorResource("default", "gpu")


def quotas(nominal: int) -> dict[FlavorResource, ResourceQuota]:
    return {CPU: ResourceQuota(nominal)}


def heights(trees: CohortTrees) -> dict[str, int]:
    return {name: node.height.value for name, node in (trees.cohorts | trees.cluster_queues).items()}


def test_height_is_number_of_cohort_levels_below() -> None:
    trees = CohortTrees()
    trees.put_cohort("childless", "root", {})
    assert heights(trees) == {"childless": 0, "root": 1}
    trees.put_cohort("left", "root", {})
    trees.put_cluster_queue("q", "left", {})
    assert heights(trees) == {"childless": 0, "left": 1, "root": 2, "q": 0}
    trees.put_cluster_queue("q", "root", {})
    assert heights(trees) == {"childless": 0, "left": 0, "root": 1, "q": 0}


def test_implicit_cohort_exists_while_it_is_referenced() -> None:
    trees = CohortTrees()
    trees.put_cluster_queue("q", "org", quotas(1))
    trees.put_cohort("inner", "org", {})
    assert set(trees.cohorts) == {"org", "inner"}
    trees.put_cluster_queue("q", None, quotas(1))
    assert set(trees.cohorts) == {"org", "inner"}
    trees.drop_cohort("inner")
    assert set(trees.cohorts) == set()


def test_deleted_cohort_has_no_quota_and_exists_while_it_is_referenced() -> None:
    trees = CohortTrees()
    trees.put_cohort("org", "root", quotas(5))
    trees.put_cluster_queue("q", "org", quotas(1))
    trees.drop_cohort("org")
    org = trees.cohorts["org"]
    assert (org.cells[CPU].subtree_quota, org.parent, set(trees.cohorts)) == (1, None, {"org"})


def test_quota_and_usage_move_with_subtree() -> None:
    trees = CohortTrees()
    trees.put_cohort("south", "world", {})
    trees.put_cohort("team", "north", quotas(2))
    queue = trees.put_cluster_queue("q", "team", quotas(3))
    trees.add_usage(queue, ((CPU, 4),))

    def numbers(name: str) -> tuple[int, int, int]:
        node = trees.cohorts[name]
        reserved = dict(cohort_status(node).subtree_reservations)
        return node.cells[CPU].subtree_quota, node.cells[CPU].usage, reserved[CPU]

    assert numbers("north") == (5, 4, 4)
    trees.put_cohort("team", "south", quotas(2))
    assert numbers("south") == numbers("world") == (5, 4, 4)
    assert "north" not in trees.cohorts
    trees.put_cohort("world", None, quotas(1))
    trees.put_cohort("team", None, quotas(2))
    assert numbers("world") == (1, 0, 0)


def test_cell_without_quota_and_usage_is_dropped() -> None:
    trees = CohortTrees()
    queue = trees.put_cluster_queue("q", "org", {CPU: ResourceQuota(1), GPU: ResourceQuota(1)})
    trees.add_usage(queue, ((GPU, 1),))
    trees.put_cluster_queue("q", "org", quotas(1))
    assert set(trees.cohorts["org"].cells) == {CPU, GPU}
    trees.remove_usage(queue, ((GPU, 1),))
    assert set(queue.cells) == set(trees.cohorts["org"].cells) == {CPU}


def test_cell_is_dropped_when_its_quota_is_removed_or_moved() -> None:
    both = {CPU: ResourceQuota(1), GPU: ResourceQuota(1)}
    trees = CohortTrees()
    mover = trees.put_cluster_queue("mover", "org", both)
    trees.put_cluster_queue("stayer", "org", quotas(1))
    trees.put_cluster_queue("mover", "org", quotas(1))
    assert set(mover.cells) == set(trees.cohorts["org"].cells) == {CPU}
    trees.put_cluster_queue("mover", "org", both)
    trees.put_cluster_queue("mover", "elsewhere", both)
    assert set(trees.cohorts["org"].cells) == {CPU}


def test_usage_is_counted_where_no_quota_is_declared() -> None:
    trees = CohortTrees()
    queue = trees.put_cluster_queue("q", "org", quotas(1))
    trees.add_usage(queue, ((GPU, 2),))
    assert [queue.cells[GPU].usage, trees.cohorts["org"].cells[GPU].usage] == [2, 2]


@pytest.mark.parametrize("last", ["a", "b", "c"])
def test_cyclic_cohorts_lose_all_parents_whichever_edge_closes_the_circle(last: str) -> None:
    parents = {"a": "b", "b": "c", "c": "a"}
    trees = CohortTrees()
    for name in sorted(parents, key=lambda name: (name == last, name)):
        trees.put_cohort(name, parents[name], quotas(1))
    queue = trees.put_cluster_queue("q", "a", quotas(1))
    assert queue.is_cyclic
    assert {name: node.parent for name, node in trees.cohorts.items()} == dict.fromkeys(parents)
    assert trees.cohorts["c"].cells[CPU].subtree_quota == 1


def test_cluster_queue_is_cyclic_only_below_cyclic_cohorts() -> None:
    trees = CohortTrees()
    trees.put_cohort("a", "b", {})
    trees.put_cohort("b", "a", {})
    trees.put_cohort("below", "a", {})
    assert trees.put_cluster_queue("q", "below", {}).is_cyclic
    assert not trees.put_cluster_queue("other", "elsewhere", {}).is_cyclic


def test_cohorts_regain_declared_parents_when_their_circle_is_broken() -> None:
    trees = CohortTrees()
    trees.put_cohort("a", "b", quotas(1))
    trees.put_cohort("b", "c", quotas(1))
    trees.put_cohort("c", "a", quotas(1))
    trees.put_cohort("b", None, quotas(1))
    assert [node.name for node in trees.cohorts["c"].ancestors] == ["a", "b"]
    assert trees.cohorts["b"].cells[CPU].subtree_quota == 3
    assert not trees.cohorts["c"].is_cyclic
    # A change of another tree does not add the quota a second time.
    trees.put_cohort("elsewhere", "far", {})
    trees.put_cohort("elsewhere", None, {})
    assert (trees.cohorts["a"].cells[CPU].subtree_quota, trees.cohorts["b"].cells[CPU].subtree_quota) == (
        2,
        3,
    )


def test_cohort_that_is_its_own_parent_can_be_dropped() -> None:
    trees = CohortTrees()
    assert trees.put_cohort("a", "a", {}).is_cyclic
    trees.drop_cohort("a")
    assert trees.cohorts == {}


def test_breaking_one_circle_of_cohorts_leaves_another_cyclic() -> None:
    trees = CohortTrees()
    for name, parent in (("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")):
        trees.put_cohort(name, parent, quotas(1))
    trees.put_cohort("b", None, quotas(1))
    assert {name: node.is_cyclic for name, node in trees.cohorts.items()} == {
        "a": False,
        "b": False,
        "c": True,
        "d": True,
    }
    assert trees.cohorts["b"].cells[CPU].subtree_quota == 2


def names_waiting(node: Node) -> list[str]:
    return node.root.wake_index.names


def test_waiting_cluster_queues_are_indexed_only_in_their_tree() -> None:
    trees = CohortTrees()
    trees.put_cohort("left", "root", {})
    near = trees.put_cluster_queue("near", "left", {})
    trees.put_cluster_queue("far", "root", {})
    alone = trees.put_cluster_queue("alone", None, {})
    for registration in trees.registrations.values():
        registration.set_any_return(waits=True)
    assert names_waiting(near) == ["far", "near"]
    assert names_waiting(alone) == ["alone"]


def test_waiting_cluster_queues_move_with_their_tree() -> None:
    trees = CohortTrees()
    trees.put_cohort("left", "root", {})
    near = trees.put_cluster_queue("near", "left", {})
    far = trees.put_cluster_queue("far", "root", {})
    for registration in trees.registrations.values():
        registration.set_any_return(waits=True)
    trees.put_cohort("left", None, {})
    assert (names_waiting(near), names_waiting(far)) == (["near"], ["far"])
    trees.put_cohort("left", "root", {})
    assert names_waiting(far) == ["far", "near"]


def test_waiting_cluster_queue_is_indexed_in_the_tree_that_it_moved_to() -> None:
    trees = CohortTrees()
    trees.put_cluster_queue("mover", "north", {})
    stayer = trees.put_cluster_queue("stayer", "north", {})
    other = trees.put_cluster_queue("other", "south", {})
    trees.registrations["mover"].set_waiting(waits=True)
    trees.put_cluster_queue("mover", "south", {})
    assert (names_waiting(stayer), names_waiting(other)) == ([], ["mover"])


def test_need_is_met_by_quota_of_the_tree_that_the_cluster_queue_moved_to() -> None:
    trees = CohortTrees()
    mover = trees.put_cluster_queue("mover", "north", quotas(1))
    other = trees.put_cluster_queue("other", "south", quotas(9))
    trees.add_usage(other, ((CPU, 9),))
    registration = trees.registrations["mover"]
    registration.set_need(CPU, 5)
    trees.put_cluster_queue("mover", "south", quotas(1))
    trees.remove_usage(other, ((CPU, 4),))
    assert mover.root.wake_index.met_by_return(other.cells[CPU]) == [registration]


def test_deleted_cluster_queue_is_indexed_in_no_tree() -> None:
    trees = CohortTrees()
    trees.put_cluster_queue("deleted", "org", quotas(1))
    stayer = trees.put_cluster_queue("stayer", "org", quotas(1))
    trees.registrations["deleted"].set_any_return(waits=True)
    trees.drop_cluster_queue("deleted")
    assert (names_waiting(stayer), list(trees.registrations)) == ([], ["stayer"])


@pytest.mark.parametrize(("greatest", "smaller"), [((70, 30), (5, 3)), ((30, 70), (3, 5))])
def test_generations_after_restart_exceed_all_before(
    greatest: tuple[int, int], smaller: tuple[int, int]
) -> None:
    trees = CohortTrees()
    north = trees.put_cluster_queue("one", "north", quotas(1))
    south = trees.put_cluster_queue("two", "south", quotas(1))
    trees.restore_counts(north, *greatest)
    trees.restore_counts(south, *smaller)
    for node in (north, south):
        trees.touch(node)
        trees.count_progress(node.root)
        assert min(node.root.generation, node.root.progress) > 70


def test_each_change_of_usage_or_progress_is_counted() -> None:
    trees = CohortTrees()
    assert trees.changes == 0
    node = trees.put_cluster_queue("q", "org", quotas(1))
    before = trees.changes
    trees.add_usage(node, ((CPU, 1),))
    assert (node.root.generation, trees.changes) == (before + 1, before + 1)
    trees.count_progress(node.root)
    assert (node.root.progress, trees.changes) == (before + 2, before + 2)


def test_change_of_usage_is_counted_only_in_its_tree() -> None:
    trees = CohortTrees()
    north = trees.put_cluster_queue("one", "north", quotas(1))
    south = trees.put_cluster_queue("two", "south", quotas(1))
    before = (north.root.generation, south.root.generation)
    trees.add_usage(north, ((CPU, 1),))
    assert north.root.generation > before[0]
    assert south.root.generation == before[1]


def test_covered_resource_without_stated_quota_has_quota_of_zero() -> None:
    group = ResourceGroup(("cpu", "gpu"), (FlavorQuotas("default", (("cpu", ResourceQuota(3)),)),))
    assert declared_quotas((group,)) == {CPU: ResourceQuota(3), GPU: ResourceQuota(0)}


def test_quota_generation_changes_with_quota_and_shape_but_not_with_usage() -> None:
    trees = CohortTrees()
    node = trees.put_cluster_queue("a", "left", {CPU: ResourceQuota(1)})
    generations = [node.root.quota_generation]

    def differs() -> bool:
        generations.append(node.root.quota_generation)
        return generations[-1] not in generations[:-1]

    trees.add_usage(node, ((CPU, 1),))
    assert not differs()
    trees.put_cohort("left", "root", {})
    assert differs()
    trees.put_cohort("root", None, {CPU: ResourceQuota(3)})
    assert differs()
    trees.put_cohort("left", None, {})
    assert differs()
