"""The configuration file: its fields, their defaults and their validation.

Validation is strict: with an unknown field or an invalid value the process does not start. The error names
the path of the field and a remedy.
"""

from admitq_api.configuration.fields import Section, get_wire_name, list_sections, parse_address
from admitq_api.configuration.loading import load_configuration
from admitq_api.configuration.process_sections import (
    CIPHER_SUITES,
    CURVES,
    TLS_1_3_CIPHER_SUITES,
    LeaderElection,
)
from admitq_api.configuration.root import KIND, Configuration, ConfigurationError
from admitq_api.configuration.sections import FRAMEWORKS

__all__ = [
    "CIPHER_SUITES",
    "CURVES",
    "FRAMEWORKS",
    "KIND",
    "TLS_1_3_CIPHER_SUITES",
    "Configuration",
    "ConfigurationError",
    "LeaderElection",
    "Section",
    "get_wire_name",
    "list_sections",
    "load_configuration",
    "parse_address",
]
