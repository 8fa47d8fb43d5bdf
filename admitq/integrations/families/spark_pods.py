"""The pods of a SparkApplication, which its operator and Spark derive from the fields of a role.

The operator passes most fields to spark-submit as configuration. ``sparkConf`` of the application applies to
settings without a field. The operator adds the other fields to the pods when they are created. A role can
have a pod template, to which all of these are added.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from admitq.integrations.job_fields import count_pods
from admitq.integrations.pod_templates import clean_pod_template, select_entries_to_add, select_items_to_add
from admitq_api.json_objects import (
    FieldPath,
    JsonObject,
    as_int,
    object_at,
    objects_at,
    text_at,
    text_fields_at,
    value_at,
    with_value,
    without_value,
)
from admitq_api.quantity import QuantityError, parse_quantity

CONF: Final = ("spec", "sparkConf")
COMMON_NODE_SELECTOR: Final = ("spec", "nodeSelector")
DYNAMIC_ALLOCATION: Final = ("spec", "dynamicAllocation")

_MEBIBYTE: Final = 2**20
_DEFAULT_MEMORY: Final = 1024
_MIN_OVERHEAD: Final = 384
"""Mebibytes."""
_MAX_MEBIBYTES: Final = 2**43
"""The largest number of mebibytes that fits in 63 bits as bytes."""

_JVM_TYPES: Final = frozenset({"Java", "Scala"})
_JVM_OVERHEAD: Final = 0.1
_OTHER_OVERHEAD: Final = 0.4

_JAVA_SIZE: Final = re.compile(r"([0-9]{1,18})([a-z]{0,2})")
_JAVA_UNITS: Final = {
    unit: 2 ** (10 * power)
    for power, units in enumerate((("b",), ("k", "kb"), ("m", "mb"), ("g", "gb"), ("t", "tb"), ("p", "pb")))
    for unit in units
}
_WHOLE_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_VERSION: Final = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")


@dataclass(frozen=True, slots=True)
class Role:
    """The driver, or the executors."""

    name: str
    container: str
    """The name of Spark's container."""

    @property
    def path(self) -> FieldPath:
        """The path of the role in the application."""
        return ("spec", self.name)


DRIVER: Final = Role("driver", "spark-kubernetes-driver")
EXECUTOR: Final = Role("executor", "spark-kubernetes-executor")


# --- number of executors -----------------------------------------------------------------------------


def allocates_dynamically(app: JsonObject) -> bool:
    """Whether Spark changes the number of executors while the application runs."""
    if value_at(app, (*DYNAMIC_ALLOCATION, "enabled")) is True:
        return True
    return text_fields_at(app, CONF).get("spark.dynamicAllocation.enabled", "").lower() == "true"


def count_executors(app: JsonObject) -> int:
    """Return how many executors the driver requests when it starts."""
    configured = _parse_number(text_fields_at(app, CONF).get("spark.executor.instances"))
    instances = value_at(app, (*EXECUTOR.path, "instances"))
    if instances is None:
        instances = configured
    if value_at(app, (*DYNAMIC_ALLOCATION, "enabled")) is not True:
        return count_pods(instances)
    bounds = (value_at(app, (*DYNAMIC_ALLOCATION, field)) for field in ("initialExecutors", "minExecutors"))
    return max(count_pods(count, 0) for count in (instances, *bounds))


def _parse_number(written: str | None) -> int | None:
    return int(written) if written is not None and _WHOLE_NUMBER.fullmatch(written) else None


# --- requests ----------------------------------------------------------------------------------------


