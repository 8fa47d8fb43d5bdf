"""``completion``: the scripts with which shells complete, and the program that answers kubectl and them."""

import sys
from collections.abc import Mapping
from typing import Final

from admitq.plugin.command import Arguments, Command, Parameter
from admitq.plugin.completion import Answer

ANSWERER: Final = "kubectl_complete-admitq"
"""The program that kubectl runs to complete a command line of the plugin."""

NO_FILES: Final = ":4"
DEFAULT: Final = ":0"
"""The last line of an answer to kubectl: whether names of files may follow."""

SCRIPTS: Final[Mapping[str, str]] = {
    "bash": """\
_kubectl_admitq() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :0) ;;
            :*) compopt +o bashdefault +o default 2>/dev/null ;;
            *) COMPREPLY+=("${line%%$'\\t'*}") ;;
        esac
    done < <(kubectl_complete-admitq "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o bashdefault -o default -F _kubectl_admitq kubectl-admitq
""",
    "zsh": """\
#compdef kubectl-admitq
_kubectl_admitq() {
    local line files
    local -a candidates
    while IFS= read -r line; do
        [[ $line == :0 ]] && files=1
        [[ $line == :* ]] && continue
        line=${line//:/\\\\:}
        candidates+=("${line/$'\\t'/:}")
    done < <(kubectl_complete-admitq "${(@)words[2,CURRENT]}" 2>/dev/null)
    [[ ${words[CURRENT]} == -*=* ]] && compset -P '*='
    if (( ${#candidates} )); then
        _describe 'kubectl admitq' candidates
    elif [[ -n $files ]]; then
        _files
    fi
}
compdef _kubectl_admitq kubectl-admitq
""",
    "fish": """\
function __kubectl_admitq_complete
    set -l current (commandline -ct)
    set -l words (commandline -opc) "$current"
    set -l prefix (string match -r -- '^-[^=]*=' "$current")
    for line in (kubectl_complete-admitq $words[2..-1] 2>/dev/null)
        switch "$line"
            case ':0'
                printf '%s\\n' "$prefix"(__fish_complete_path (string replace -- "$prefix" '' "$current"))
            case ':*'
            case '*'
                echo "$prefix$line"
        end
    end
end
complete -c kubectl-admitq -f -a '(__kubectl_admitq_complete)'
""",
}
"""The scripts. They complete ``kubectl-admitq``; the script of kubectl completes ``kubectl admitq``.

Each reads candidates and the directive of ``render_answer``. It completes names of files only if these may
follow.
"""


def print_script(arguments: Arguments) -> None:
    """Print the script of a shell."""
    print(SCRIPTS[arguments.shell], end="")


def render_answer(answer: Answer) -> str:
    """Return an answer as kubectl reads it: a candidate a line with its meaning, then the directive."""
    lines = [
        f"{one.value}\t{one.meaning}" if one.meaning else one.value
        for one in answer.candidates
        # Names in a kubeconfig may be any text, and a line end would begin another candidate.
        if one.value.isprintable()
    ]
    return "\n".join([*lines, DEFAULT if answer.files else NO_FILES])


def answer_kubectl() -> None:
    """Entry point of ``kubectl_complete-admitq``: print what may come next on a command line."""
    from admitq.plugin.application import COMMANDS, SUMMARIES
    from admitq.plugin.completion import complete
    from admitq.plugin.live_names import look_up

    print(render_answer(complete(sys.argv[1:], COMMANDS, SUMMARIES, look_up)))


COMPLETION: Final = Command(
    ("completion",),
    "Print the script with which a shell completes kubectl-admitq.\n\n"
    f"kubectl itself completes kubectl admitq: it runs {ANSWERER}, which is installed with the plugin.",
    (Parameter(("shell",), "The shell.", choices=tuple(SCRIPTS)),),
    print_script,
)
