"""The settings of the manager on which answers depend, from its configuration file."""

from typing import NamedTuple

from admitq.asking.stored_objects import SourceError
from admitq.core.settings import CoreSettings
from admitq.translate.read_options import ReadOptions, configured_read_options
from admitq.translate.settings import configured_core_settings
from admitq_api.configuration import Configuration, ConfigurationError, load_configuration
from admitq_api.feature_gates import FeatureGates
from admitq_api.labels import Names


class DecisionSettings(NamedTuple):
    """The settings of the core, how Workloads are read, and the configuration with its feature gates."""

    core: CoreSettings
    how: ReadOptions
    configuration: Configuration
    gates: FeatureGates


def read_decision_settings(text: str | None, names: Names, shown: str = "configuration") -> DecisionSettings:
    """Return the settings of a configuration file of a manager; None for the defaults.

    Args:
        text: the configuration file.
        names: the names of the API group of the objects.
        shown: the name of the file in errors.

    Raises:
        SourceError: the file is invalid, or is for another API group.
    """
    try:
        configuration = load_configuration(_default_text(names) if text is None else text)
        gates = configuration.create_feature_gates()
    except ConfigurationError as error:
        raise SourceError(f"{shown}: {error}") from None
    if configuration.names != names:
        raise SourceError(
            f"{shown}: is for the API group {configuration.names.group}, but the objects have {names.group}"
        )
    return DecisionSettings(
        configured_core_settings(configuration, gates),
        configured_read_options(configuration, gates),
        configuration,
        gates,
    )


def _default_text(names: Names) -> str:
    return f"apiVersion: {names.config_api_version}\nkind: Configuration\napiGroup: {names.group}\n"