def _parse_mebibytes(written: Any, unit: int = _MEBIBYTE) -> int | None:
    """Return the whole mebibytes of a size in Java notation, such as 512m or 4g; None if it is invalid.

    A number without a unit counts ``unit`` bytes. Spark would reject Kubernetes notation. It is accepted
    here, so that the requests of such an application are visible.
    """
    if not isinstance(written, str):
        return None
    match = _JAVA_SIZE.fullmatch(written.strip().lower())
    if match is not None and (not match[2] or match[2] in _JAVA_UNITS):
        size = int(match[1]) * (_JAVA_UNITS[match[2]] if match[2] else unit) // _MEBIBYTE
        return min(size, _MAX_MEBIBYTES)
    try:
        return min(max(0, math.ceil(parse_quantity(written) / _MEBIBYTE)), _MAX_MEBIBYTES)
    except QuantityError:
        return None


def _is_quantity(written: Any) -> bool:
    try:
        return parse_quantity(written) >= 0
    except QuantityError:
        return False


def _first_known(*sizes: int | None) -> int:
    return next((size for size in sizes if size is not None), 0)


def _compute_memory(app: JsonObject, role: Role) -> int:
    """Return the mebibytes that a pod requests: heap, overhead of the JVM, and off-heap memory."""
    conf, own = text_fields_at(app, CONF), object_at(app, role.path)
    prefix = f"spark.{role.name}"
    heap = _first_known(
        _parse_mebibytes(own.get("memory")), _parse_mebibytes(conf.get(f"{prefix}.memory")), _DEFAULT_MEMORY
    )
    overhead = _parse_mebibytes(own.get("memoryOverhead"))
    if overhead is None:
        overhead = _parse_mebibytes(conf.get(f"{prefix}.memoryOverhead"))
    if overhead is None:
        least = _first_known(_parse_mebibytes(conf.get(f"{prefix}.minMemoryOverhead")), _MIN_OVERHEAD)
        overhead = max(least, min(int(_get_overhead_factor(app, role) * heap), _MAX_MEBIBYTES))
    return heap + overhead + (_compute_off_heap_memory(app) if role is EXECUTOR else 0)


def _get_overhead_factor(app: JsonObject, role: Role) -> float:
    conf = text_fields_at(app, CONF)
    for written in (
        conf.get(f"spark.{role.name}.memoryOverheadFactor"),
        conf.get("spark.kubernetes.memoryOverheadFactor"),
        value_at(app, ("spec", "memoryOverheadFactor")),
    ):
        try:
            factor = float(written) if isinstance(written, str) else math.nan
        except ValueError:
            continue
        if 0 <= factor < _MAX_MEBIBYTES:
            return factor
    return _JVM_OVERHEAD if text_at(app, ("spec", "type")) in _JVM_TYPES else _OTHER_OVERHEAD


def _compute_off_heap_memory(app: JsonObject) -> int:
    """Return the mebibytes of an executor's off-heap and Python memory."""
    conf = text_fields_at(app, CONF)
    size = 0
    if conf.get("spark.memory.offHeap.enabled", "").lower() == "true":
        size += _first_known(_parse_mebibytes(conf.get("spark.memory.offHeap.size"), unit=1))
    if value_at(app, ("spec", "type")) == "Python":
        size += _first_known(_parse_mebibytes(conf.get("spark.executor.pyspark.memory")))
    return size


def _get_cpu(app: JsonObject, role: Role) -> tuple[str, str | None]:
    """Return the CPU request of a pod, and its limit, if any."""
    conf, own = text_fields_at(app, CONF), object_at(app, role.path)
    prefix = f"spark.kubernetes.{role.name}"
    limits = (own.get("coreLimit"), conf.get(f"{prefix}.limit.cores"))
    limit = next((str(value) for value in limits if _is_quantity(value)), None)
    for request in (own.get("coreRequest"), conf.get(f"{prefix}.request.cores")):
        if _is_quantity(request):
            return str(request), limit
    cores = as_int(own.get("cores")) or _parse_number(conf.get(f"spark.{role.name}.cores")) or 1
    return str(max(1, cores)), limit


