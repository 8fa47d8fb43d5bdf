"""The composition root: where configuration, core, controllers and webhooks become processes."""

from admitq.app.process import run
from admitq.app.settings import Settings, load_settings

__all__ = ["Settings", "load_settings", "run"]
