"""Rules of Cohorts that their schema cannot express."""

from collections.abc import Mapping
from typing import Any

from admitq_api.field_errors import ErrorPath, FieldError, check_text
from admitq_api.json_objects import object_at, text_at
from admitq_api.syntax import check_dns_subdomain
from admitq_webhooks.validate.quotas import QuotaRules, validate_fair_sharing, validate_resource_groups


def validate(cohort: Mapping[str, Any]) -> list[FieldError]:
    """Check a Cohort. A cycle of parents is accepted; it stops admission in these cohorts."""
    spec = object_at(cohort, ("spec",))
    parent = text_at(spec, ("parentName",))
    rules = QuotaRules(
        has_parent=bool(parent),
        parent="parent",
        parent_field="spec.parentName",
        lending_up_to_nominal=False,
    )
    return [
        *(check_text(ErrorPath("spec.parentName"), parent, check_dns_subdomain) if parent else ()),
        *validate_resource_groups(spec, rules),
        *validate_fair_sharing(spec),
    ]
