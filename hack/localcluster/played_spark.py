"""Plays Spark, which is not installed: derives the pods of an application from its configuration.

``played_spark_submit`` creates the driver, and ``played_spark_driver`` is the program in the driver's pod.
"""

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

ROLE_LABEL: Final = "spark-role"
APPLICATION_LABEL: Final = "spark-app-selector"
NUMBER_LABEL: Final = "spark-exec-id"
CONFIGURATION_VOLUME: Final = "spark-conf-volume-driver"
"""The volume of a driver with the ConfigMap of its application."""
PROPERTIES_KEY: Final = "spark.properties"
TEMPLATE_KEY: Final = "pod-spec-template.yml"
"""The keys of this ConfigMap: the configuration, and the pod template of executors."""

_DEFAULT_MEMORY_MIB: Final = 1024
_MIN_OVERHEAD_MIB: Final = 384
_KUBERNETES: Final = "spark.kubernetes"
_SIZE: Final = re.compile(r"([0-9]+)([kmgt]?)b?")
_MIB_OF_UNIT: Final = {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024**2}


@dataclass(frozen=True)
class Role:
    """The driver, or the executors."""

    name: str

    @property
    def container(self) -> str:
        """The name of Spark's container, unless a template names another one."""
        return f"spark-kubernetes-{self.name}"


DRIVER: Final = Role("driver")
EXECUTOR: Final = Role("executor")


def write_properties(conf: Mapping[str, str]) -> str:
    """Return a configuration as the text of a properties file."""
    return "".join(f"{key}={value}\n" for key, value in conf.items())


def read_properties(text: str) -> dict[str, str]:
    """Return the configuration in the text of a properties file."""
    return dict(line.split("=", 1) for line in text.splitlines())


def driver_pod(conf: Mapping[str, str], template: Mapping[str, Any], configuration: str) -> dict[str, Any]:
    """Return the pod of a driver.

    Args:
        conf: the configuration of the application.
        template: the pod template of drivers.
        configuration: the name of the ConfigMap for the driver.
    """
    pod = _pod(conf, DRIVER, template, conf[f"{_KUBERNETES}.driver.pod.name"])
    spec = pod["spec"]
    volume = {"name": CONFIGURATION_VOLUME, "configMap": {"name": configuration}}
    spec["volumes"] = [*spec.get("volumes", ()), volume]
    mount = {"name": CONFIGURATION_VOLUME, "mountPath": "/opt/spark/conf"}
    container = _spark_container(conf, DRIVER, spec)
    container["volumeMounts"] = [*container.get("volumeMounts", ()), mount]
    return pod


def executor_pod(
    conf: Mapping[str, str], template: Mapping[str, Any], driver: Mapping[str, Any], number: int
) -> dict[str, Any]:
    """Return the pod of an executor.

    Args:
        conf: the configuration of the application.
        template: the pod template of executors.
        driver: the pod of the driver, which owns the executor.
        number: the number of the executor in the application.
    """
    prefix = conf.get(f"{_KUBERNETES}.executor.podNamePrefix", conf["spark.app.name"])
    pod = _pod(conf, EXECUTOR, template, f"{prefix}-exec-{number}")
    metadata = pod["metadata"]
    metadata["labels"] |= {NUMBER_LABEL: str(number), "spark-exec-resourceprofile-id": "0"}
    metadata["ownerReferences"] = [*metadata.get("ownerReferences", ()), owner_reference(driver)]
    return pod


def executor_count(conf: Mapping[str, str]) -> int:
    """Return how many executors a driver requests when it starts."""
    instances = int(conf.get("spark.executor.instances", "2"))
    if conf.get("spark.dynamicAllocation.enabled") != "true":
        return instances
    bounds = (
        conf.get(f"spark.dynamicAllocation.{name}", "0") for name in ("initialExecutors", "minExecutors")
    )
    return max(instances, *map(int, bounds))


