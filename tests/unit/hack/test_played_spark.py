from typing import Any

import pytest

from localcluster.played_spark import (
    CONFIGURATION_VOLUME,
    driver_pod,
    executor_count,
    executor_pod,
    read_properties,
    write_properties,
)

CONF = {
    "spark.app.id": "spark-1",
    "spark.app.name": "pi",
    "spark.kubernetes.namespace": "n",
    "spark.kubernetes.driver.pod.name": "pi-driver",
    "spark.kubernetes.executor.podNamePrefix": "pi-1",
    "spark.kubernetes.container.image": "spark:4",
    "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "8g",
}
DRIVER = {"metadata": {"name": "pi-driver", "uid": "u"}}


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["spec"]["containers"]
    return found


def test_driver_requests_its_memory_with_the_least_overhead() -> None:
    pod = driver_pod(CONF, {}, "c")
    assert container(pod)["resources"] == {
        "requests": {"cpu": "1", "memory": "896Mi"},
        "limits": {"memory": "896Mi"},
    }


def test_driver_reads_its_configuration_from_a_config_map() -> None:
    pod = driver_pod(CONF, {}, "c")
    assert pod["spec"]["volumes"] == [{"name": CONFIGURATION_VOLUME, "configMap": {"name": "c"}}]
    assert container(pod)["volumeMounts"] == [{"name": CONFIGURATION_VOLUME, "mountPath": "/opt/spark/conf"}]


def test_fields_of_the_configuration_are_added_to_the_template() -> None:
    own = "spark.kubernetes.driver"
    given = {
        **CONF,
        f"{own}.label.a": "1",
        f"{own}.annotation.b": "2",
        f"{own}.node.selector.c": "3",
        "spark.kubernetes.node.selector.d": "4",
        f"{own}.request.cores": "250m",
        f"{own}.limit.cores": "2",
    }
    template = {
        "metadata": {"labels": {"t": "1"}},
        "spec": {"tolerations": [{}], "containers": [{"name": "spark-kubernetes-driver", "tty": True}]},
    }
    pod = driver_pod(given, template, "c")
    assert (pod["metadata"]["name"], pod["metadata"]["namespace"]) == ("pi-driver", "n")
    assert {"t": "1", "a": "1", "spark-role": "driver"}.items() <= pod["metadata"]["labels"].items()
    assert pod["metadata"]["annotations"] == {"b": "2"}
    assert pod["spec"]["nodeSelector"] == {"c": "3", "d": "4"}
    assert pod["spec"]["tolerations"] == [{}]
    assert pod["spec"]["serviceAccountName"] == "spark"
    assert container(pod)["tty"]
    assert container(pod)["resources"]["requests"]["cpu"] == "250m"
    assert container(pod)["resources"]["limits"]["cpu"] == "2"


def test_executor_is_owned_by_its_driver_and_by_the_owner_in_the_template() -> None:
    template = {"metadata": {"ownerReferences": [{"name": "app"}]}}
    pod = executor_pod(CONF, template, DRIVER, 3)
    assert pod["metadata"]["name"] == "pi-1-exec-3"
    assert [one["name"] for one in pod["metadata"]["ownerReferences"]] == ["app", "pi-driver"]
    assert pod["metadata"]["labels"]["spark-exec-id"] == "3"
    assert pod["spec"]["serviceAccountName"] == "spark"
    # 8192 MiB, and a tenth of it.
    assert container(pod)["resources"]["limits"] == {"memory": "9011Mi"}


@pytest.mark.parametrize(
    ("memory", "overhead", "expected"),
    [("2g", "1g", "3072Mi"), ("512", "100m", "612Mi"), ("1048576k", "1", "1025Mi")],
    ids=["gibibytes", "no unit", "kibibytes"],
)
def test_sizes_in_java_notation_are_read(memory: str, overhead: str, expected: str) -> None:
    given = {**CONF, "spark.driver.memory": memory, "spark.driver.memoryOverhead": overhead}
    assert container(driver_pod(given, {}, "c"))["resources"]["limits"] == {"memory": expected}


def test_size_in_another_notation_is_reported() -> None:
    with pytest.raises(ValueError, match="'1Gi' is no size in Java notation"):
        driver_pod({**CONF, "spark.driver.memory": "1Gi"}, {}, "c")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 2),
        ({"spark.executor.instances": "3"}, 3),
        (
            {
                "spark.executor.instances": "1",
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.initialExecutors": "4",
                "spark.dynamicAllocation.minExecutors": "2",
            },
            4,
        ),
    ],
    ids=["default", "instances", "dynamic allocation"],
)
def test_number_of_the_first_executors_is_that_of_spark(given: dict[str, str], expected: int) -> None:
    assert executor_count(given) == expected


def test_configuration_is_the_same_after_its_properties_file() -> None:
    given = {**CONF, "spark.driver.extraJavaOptions": "-Da=b -Dc=d"}
    assert read_properties(write_properties(given)) == given
