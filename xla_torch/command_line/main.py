"""One run of the command line: errors go to standard error in the standard error format, each with its exit status and without
traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack

import click
from click.shell_completion import shell_complete

from ..core.errors import XlaError
from .commands import COMPLETE, NAME, program
from .messages import FAILED, INTERRUPTED, as_json, error_facts


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if COMPLETE in os.environ and argv is None:
        return shell_complete(program, {}, NAME, COMPLETE, os.environ[COMPLETE])
    in_json = "--json" in arguments
    try:
        with ExitStack() as files, program.make_context(f"python -m {NAME}", arguments, obj=files) as context:
            status = program.invoke(context)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has seen enough. Point stdout elsewhere, or the interpreter complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, click.Abort):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        if in_json:
            print(as_json({"error": error.format_message(), "kind": type(error).__name__}), file=sys.stderr)
        else:
            error.show()
        return error.exit_code
    except XlaError as error:
        return _failed(as_json(error_facts(error)) if in_json else f"error: {error}")
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return _failed(as_json({"error": message, "kind": type(error).__name__}) if in_json else f"error: {message}")
    return status or 0


def _failed(message: str) -> int:
    print(message, file=sys.stderr)
    return FAILED
