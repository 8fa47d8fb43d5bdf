"""Values for other programs, as JSON or YAML on standard output."""

from typing import Any


def print_document(document: Any, output: str) -> None:
    """Print a value as ``json`` or ``yaml``."""
    if output == "json":
        import json

        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        import yaml

        print(yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True), end="")
