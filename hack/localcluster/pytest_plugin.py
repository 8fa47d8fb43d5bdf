"""Fixtures for tests against the real control plane.

One control plane serves a whole test run. The first test of any xdist worker that needs it starts it. The
main process of the run stops it at the end. If that process is killed, the next run stops its clusters.
`ADMITQ_TEST_CLUSTER=NAME` makes a run use the cluster with this name, and leaves it running.
"""

import asyncio
import gc
import json
import os
import secrets
import shutil
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from admitq.controllers.indexes import resource_of
from admitq.integrations.registry import list_framework_names, load_integrations
from admitq.runtime.client import Client
from admitq.runtime.credentials import load_credentials
from admitq.runtime.errors import ApiError
from admitq.runtime.kinds import kinds_of
from admitq.runtime.resources import NAMESPACES, SERVICE_ACCOUNTS, Resource
from admitq_api.labels import DEFAULT_GROUP, GROUPS, names_for
from localcluster import access, binaries, crds, custom_kinds, preloaded, processes
from localcluster.cluster import LocalCluster, all_clusters, reclaim_orphans
from localcluster.folders import state_folder
from localcluster.installation import PATIENT_LEASE, Installation
from localcluster.locks import exclusive
from localcluster.nodes import NodePool
from localcluster.processes import Process
from localcluster.waiting import eventually

