"""The composition root: builds processes from configuration, core, controllers and webhooks."""

from admitq.app.components import require_feature_gates, select_components, select_shadow_components
from admitq.app.process import run
from admitq.app.settings import ProcessSettings, load_settings
from admitq.app.shadow import ShadowSettings

__all__ = [
    "ProcessSettings",
    "ShadowSettings",
    "load_settings",
    "require_feature_gates",
    "run",
    "select_components",
    "select_shadow_components",
]
