"""The composition root: where configuration, core, controllers and webhooks become processes."""

from admitq.app.components import beside_another, chosen
from admitq.app.process import run
from admitq.app.settings import Settings, load_settings
from admitq.app.shadow import ShadowSettings

__all__ = ["Settings", "ShadowSettings", "beside_another", "chosen", "load_settings", "run"]