def _list_devices(app: JsonObject, role: Role) -> Iterator[tuple[str, str]]:
    """Yield the name and number of each device that a pod requests."""
    conf, gpu = text_fields_at(app, CONF), object_at(app, (*role.path, "gpu"))
    named = re.compile(rf"spark\.{role.name}\.resource\.(.+)\.amount")
    for key, amount in conf.items():
        match = named.fullmatch(key)
        vendor = conf.get(f"spark.{role.name}.resource.{match[1]}.vendor") if match else None
        if match and vendor and _parse_number(amount):
            yield f"{vendor}/{match[1]}", amount
    if (name := text_at(gpu, ("name",))) and as_int(gpu.get("quantity")) > 0:
        yield name, str(gpu["quantity"])


def _compute_resources(app: JsonObject, role: Role, container: JsonObject) -> JsonObject:
    """Return the resources of Spark's container. Other resources of the template stay."""
    cpu, cpu_limit = _get_cpu(app, role)
    memory = f"{_compute_memory(app, role)}Mi"
    limit = _parse_mebibytes(value_at(app, (*role.path, "memoryLimit")))
    devices = dict(_list_devices(app, role))
    requests = {"cpu": cpu, "memory": memory, **devices}
    limits = {"memory": memory if limit is None else f"{limit}Mi", **devices}
    if cpu_limit is not None:
        limits["cpu"] = cpu_limit
    own = object_at(container, ("resources",))
    return {
        **own,
        "requests": {**object_at(own, ("requests",)), **requests},
        "limits": {**object_at(own, ("limits",)), **limits},
    }


# --- pod templates -----------------------------------------------------------------------------------


def _get_role_template(app: JsonObject, role: Role) -> JsonObject:
    """Return the pod template in the role."""
    return clean_pod_template(value_at(app, (*role.path, "template")))


def _compute_containers(app: JsonObject, role: Role) -> list[JsonObject]:
    own = object_at(app, role.path)
    containers = objects_at(_get_role_template(app, role), ("spec", "containers"))
    place = next(
        (at for at, container in enumerate(containers) if container.get("name") == role.container), 0
    )
    spark = containers[place] if containers else {"name": role.container}
    spark = {**spark, "resources": _compute_resources(app, role, spark)}
    image = text_at(own, ("image",)) or text_at(app, ("spec", "image"))
    if image:
        spark = {**spark, "image": image}
    return _with_missing_containers(
        [*containers[:place], spark, *containers[place + 1 :]], objects_at(own, ("sidecars",))
    )


def _with_missing_containers(containers: list[JsonObject], others: list[JsonObject]) -> list[JsonObject]:
    """Return containers together with others that are not among them."""
    present = [(container.get("name"), container.get("image")) for container in containers]
    return [
        *containers,
        *(
            container
            for container in others
            if (container.get("name"), container.get("image")) not in present
        ),
    ]


def _get_shared_node_selector(app: JsonObject, template: JsonObject) -> dict[str, str]:
    """Return the node selector of a role's pods without the settings of the role itself."""
    return {
        **text_fields_at(template, ("spec", "nodeSelector")),
        **_get_configured_entries(app, "spark.kubernetes.node.selector."),
        **text_fields_at(app, COMMON_NODE_SELECTOR),
    }


def _get_configured_entries(app: JsonObject, prefix: str) -> dict[str, str]:
    return {
        key[len(prefix) :]: value
        for key, value in text_fields_at(app, CONF).items()
        if key.startswith(prefix)
    }


def _get_selector_prefix(role: Role) -> str:
    return f"spark.kubernetes.{role.name}.node.selector."


