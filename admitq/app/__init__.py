"""The composition root: where configuration, core, controllers and webhooks become processes."""

from admitq.app.components import chosen
from admitq.app.process import run
from admitq.app.settings import Settings, load_settings

__all__ = ["Settings", "chosen", "load_settings", "run"]
