"""The commands of the plugin. Heavy imports happen inside a command, so that help stays quick."""

import typer

from admitq.plugin.stop_resume import resume_commands, stop_commands
from admitq.plugin.version import print_versions

application = typer.Typer(
    name="kubectl-admitq",
    help="Queues and workloads of admitq.",
    no_args_is_help=True,
    # The installation of completion that typer offers is for programs without a prefix such as kubectl.
    add_completion=False,
    pretty_exceptions_enable=False,
    # With markup, typer loads rich for each help text.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
application.add_typer(stop_commands, name="stop")
application.add_typer(resume_commands, name="resume")
application.command("version")(print_versions)
