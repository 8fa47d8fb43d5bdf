"""Plays the program ``spark-submit`` in cluster mode: it creates the pod of the driver.

As with the real one, the permissions are those of the operator that runs it, and the configuration of the
application reaches the driver in a ConfigMap.
"""

import argparse
import json
import os
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from localcluster.api import Api, ApiFailure
from localcluster.played_spark import (
    PROPERTIES_KEY,
    TEMPLATE_KEY,
    driver_pod,
    owner_reference,
    write_properties,
)

_OPTIONS = (
    "master",
    "deploy-mode",
    "class",
    "jars",
    "packages",
    "exclude-packages",
    "repositories",
    "py-files",
    "files",
    "archives",
    "proxy-user",
)
"""Options without an effect on pods."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Submit an application. Return 1, and print the cause, if the API server refuses an object of it."""
    parser = argparse.ArgumentParser(description="Create the driver of a Spark application.")
    parser.add_argument("--name", required=True)
    parser.add_argument("--conf", action="append", default=[])
    for option in _OPTIONS:
        parser.add_argument(f"--{option}")
    parser.add_argument("application", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    number = uuid.uuid4().hex
    has_jvm_only = not "".join(options.application[:1]).endswith((".py", ".R"))
    conf = {
        "spark.kubernetes.memoryOverheadFactor": "0.1" if has_jvm_only else "0.4",
        "spark.kubernetes.executor.podNamePrefix": f"{options.name}-{number[:16]}",
        **dict(each.split("=", 1) for each in options.conf),
        "spark.app.name": options.name,
        "spark.app.id": f"spark-{number}",
    }
    try:
        with _api(Path(os.environ["KUBECONFIG"])) as api:
            _submit(api, conf, f"spark-drv-{number[:16]}-conf-map")
    except ApiFailure as failure:
        print(f"Failure executing: {failure}. Received status: code={failure.status}", file=sys.stderr)
        return 1
    return 0


def _api(kubeconfig: Path) -> Api:
    config = json.loads(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    return Api(cluster["server"], Path(cluster["certificate-authority"]), token=user["token"])


def _submit(api: Api, conf: dict[str, str], configuration: str) -> None:
    """Create the driver, and then the ConfigMap that it owns, in the order of Spark."""
    driver_template = _template(conf.pop("spark.kubernetes.driver.podTemplateFile", None))
    executor_template = _template(conf.pop("spark.kubernetes.executor.podTemplateFile", None))
    namespace = f"/api/v1/namespaces/{conf['spark.kubernetes.namespace']}"
    driver = api.request("POST", f"{namespace}/pods", driver_pod(conf, driver_template, configuration))
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": configuration, "ownerReferences": [owner_reference(driver)]},
        "data": {PROPERTIES_KEY: write_properties(conf), TEMPLATE_KEY: json.dumps(executor_template)},
    }
    api.request("POST", f"{namespace}/configmaps", config_map)


def _template(file: str | None) -> dict[str, Any]:
    """Return the pod template in a file; an empty one without a file."""
    return {} if file is None else yaml.safe_load(Path(file).read_text())


if __name__ == "__main__":
    sys.exit(main())
