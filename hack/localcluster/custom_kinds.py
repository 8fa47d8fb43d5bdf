"""The kinds of jobs that are tried without code: as docs/guides/kinds/custom.md shows them."""

import re
from typing import Any, Final

import yaml

from localcluster.folders import REPOSITORY

PAGE: Final = REPOSITORY / "docs" / "guides" / "kinds" / "custom.md"

_YAML_BLOCK: Final = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def configured() -> list[dict[str, Any]]:
    """What stands under `integrations.custom` in the values that the page shows."""
    shown = [yaml.safe_load(text) for text in _YAML_BLOCK.findall(PAGE.read_text())]
    return [kind for one in shown if "config" in one for kind in one["config"]["integrations"]["custom"]]