# Enough nodes for tests of several workers at the same time.
_POOL = NodePool(count=20, cpu="32", memory="128Gi")
# Number of kept folders with logs of failed runs.
_KEPT_LOGS = 5
_OWNER = "ADMITQ_TEST_OWNER"
_WITH_ADMITQ = "-admitq"
_CONFIGURED = "-with-"
# Files that run on one worker. Their tests share an installation, which is stopped after the last test.
# Others would see each other's queues, or wait for each other, if they ran at the same time.
_ONE_AT_A_TIME = {
    "tests/controlplane/test_policies.py",
    "tests/controlplane/test_two_managers.py",
    "tests/kills/test_every_await.py",
}
# Files by the installation that they share in turn. One worker runs all tests of these files, so that others
# do not wait for it. It is stopped after the last of them: an idle installation takes 4 % of a core.
_IN_TURN = {
    "alone": {
        "tests/controlplane/test_kinds_come_and_go.py",
        "tests/controlplane/test_leadership.py",
        "tests/controlplane/test_parts.py",
    },
    "default": {
        "tests/controlplane/test_rejected_writes.py",
        "tests/controlplane/test_visibility.py",
        "tests/controlplane/test_visibility_questions.py",
        "tests/faults/test_core_failures.py",
        "tests/faults/test_first_decisions.py",
    },
}
_WITH_OPERATORS = "tests/operators/"
# Each file of these folders runs on one worker. Most of its tests take milliseconds: less than to send them
# to workers one by one, and to set up the fixtures of the file on each worker.
_QUICK = ("tests/unit/", "tests/scenarios/")
_SHARED_IN_TURN = {file: name for name, files in _IN_TURN.items() for file in files}
_NEEDS_CONTROL_PLANE = {
    "cluster",
    "private_cluster",
    "admitq_running",
    "installation_with",
    "installation_of_file",
    "default_installation",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the test suite."""
    parser.addoption(
        "--api-group",
        default=DEFAULT_GROUP,
        help=f"the API group that the tests use (default {DEFAULT_GROUP})",
    )
    parser.addoption(
        "--operators",
        nargs="?",
        const="all",
        default="",
        metavar="CASE,…",
        help="run the stories with real operators, of all cases or of these; without it, none of them",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make this process the owner of the clusters of the run, unless it is a worker."""
    # For programs in Go that the tests run, such as helm: they end long before the memory is scarce.
    os.environ.setdefault("GOGC", "400")
    if not _is_worker(config):
        os.environ[_OWNER] = json.dumps(asdict(processes.current()))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the stories with real operators, unless an option asks for them."""
    is_folder = collection_path == config.rootpath / _WITH_OPERATORS
    return True if is_folder and not config.getoption("--operators") else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collections: nearly all objects that it creates stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need the control plane, and build it before the timeout of any test starts.

    Slow tests come first, then files that one worker runs: what starts last would run alone at the end.
    """
    items.sort(key=_place)
    wanting = [item for item in items if _NEEDS_CONTROL_PLANE.intersection(_fixture_names(item))]
    for item in wanting:
        item.add_marker(pytest.mark.controlplane)
    if wanting:
        binaries.build()
        crds.fetch()


def _place(item: pytest.Item) -> int:
    """Return the place of a test in the order of the run; tests with the same place keep their order."""
    if item.get_closest_marker("slow"):
        return 0
    file = _file_of(item.nodeid)
    return 1 if file in _ONE_AT_A_TIME or file in _SHARED_IN_TURN else 2


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


class _Scheduling(LoadScopeScheduling):
    """Distribute tests one by one, but give all tests of some files to one worker.

    Tests of these files are quick, or must not run at the same time. They are recognized by name, because the
    group that a test is marked with does not reach the process that distributes.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = _file_of(nodeid)
        if file.startswith(_WITH_OPERATORS):
            # The stories of a case share a control plane with its operators, which only one process uses.
            return nodeid.partition("[")[2]
        is_unit = file in _ONE_AT_A_TIME or file.startswith(_QUICK)
        return _SHARED_IN_TURN.get(file, file if is_unit else nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling:
    """Return the distribution of tests to workers."""
    return _Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, bool, bool]:
    """Stop an installation that files use in turn, after the last of their tests that this process runs."""
    was_run = yield
    name = _SHARED_IN_TURN.get(_file_of(item.nodeid))
    if name is not None and (nextitem is None or _SHARED_IN_TURN.get(_file_of(nextitem.nodeid)) != name):
        cluster = _cluster_with(name)
        if cluster.exists():
            _stop(cluster, failed=item.session.testsfailed > 0)
    return was_run


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Stop the clusters of the run. Keep the logs if the run failed."""
    if _is_worker(session.config):
        return
    owner = owner_of_run()
    clusters_of_run = [
        cluster for cluster in all_clusters() if processes.read(cluster.folder / "owner.json") == owner
    ]
    # Calls of an installation with another configuration count as uses of the rules, too.
    failed = exitstatus not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
    for cluster in sorted(clusters_of_run, key=lambda each: each.name.endswith(_WITH_ADMITQ)):
        if cluster.name.endswith(_WITH_ADMITQ):
            _check_access(session, cluster, exitstatus)
        _stop(cluster, failed=failed)
    _calls_of_the_run().unlink(missing_ok=True)


@pytest.fixture(scope="session", autouse=True)
def preloaded_processes() -> Generator[None]:
    """Start installations by forks of a process that has imported admitq."""
    with preloaded.preloading():
        yield


@pytest.fixture(scope="session")
def api_group(request: pytest.FixtureRequest) -> str:
    """The API group under test: option --api-group."""
    return str(request.config.getoption("--api-group"))


@pytest.fixture(scope="session")
def cluster() -> LocalCluster:
    """The control plane that all tests of the run share. Tests use namespaces of their own."""
    named = os.environ.get("ADMITQ_TEST_CLUSTER")
    shared = LocalCluster(named or f"test-{owner_of_run().pid}")
    if named and shared.exists() and shared.healthy():
        return shared
    reclaim_orphans(_quietly)
    shared.start((_POOL,), owner=None if named else owner_of_run(), say=_quietly)
    return shared


@pytest.fixture(scope="session")
def admitq_running(api_group: str) -> Installation:
    """Admitq from the shipped chart beside its own control plane, which all its tests share.

    Every job kind is enabled. Tests install CRDs of other projects by the fixture `definitions`. This is not
    the cluster of the fixture `cluster`, in which only tests change objects.
    """
    reclaim_orphans(_quietly)
    return _installation(f"test-{owner_of_run().pid}{_WITH_ADMITQ}", (_POOL,), api_group, _every_kind())


@pytest.fixture(scope="session")
def definitions(admitq_running: Installation) -> Callable[[Iterable[str]], None]:
    """Install CRDs of other projects where admitq runs: `definitions(["jobsets.jobset.x-k8s.io"])`.

    They stay until the run ends. admitq needs a few seconds to notice them.
    """
    there: set[str] = set()

    def installed(names: Iterable[str]) -> None:
        if missing := set(names) - there:
            crds.install_missing(admitq_running.cluster, sorted(missing))
            there.update(missing)

    return installed


@pytest.fixture(scope="session")
def installation_with(api_group: str) -> Callable[[str, Mapping[str, Any]], Installation]:
    """Return admitq with another configuration: `installation_with(name, config)`.

    Calls with one name share it. It runs beside its own control plane, which has no nodes.
    """

    def started(name: str, config: Mapping[str, Any]) -> Installation:
        reclaim_orphans(_quietly)
        return _installation(_cluster_with(name).name, (), api_group, config)

    return started


@pytest.fixture(scope="module")
def default_installation(
    installation_with: Callable[[str, Mapping[str, Any]], Installation],
) -> Installation:
    """Admitq with its default configuration beside its own control plane, which test files use in turn.

    It is for files that limit, count or list what admitq does in the whole cluster, or that stop its manager.
    The manager runs at the start of each file. The files are in ``_IN_TURN``.
    """
    installation = installation_with("default", {})
    manager = installation.process("manager")
    if manager is None or not manager.alive():
        installation.start(("manager",))
    return installation


@pytest.fixture(scope="module")
def installation_of_file(
    request: pytest.FixtureRequest, installation_with: Callable[[str, Mapping[str, Any]], Installation]
) -> Generator[Callable[[str, Mapping[str, Any]], Installation]]:
    """Return admitq as `installation_with` does, and stop it after the last test of the file.

    Raises:
        ValueError: workers could run tests of the file at the same time, and one of them would stop admitq.
    """
    file = request.path.relative_to(request.config.rootpath).as_posix()
    if file not in _ONE_AT_A_TIME:
        raise ValueError(
            f"add {file} to _ONE_AT_A_TIME: its tests share an installation that one worker stops"
        )
    started: dict[str, LocalCluster] = {}

    def start(name: str, config: Mapping[str, Any]) -> Installation:
        installation = installation_with(name, config)
        started[name] = installation.cluster
        return installation

    before = request.session.testsfailed
    yield start
    for cluster in started.values():
        _stop(cluster, failed=request.session.testsfailed > before)


def _stop(cluster: LocalCluster, *, failed: bool) -> None:
    """Stop a cluster of the run. Keep its logs if a test failed."""
    if _CONFIGURED in cluster.name:
        Installation(cluster).stop()
        _keep_calls(cluster)
    if failed:
        keep_logs(cluster)
    cluster.stop()


def _cluster_with(name: str) -> LocalCluster:
    """Return the cluster of an installation with another configuration."""
    return LocalCluster(f"test-{owner_of_run().pid}{_CONFIGURED}{name}")


def _every_kind() -> dict[str, Any]:
    """Return a configuration that enables every job kind and defines some more."""
    return {
        "integrations": {"frameworks": list(list_framework_names()), "custom": custom_kinds.configured()},
        "failureRecovery": {"forceDeleteAfter": "300ms"},
        "leaderElection": PATIENT_LEASE,
        "featureGates": {"FailureRecoveryPolicy": True, "SparkApplicationIntegration": True},
    }


def _installation(
    name: str, pools: tuple[NodePool, ...], api_group: str, config: Mapping[str, Any]
) -> Installation:
    """Return an installation that all workers of the run share. The first worker that needs it starts it."""
    cluster = LocalCluster(name)
    with exclusive(state_folder() / f"{name}.lock"):
        cluster.start(pools, owner=owner_of_run(), say=_quietly)
        installation = Installation(cluster)
        # Running processes do not show whether it is installed: a test of another worker may have stopped
        # them for a while.
        started = cluster.folder / "installation-started"
        if not started.exists():
            installation.install(api_group=api_group, config=config)
            installation.start()
            started.touch()
    return installation


@pytest.fixture
async def admitq_client(admitq_running: Installation, connect: Callable[[LocalCluster], Any]) -> Client:
    """A client as administrator of the cluster with admitq."""
    return await connect(admitq_running.cluster)


@pytest.fixture
async def admitq_namespace(admitq_client: Client) -> AsyncGenerator[str]:
    """The name of a namespace for this test alone, in the cluster with admitq."""
    async with fresh_namespace(admitq_client) as name:
        yield name


@pytest.fixture
def private_cluster(request: pytest.FixtureRequest) -> Generator[Callable[..., LocalCluster]]:
    """Start control planes for one test alone: `private_cluster(pools, api_server_arguments=…)`."""
    started: list[LocalCluster] = []
    before = request.session.testsfailed

    def start(pools: tuple[NodePool, ...] = (NodePool(count=2),), **options: Any) -> LocalCluster:
        fresh = LocalCluster(f"test-{owner_of_run().pid}-{secrets.token_hex(3)}")
        started.append(fresh)
        fresh.start(pools, owner=owner_of_run(), say=_quietly, **options)
        return fresh

    yield start
    for fresh in started:
        _keep_calls(fresh)
        _stop(fresh, failed=request.session.testsfailed > before)


@pytest.fixture
async def connect() -> AsyncGenerator[Callable[[LocalCluster], Any]]:
    """Open clients as administrator of a given cluster."""
    async with AsyncExitStack() as stack:

        async def open_client(cluster: LocalCluster) -> Client:
            credentials = load_credentials(cluster.kubeconfig)
            client = Client(credentials, user_agent="admitq-tests", qps=-1, timeout=30.0)
            return await stack.enter_async_context(client)

        yield open_client


@pytest.fixture
async def client(cluster: LocalCluster, connect: Callable[[LocalCluster], Any]) -> Client:
    """A client as administrator of the shared cluster."""
    return await connect(cluster)


@pytest.fixture
async def namespace(client: Client) -> AsyncGenerator[str]:
    """The name of a namespace of the shared cluster for this test alone, in which pods can be created."""
    async with fresh_namespace(client) as name:
        yield name


@pytest.fixture(scope="session")
def installed(cluster: LocalCluster, api_group: str) -> str:
    """Install admitq's CRDs in the shared cluster, and return their API group."""
    install_crds(cluster, api_group)
    return api_group


class fresh_namespace:  # noqa: N801 - used as `async with fresh_namespace(…)`
    """Create a namespace for the block, and wait until pods can be created in it.

    At the end it is emptied, not deleted, and stays until its cluster is stopped. To delete it, the namespace
    controller would list objects of every kind, often more than once. That was a third of all requests of a
    run.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._name = f"test-{secrets.token_hex(4)}"

    async def __aenter__(self) -> str:
        await self._client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._name}}
        )
        await eventually(
            lambda: self._client.get(SERVICE_ACCOUNTS, "default", self._name),
            what=f"the default ServiceAccount of namespace {self._name}",
        )
        return self._name

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(self._empty(resource) for resource in _contents()))

    async def _empty(self, resource: Resource) -> None:
        try:
            path, query = resource.path(self._name), {"propagationPolicy": "Background"}
            await self._client.request_json("DELETE", path, query=query)
        except ApiError as error:
            if not error.is_not_found:
                raise


@cache
def _contents() -> tuple[Resource, ...]:
    """The kinds of objects that admitq would continue to process."""
    jobs = [resource_of(integration) for integration in load_integrations()]
    kinds = [kinds_of(names_for(group)) for group in GROUPS]
    return (
        *jobs,
        *(
            resource
            for group_kinds in kinds
            for resource in (group_kinds.local_queues, group_kinds.workloads)
        ),
    )


def install_crds(cluster: LocalCluster, group: str) -> None:
    """Apply admitq's CRDs of an API group, and wait until they are established.

    Only the stored version is served, because no webhook runs that could convert.
    """
    # Imported late: tests without CRDs need not spend the time to generate them.
    from admitq_api.crds import create_crds as own  # noqa: PLC0415

    crds.apply(cluster, map(_in_one_version, own(group)))


def _in_one_version(definition: Mapping[str, Any]) -> dict[str, Any]:
    spec = definition["spec"]
    return {
        **definition,
        "spec": {**spec, "versions": spec["versions"][:1], "conversion": {"strategy": "None"}},
    }


def _check_access(session: pytest.Session, cluster: LocalCluster, exitstatus: int) -> None:
    """Fail the run if admitq was refused a call or, when every test ran, if a permission was not used."""
    option = session.config.option
    chosen = option.keyword or option.markexpr or session.config.args != session.config.getini("testpaths")
    whole_run = exitstatus == pytest.ExitCode.OK and not chosen
    installation = Installation(cluster)
    installation.stop()
    with cluster.api() as api:
        problems = access.problems(
            api,
            cluster.audit_log,
            [log for log in (_calls_of_the_run(),) if log.exists()],
            prefix=installation.prefix,
            namespace=installation.namespace,
            group=installation.api_group() or DEFAULT_GROUP,
            whole_run=whole_run,
        )
    if problems:
        print("\nThe access rules of the chart do not fit the calls of admitq:\n  " + "\n  ".join(problems))
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _calls_of_the_run() -> Path:
    """Return the folder with the audit logs of the run's private clusters."""
    return state_folder() / f"calls-{owner_of_run().pid}.log"


def _keep_calls(cluster: LocalCluster) -> None:
    if cluster.exists() and cluster.audit_log.exists():
        with exclusive(state_folder() / "calls.lock"), _calls_of_the_run().open("a") as folder:
            folder.write(cluster.audit_log.read_text())


def keep_logs(cluster: LocalCluster) -> None:
    """Keep the logs of a cluster of a failed run."""
    folder = state_folder() / "failed"
    target = folder / cluster.name
    older = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime) if folder.exists() else []
    for path in (target, *older[: -_KEPT_LOGS + 1]):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(cluster.folder / "logs", target, ignore=shutil.ignore_patterns("*.sock"))
    print(f"\nlogs of cluster {cluster.name}: {target}")


def _fixture_names(item: pytest.Item) -> list[str]:
    return list(getattr(item, "fixturenames", ()))


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def owner_of_run() -> Process:
    """Return the main process of the run, which owns its clusters."""
    return Process(**json.loads(os.environ[_OWNER]))


def _quietly(_: str) -> None:
    """Print nothing: pytest shows the errors of a failing fixture."""
