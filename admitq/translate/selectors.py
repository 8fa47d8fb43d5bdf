"""Label selectors, and the selector of the namespaces with managed jobs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from admitq.core.model import LabelSelector, SelectorOperator, SelectorRequirement
from admitq_api.namespaces import NAMESPACE_NAME, SYSTEM_NAMESPACE
from admitq_api.stored_fields import MalformedField, require_list, require_object, require_text, require_texts

if TYPE_CHECKING:
    # Imported for types only: its models take long to import, and some processes need no configuration.
    from admitq_api.configuration import Configuration


def read_selector_requirement(raw: Mapping[str, Any], field: str) -> SelectorRequirement:
    """Read one item of ``matchExpressions``.

    Raises:
        MalformedField: the operator is unknown, or the key or a value is not a string.
    """
    try:
        operator = SelectorOperator(raw.get("operator", ""))
    except ValueError as error:
        allowed = ", ".join(SelectorOperator)
        raise MalformedField(f"{field}.operator", f"must be one of {allowed}") from error
    return SelectorRequirement(
        require_text(raw.get("key"), f"{field}.key"),
        operator,
        require_texts(raw.get("values"), f"{field}.values"),
    )


def read_label_selector(raw: Mapping[str, Any] | None, field: str = "selector") -> LabelSelector | None:
    """Read a label selector; None, which selects nothing, stays None.

    Raises:
        MalformedField: an operator is unknown.
    """
    if raw is None:
        return None
    matched = (
        SelectorRequirement(key, SelectorOperator.IN, (require_text(value, f"{field}.matchLabels"),))
        for key, value in sorted(require_object(raw.get("matchLabels"), f"{field}.matchLabels").items())
    )
    expressed = (
        read_selector_requirement(item, f"{field}.matchExpressions[{index}]")
        for index, item in enumerate(require_list(raw.get("matchExpressions"), f"{field}.matchExpressions"))
    )
    return LabelSelector((*matched, *expressed))


def select_managed_namespaces(configuration: "Configuration") -> LabelSelector:
    """Return the selector of the namespaces with managed jobs.

    The selector always excludes kube-system and the namespace of admitq. Pods of these namespaces must be
    able to start while no webhook answers. Webhooks and controllers both use this selector.

    Raises:
        MalformedField: an operator of the configuration is unknown.
    """
    selector = read_label_selector(
        configuration.managed_jobs_namespace_selector, "managedJobsNamespaceSelector"
    )
    selected = () if selector is None else selector.requirements
    never = (SYSTEM_NAMESPACE, configuration.namespace)
    excluded = SelectorRequirement(NAMESPACE_NAME, SelectorOperator.NOT_IN, never)
    return LabelSelector(selected if excluded in selected else (*selected, excluded))