def _pod(conf: Mapping[str, str], role: Role, template: Mapping[str, Any], name: str) -> dict[str, Any]:
    given = copy.deepcopy(dict(template))
    metadata, spec = given.get("metadata") or {}, given.get("spec") or {}
    own = f"{_KUBERNETES}.{role.name}"
    labels = {
        **(metadata.get("labels") or {}),
        **_with_prefix(conf, f"{own}.label."),
        APPLICATION_LABEL: conf["spark.app.id"],
        "spark-app-name": conf["spark.app.name"],
        ROLE_LABEL: role.name,
    }
    annotations = (metadata.get("annotations") or {}) | _with_prefix(conf, f"{own}.annotation.")
    selector = _with_prefix(conf, f"{_KUBERNETES}.node.selector.") | _with_prefix(
        conf, f"{own}.node.selector."
    )
    spec |= {
        "restartPolicy": "Never",
        "nodeSelector": (spec.get("nodeSelector") or {}) | selector,
        "containers": spec.get("containers") or [{"name": role.container}],
    }
    driver_account = conf.get(f"{_KUBERNETES}.authenticate.driver.serviceAccountName")
    account = conf.get(f"{_KUBERNETES}.authenticate.{role.name}.serviceAccountName", driver_account)
    if account is not None:
        spec["serviceAccountName"] = account
    container = _spark_container(conf, role, spec)
    container["image"] = conf.get(f"{own}.container.image", conf.get(f"{_KUBERNETES}.container.image", ""))
    container["resources"] = _resources(conf, role, container.get("resources") or {})
    named = {"name": name, "namespace": conf[f"{_KUBERNETES}.namespace"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, **named, "labels": labels, "annotations": annotations},
        "spec": spec,
    }


def _spark_container(conf: Mapping[str, str], role: Role, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container of Spark in a pod: the one that the configuration names, else the first one."""
    containers = cast("list[dict[str, Any]]", spec["containers"])
    name = conf.get(f"{_KUBERNETES}.{role.name}.podTemplateContainerName")
    return next((each for each in containers if each["name"] == name), containers[0])


def _resources(conf: Mapping[str, str], role: Role, given: Mapping[str, Any]) -> dict[str, Any]:
    memory = f"{_memory_mib(conf, role)}Mi"
    own = f"{_KUBERNETES}.{role.name}"
    cores = conf.get(f"{own}.request.cores", conf.get(f"spark.{role.name}.cores", "1"))
    limits = {**given.get("limits", {}), "memory": memory}
    if limit := conf.get(f"{own}.limit.cores"):
        limits["cpu"] = limit
    return {"requests": {**given.get("requests", {}), "cpu": cores, "memory": memory}, "limits": limits}


def _memory_mib(conf: Mapping[str, str], role: Role) -> int:
    heap = _mib(conf.get(f"spark.{role.name}.memory", f"{_DEFAULT_MEMORY_MIB}m"))
    if overhead := conf.get(f"spark.{role.name}.memoryOverhead"):
        return heap + _mib(overhead)
    factor = float(conf.get(f"{_KUBERNETES}.memoryOverheadFactor", "0.1"))
    return heap + max(int(factor * heap), _MIN_OVERHEAD_MIB)


def _mib(size: str) -> int:
    match = _SIZE.fullmatch(size.lower())
    if match is None:
        raise ValueError(f"{size!r} is no size in Java notation")
    return int(int(match[1]) * _MIB_OF_UNIT[match[2]])


def owner_reference(driver: Mapping[str, Any]) -> dict[str, Any]:
    """Return the owner reference of objects that exist as long as a driver."""
    metadata = driver["metadata"]
    named = {"name": metadata["name"], "uid": metadata["uid"]}
    return {"apiVersion": "v1", "kind": "Pod", **named, "controller": True}


def _with_prefix(conf: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): value for key, value in conf.items() if key.startswith(prefix)}
