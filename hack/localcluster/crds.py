"""The CRDs of the kinds that admitq works with, from the modules of their projects.

The Go toolchain of the control plane downloads the modules and compiles none of them. The CRDs are stored in
the cache folder. All checkouts with the same pins share them, and later runs need neither Go nor a network.

CRDs are installed as published, with two exceptions. One is served in a later version too (`_as_served`). All
are installed without the descriptions of fields: these have no effect, and are half of what the API server
reads, merges and stores. The published CRDs name no conversion webhook, which could not run here.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

import yaml

from localcluster import processes, project_modules
from localcluster.api import Api, ApiFailure
from localcluster.cluster import LocalCluster
from localcluster.folders import REPOSITORY, cache_folder
from localcluster.locks import exclusive
from localcluster.project_modules import ModuleError

PROVISIONING_REQUESTS = "provisioningrequests.autoscaling.x-k8s.io"

_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# A busy machine with two cores can need long for some of them.
_SERVED_WITHIN_S = 120.0


class DefinitionsError(Exception):
    """CRDs cannot be loaded or installed. The message has their names and the cause."""


@dataclass(frozen=True)
class Project:
    """The place of a project's CRDs.

    Attributes:
        module: the path of its Go module, as in go.mod.
        folder: the folder of the CRDs in the module.
        files: the files to install, each named `<group>_<plural>.yaml`.
    """

    module: str
    folder: str
    files: tuple[str, ...]


PROJECTS = (
    Project("sigs.k8s.io/jobset", "config/components/crd/bases", ("jobset.x-k8s.io_jobsets.yaml",)),
    Project("sigs.k8s.io/lws", "config/crd/bases", ("leaderworkerset.x-k8s.io_leaderworkersets.yaml",)),
    Project("github.com/kubeflow/mpi-operator", "manifests/base", ("kubeflow.org_mpijobs.yaml",)),
    Project(
        "github.com/kubeflow/training-operator",
        "manifests/base/crds",
        # The MPIJob of this project is an older version of the one above.
        (
            "kubeflow.org_jaxjobs.yaml",
            "kubeflow.org_paddlejobs.yaml",
            "kubeflow.org_pytorchjobs.yaml",
            "kubeflow.org_tfjobs.yaml",
            "kubeflow.org_xgboostjobs.yaml",
        ),
    ),
    Project(
        "github.com/kubeflow/trainer/v2",
        "manifests/base/crds",
        (
            "trainer.kubeflow.org_clustertrainingruntimes.yaml",
            "trainer.kubeflow.org_trainingruntimes.yaml",
            "trainer.kubeflow.org_trainjobs.yaml",
        ),
    ),
    Project(
        "github.com/kubeflow/spark-operator/v2",
        "config/crd/bases",
        ("sparkoperator.k8s.io_sparkapplications.yaml",),
    ),
    Project(
        "github.com/project-codeflare/appwrapper",
        "config/crd/bases",
        ("workload.codeflare.dev_appwrappers.yaml",),
    ),
    Project(
        "github.com/ray-project/kuberay/ray-operator",
        "config/crd/bases",
        ("ray.io_rayclusters.yaml", "ray.io_rayjobs.yaml", "ray.io_rayservices.yaml"),
    ),
    Project(
        "k8s.io/autoscaler/cluster-autoscaler/apis",
        "config/crd",
        ("autoscaling.x-k8s.io_provisioningrequests.yaml",),
    ),
)


def name_of(file: str) -> str:
    """Return the name of the CRD in a file, such as `jobsets.jobset.x-k8s.io`."""
    group, _, plural = PurePosixPath(file).stem.partition("_")
    return f"{plural}.{group}"


NAMES = tuple(sorted(name_of(file) for project in PROJECTS for file in project.files))
"""The names of all available CRDs of other projects."""

_OWN = REPOSITORY / "tests" / "controlplane" / "definitions"

OWN_NAMES = tuple(sorted(file.stem for file in _OWN.glob("*.yaml")))
"""The names of CRDs that this repository defines, for kinds that no project publishes."""


def fetch(say: Callable[[str], None] | None = None) -> None:
    """Store all CRDs in the cache folder, unless they are there.

    Args:
        say: receives a message about a download; by default it goes to standard error.

    Raises:
        DefinitionsError: Go or a module is not available.
    """
    if _is_complete():
        return
    with exclusive(_folder().with_suffix(".lock")):
        if not _is_complete():
            _take(say or _to_stderr)


def definitions(names: Iterable[str] = NAMES) -> list[dict[str, Any]]:
    """Return CRDs in the form in which they are installed.

    Args:
        names: names from `NAMES` and `OWN_NAMES`.

    Raises:
        DefinitionsError: a name is unknown, or its CRD is not available.
    """
    requested = tuple(names)
    if unknown := sorted(set(requested).difference(NAMES, OWN_NAMES)):
        raise DefinitionsError(f"unknown CRDs: {', '.join(unknown)}; available are: {', '.join(NAMES)}")
    if not set(requested).issubset(OWN_NAMES):
        fetch()
    return [_definition(name) for name in requested]


def _definition(name: str) -> dict[str, Any]:
    if name in OWN_NAMES:
        return yaml.safe_load((_OWN / f"{name}.yaml").read_text())
    return _as_served(without_descriptions(json.loads(_kept(name).read_text())))


def without_descriptions(definition: Any) -> Any:
    """Return a CRD without the descriptions of its fields."""
    if isinstance(definition, list):
        return [without_descriptions(item) for item in cast("list[Any]", definition)]
    if not isinstance(definition, dict):
        return definition
    # This is a field with the name description, which has a schema.
    return {
        key: without_descriptions(value)
        for key, value in cast("dict[str, Any]", definition).items()
        if key != "description" or not isinstance(value, str)
    }


def install(cluster: LocalCluster, names: Iterable[str] = NAMES) -> None:
    """Install CRDs in a cluster, whether they exist or not, and wait until they are served.

    Args:
        cluster: a running cluster.
        names: names from `NAMES` and `OWN_NAMES`.

    Raises:
        DefinitionsError: a CRD is not available or not served in time.
    """
    apply(cluster, definitions(names))


def install_missing(cluster: LocalCluster, names: Iterable[str]) -> None:
    """Install those CRDs that a cluster does not have.

    Each costs the API server more than a second of work, so ask only for those that you need.

    Args:
        cluster: a running cluster.
        names: names from `NAMES` and `OWN_NAMES`.

    Raises:
        DefinitionsError: a CRD is not available or not served in time.
    """
    with cluster.api() as api:
        missing = [name for name in names if not _is_served(api, name)]
    if missing:
        install(cluster, missing)


def apply(cluster: LocalCluster, crds: Iterable[Mapping[str, Any]]) -> None:
    """Apply CRDs and wait until all are served.

    Raises:
        DefinitionsError: a CRD is not served in time.
    """
    every = list(crds)
    with exclusive(cluster.folder / "crds.lock"), cluster.api() as api:
        for definition in every:
            api.request(
                "PATCH",
                f"{_PATH}/{definition['metadata']['name']}?fieldManager=admitq-tests&force=true",
                definition,
                content_type="application/apply-patch+yaml",
            )
        names = [definition["metadata"]["name"] for definition in every]
        if not processes.wait(
            lambda: all(_is_served(api, name) for name in names), timeout_s=_SERVED_WITHIN_S
        ):
            raise DefinitionsError(
                f"not all of these were served within {_SERVED_WITHIN_S:.0f} s: {', '.join(names)}"
            )


def _is_served(api: Api, name: str) -> bool:
    """Whether a CRD is established, and the API server serves its objects."""
    try:
        crd = api.request("GET", f"{_PATH}/{name}")
        # The conditions of a new CRD are null.
        conditions = crd.get("status", {}).get("conditions") or []
        if not any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions):
            return False
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        for version in crd["spec"]["versions"]:
            if version["served"]:
                api.request("GET", f"/apis/{group}/{version['name']}/{plural}?limit=1")
    except ApiFailure as failure:
        # The kind is not served yet, or the API server is busy with another new kind.
        if failure.status in {404, 429}:
            return False
        raise
    return True


def _as_served(definition: dict[str, Any]) -> dict[str, Any]:
    """Return the CRD in the form in which it is installed.

    admitq uses ProvisioningRequest v1. The versions of the module that can be pinned serve v1beta1 only.
    Later ones serve v1 with the same fields, so here v1 is served with the schema of v1beta1.
    """
    if definition["metadata"]["name"] != PROVISIONING_REQUESTS:
        return definition
    spec = definition["spec"]
    (beta,) = spec["versions"]
    return {**definition, "spec": {**spec, "versions": [beta, {**beta, "name": "v1", "storage": False}]}}


# --- modules ------------------------------------------------------------------------------------------


def _folder() -> Path:
    digest = hashlib.sha256((project_modules.PINS / "go.sum").read_bytes()).hexdigest()
    return cache_folder() / "crds" / digest[:16]


def _kept(name: str) -> Path:
    return _folder() / f"{name}.json"


def _is_complete() -> bool:
    return all(_kept(name).exists() for name in NAMES)


def _take(say: Callable[[str], None]) -> None:
    """Download the modules and store their CRDs as JSON, which is read much faster than YAML."""
    say("downloading the CRDs of other projects")
    try:
        folders = project_modules.download([project.module for project in PROJECTS], say)
    except ModuleError as error:
        raise DefinitionsError(str(error)) from error
    _folder().mkdir(parents=True, exist_ok=True)
    for project in PROJECTS:
        for file in project.files:
            source = folders[project.module] / project.folder / file
            definition = yaml.load(source.read_text(), Loader=yaml.CSafeLoader)
            target = _kept(name_of(file))
            partial = target.with_name(f".{target.name}.{os.getpid()}")
            partial.write_text(json.dumps(definition))
            partial.replace(target)


def _to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