def compute_template(app: JsonObject, role: Role) -> JsonObject:
    """Return the pod template of a role's pods."""
    own, template = object_at(app, role.path), _get_role_template(app, role)
    spec: dict[str, Any] = {**object_at(template, ("spec",)), "containers": _compute_containers(app, role)}
    fields: dict[str, Any] = {
        "initContainers": _with_missing_containers(
            objects_at(spec, ("initContainers",)), objects_at(own, ("initContainers",))
        ),
        "nodeSelector": {
            **_get_shared_node_selector(app, template),
            **_get_configured_entries(app, _get_selector_prefix(role)),
            **text_fields_at(own, ("nodeSelector",)),
        },
        "tolerations": [*objects_at(spec, ("tolerations",)), *objects_at(own, ("tolerations",))],
        "affinity": object_at(own, ("affinity",)),
        "priorityClassName": text_at(own, ("priorityClassName",)),
    }
    spec.update((key, value) for key, value in fields.items() if value)
    metadata = {
        part: {**text_fields_at(template, ("metadata", part)), **text_fields_at(own, (part,))}
        for part in ("labels", "annotations")
    }
    return clean_pod_template(
        {"metadata": {key: value for key, value in metadata.items() if value}, "spec": spec}
    )


def has_common_node_selector(app: JsonObject) -> bool:
    """Whether the application has a node selector for all pods. Its roles must then have none."""
    return value_at(app, COMMON_NODE_SELECTOR) is not None


def supports_node_selector_by_role(app: JsonObject) -> bool:
    """Whether the application's version of Spark supports a node selector for each role."""
    match = _VERSION.match(text_at(app, ("spec", "sparkVersion")))
    return match is not None and (int(match[1]), int(match[2])) >= (3, 3)


def with_role_template(app: JsonObject, role: Role, template: JsonObject) -> JsonObject:
    """Return the application with another template for a role, written to the fields of the role."""
    own, base = object_at(app, role.path), _get_role_template(app, role)
    result = app
    for part in ("labels", "annotations"):
        path = ("metadata", part)
        entries = select_entries_to_add(
            text_fields_at(template, path), text_fields_at(base, path), text_fields_at(own, (part,))
        )
        result = _with_field(result, (*role.path, part), entries)
    tolerations = ("spec", "tolerations")
    items = select_items_to_add(objects_at(template, tolerations), objects_at(base, tolerations))
    result = _with_field(result, (*role.path, "tolerations"), items)
    result = _with_node_selector(result, role, text_fields_at(template, ("spec", "nodeSelector")))
    return _with_gates(result, role, objects_at(template, ("spec", "schedulingGates")))


def _with_field(app: JsonObject, path: FieldPath, value: Mapping[str, Any] | list[JsonObject]) -> JsonObject:
    """Return the application with a value at a path, or without the path if the value is empty."""
    if value == (value_at(app, path) or type(value)()):
        return app
    return with_value(app, path, value) if value else without_value(app, path)


def _with_node_selector(app: JsonObject, role: Role, selector: Mapping[str, str]) -> JsonObject:
    """Return the application with another node selector for a role, in a field that the operator accepts."""
    base = _get_shared_node_selector(app, _get_role_template(app, role))
    prefix, path = _get_selector_prefix(role), (*role.path, "nodeSelector")
    configured, own = _get_configured_entries(app, prefix), text_fields_at(app, path)
    if not has_common_node_selector(app):
        return _with_field(app, path, select_entries_to_add(selector, {**base, **configured}, own))
    entries = select_entries_to_add(selector, {**base, **own}, configured)
    others = {key: value for key, value in object_at(app, CONF).items() if not key.startswith(prefix)}
    return _with_field(app, CONF, {**others, **{prefix + key: value for key, value in entries.items()}})


def _with_gates(app: JsonObject, role: Role, gates: list[JsonObject]) -> JsonObject:
    """Return the application with scheduling gates in the pod template of a role."""
    path = (*role.path, "template")
    if gates == objects_at(app, (*path, "spec", "schedulingGates")):
        return app
    # The operator uses this template if the role has none.
    plain = {"spec": {"containers": [{"name": role.container}]}}
    template = value_at(app, path)
    if not isinstance(template, Mapping):
        template = plain
    template = _with_field(template, ("spec", "schedulingGates"), gates)
    return without_value(app, path) if template == plain else with_value(app, path, template)
