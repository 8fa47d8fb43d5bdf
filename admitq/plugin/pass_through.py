"""``get``, ``edit``, ``describe``, ``patch`` and ``delete``: commands of kubectl for admitq's kinds.

kubectl itself does the work, with all of its options. It gets the full name of the kind, because other
programs may serve kinds of the same name.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from admitq.plugin.command import Arguments, Command, Parameter
from admitq.plugin.object_kinds import KINDS, WORKLOAD, ObjectKind
from admitq.plugin.options import API_GROUP, CLUSTER, CONTEXT, KUBECONFIG, ClusterOptions
from admitq.plugin.remedies import CommandError, choose_group

if TYPE_CHECKING:
    from admitq.plugin.cluster_access import ClusterAccess

KUBECTL: Final = "kubectl"

DELETE: Final = "delete"

PASSED_SUMMARIES: Final[Mapping[str, str]] = {
    "get": "Show queues, flavors or Workloads with kubectl get.",
    "edit": "Edit queues, flavors or Workloads with kubectl edit.",
    "describe": "Describe queues, flavors or Workloads with kubectl describe.",
    "patch": "Change queues, flavors or Workloads with kubectl patch.",
    DELETE: "Delete queues or flavors with kubectl delete, or Workloads with their jobs.",
}
"""The commands of kubectl, with what they do for admitq's kinds."""


def split_group(words: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the words without the option ``--api-group``, which kubectl does not have, and its value."""
    remaining = list(words)
    group = _take_value(remaining, API_GROUP, remove=True)
    return remaining, group or os.environ.get(API_GROUP.variable) or None


def cluster_options(words: Sequence[str], group: str | None) -> ClusterOptions:
    """Return the options that select the cluster, as kubectl reads them from the words."""
    from pathlib import Path

    kubeconfig = _take_value(list(words), KUBECONFIG)
    context = _take_value(list(words), CONTEXT)
    return ClusterOptions(None if kubeconfig is None else Path(kubeconfig), context, None, group)


def _take_value(words: list[str], option: Parameter, *, remove: bool = False) -> str | None:
    """Return the value of an option among words for kubectl; None without it.

    Words after ``--`` are no options.
    """
    end = words.index("--") if "--" in words else len(words)
    for index, word in enumerate(words[:end]):
        name, equals, value = word.partition("=")
        if name not in option.names:
            continue
        size = 1 if equals else 2
        if index + size > end:
            raise CommandError(f"{name}: the value is missing\nWrite {name} {option.metavar}.")
        found = value if equals else words[index + 1]
        if remove:
            del words[index : index + size]
        return found
    return None


def _run(verb: str, kind: ObjectKind, arguments: Arguments) -> None:
    """Replace this process by kubectl. Its exit status becomes that of the command."""
    words, group = split_group(arguments.words)
    if group is None:
        from admitq.plugin.cluster_access import call_cluster

        group = call_cluster(cluster_options(words, None), _find_group)
    else:
        from admitq_api.labels import GROUPS

        group = choose_group(GROUPS, group)
    sys.stdout.flush()
    try:
        os.execvp(KUBECTL, [KUBECTL, verb, f"{kind.plural}.{group}", *words])  # noqa: S606 - the user's kubectl
    except FileNotFoundError as error:
        raise CommandError(
            f"no program {KUBECTL} is on the PATH\nInstall it, or add its folder to the PATH."
        ) from error


async def _find_group(access: "ClusterAccess") -> str:
    return access.names.group


def _command(verb: str, kind: ObjectKind) -> Command:
    names = Parameter(("names",), f"Names of {kind.title}s.", "NAME", is_repeated=True, completes=kind.plural)
    text = (
        f"Run kubectl {verb} for {kind.title}s.\n\n"
        f"All options of kubectl {verb} are possible. The exit status is that of kubectl."
    )
    return Command(
        (verb, kind.name), text, (names, *CLUSTER), partial(_run, verb, kind), kind.aliases, passes_words=True
    )


PASSED_COMMANDS: Final = tuple(
    _command(verb, kind) for verb in PASSED_SUMMARIES for kind in KINDS if (verb, kind) != (DELETE, WORKLOAD)
)
