"""The command line's verbs. A verb's module is imported only when the verb is called, so that `--help` is fast."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Mapping
from typing import Any, Final

import click

from . import version
from .errors import RingscopeError
from .terminals import plain, shortened, show_everything

# Imports create some 75 000 objects. With Python's default, the garbage collector takes a tenth of the start-up time.
_OBJECTS_BETWEEN_LOOKS: Final = 100_000
# Errors of writing to standard output, for instance on a full disk.
_CANNOT_PRINT: Final = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO)


INTERRUPTED: Final = 130  # the exit code of a shell's command that Ctrl-C ended
UNREAD: Final = 141  # the exit code of a shell's command whose output nobody reads any longer (`... | head -1`)


class LazyGroup(click.Group):
    """A group of commands. `verbs`: name -> (module, one-line help); the module holds a click command called
    `command`."""

    def __init__(self, *, verbs: Mapping[str, tuple[str, str]], **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        text = "Show the versions of ringscope, Python and the platform, and exit."
        click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_say_version, help=text)(
            self
        )
        self.verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.verbs:
            return None
        command: click.Command = importlib.import_module(self.verbs[name][0]).command
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # as ringscope/__main__.py set it; else it may be ignored
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        import difflib

        near = difflib.get_close_matches(args[0], self.verbs, 1) if args[0] not in self.verbs else []
        if near and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command '{args[0]}'. Did you mean '{near[0]}'?", ctx)
        return super().resolve_command(ctx, args)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise _in_one_line(error, info_name) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; Ctrl-C exits with INTERRUPTED, since click's exit code 1 has a meaning for some verbs
        (failed cells)."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise _in_one_line(error, f"{ctx.command_path} {ctx.invoked_subcommand}") from None
        except KeyboardInterrupt:
            print("\nringscope: interrupted", file=sys.stderr)
            sys.exit(INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, text) for name, (_, text) in self.verbs.items()])


def _say_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(version.line())  # starts `uname`
        ctx.exit()


def _in_one_line(error: click.UsageError, called: str | None) -> Exception:
    """The error as one line without the usage; for a call without a verb click's error, which shows the help.
    `called`: the command, for errors that do not name theirs, such as an option without its value."""
    if type(error).__name__ == "NoArgsIsHelpError":  # since click 8.2
        return error
    path = error.ctx.command_path if error.ctx else called
    said = " ".join(error.format_message().split()).rstrip(".")
    end = "" if said.endswith(("?", "?)")) else ";"  # click may end with "Did you mean '--json'?"
    return RingscopeError(f"{said[:1].lower()}{said[1:]}{end} `{path} --help` says more")


def run(group: LazyGroup) -> None:
    """Run the command line. An error that the user can mend becomes one line and an exit code. That code is never 1,
    which has a meaning for some verbs."""
    gc.set_threshold(_OBJECTS_BETWEEN_LOOKS)
    if not sys.warnoptions:  # libraries' warnings would mix with the command's output
        warnings.simplefilter("ignore")
    if not os.environ.get("COLUMNS", "80").strip("0"):  # 0 columns mean an unknown width; rich would print nothing
        del os.environ["COLUMNS"]
    stdout = sys.stdout
    show_everything(stdout, sys.stderr)
    try:
        group.main(standalone_mode=True)
    except SystemExit as end:
        # If nobody reads the output any longer, click (which then replaces stdout) and rich exit with 1.
        if sys.stdout is not stdout or isinstance(end.__context__, BrokenPipeError):
            end.code = UNREAD
        raise
    except MemoryError:
        print(
            "ringscope: out of memory; give fewer recordings at once, or cut one with `ringscope cut`", file=sys.stderr
        )
        sys.exit(2)
    except RingscopeError as error:
        said = plain(f"ringscope: {error}")
        print(shortened(said) if sys.stderr.isatty() else said, file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.filename is None and error.errno == errno.ENOENT:  # raised by os.getcwd
            print(
                "ringscope: the working directory is gone; change to another, or give absolute paths", file=sys.stderr
            )
            sys.exit(2)
        if error.filename is None and error.errno not in _CANNOT_PRINT:
            raise
        about = error.filename or "what is printed"
        if error.filename is None:  # otherwise the flush at exit would fail again, and change the exit code
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(plain(f"ringscope: {about}: {error.strerror}"), file=sys.stderr)
        sys.exit(2)
