"""The default names of the cluster objects of the webhooks."""

from typing import NamedTuple


class WebhookObjects(NamedTuple):
    """The default names of the objects through which the API server reaches the webhooks."""

    service: str
    """The Service of the webhooks."""
    secret: str
    """The Secret with the serving certificate."""
    mutating_configuration: str
    """The MutatingWebhookConfiguration."""
    validating_configuration: str
    """The ValidatingWebhookConfiguration."""


def create_webhook_objects(prefix: str) -> WebhookObjects:
    """Return the names with a prefix."""
    return WebhookObjects(
        service=f"{prefix}-webhook-service",
        secret=f"{prefix}-webhook-server-cert",
        mutating_configuration=f"{prefix}-mutating-webhook-configuration",
        validating_configuration=f"{prefix}-validating-webhook-configuration",
    )


def get_conversion_service_name(webhook_service: str) -> str:
    """Return the name of the Service for conversion, given the name of the Service of the webhooks.

    The Service for conversion also includes processes that are not ready, because such a process may need
    converted objects to become ready.
    """
    return f"{webhook_service.removesuffix('-webhook-service')}-conversion-service"
