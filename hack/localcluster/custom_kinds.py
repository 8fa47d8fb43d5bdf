"""The job kinds that tests define in the configuration file, as on docs/guides/kinds/custom.md."""

import re
from typing import Any, Final

import yaml

from localcluster.folders import REPOSITORY

PAGE: Final = REPOSITORY / "docs" / "guides" / "kinds" / "custom.md"

_YAML_BLOCK: Final = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def configured() -> list[dict[str, Any]]:
    """Return `integrations.custom` of the values on that page."""
    shown = [yaml.safe_load(text) for text in _YAML_BLOCK.findall(PAGE.read_text())]
    return [
        kind
        for document in shown
        if "config" in document
        for kind in document["config"]["integrations"]["custom"]
    ]
