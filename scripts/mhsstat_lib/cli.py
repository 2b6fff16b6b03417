# SPDX-License-Identifier: GPL-2.0-only
"""From the command line to the exit status."""

import json
import os
import signal
import sys
import tempfile

from . import prometheus, text
from .errors import (EXIT_FAILED, EXIT_OK, EXIT_PROBLEM, EXIT_SIGNAL,
                     ToolError)
from .options import parser
from .snapshot import as_json, read_services, select


def _warn(words):
    print(f"mhsstat: {words}", file=sys.stderr)


def _replace(path, content):
    """Whoever reads the file finds the old one or the new one, whole."""
    directory = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(prefix=".mhsstat.", dir=directory)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o644)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def _show(options):
    services = read_services(options.file)
    if options.service:
        services = select(services, options.service)
    if options.json:
        content = json.dumps(as_json(services, live=not options.file),
                             indent=1) + "\n"
    elif options.prometheus:
        content = prometheus.render(services)
    elif services:
        content = text.show(services) + "\n"
    else:
        content = "no service with the scheduler mhs\n"
    if options.output:
        _replace(options.output, content)
    else:
        sys.stdout.write(content)
    return EXIT_OK


def _watch(options):
    from .watch import watch
    return watch(options)


def _wait(options):
    from .wait import wait
    return wait(options)


def _plan(options):
    from . import plan
    result = plan.compute(options)
    print(json.dumps(result, indent=1) if options.json
          else plan.render(result))
    return plan.verdict(result, _warn)


def _compare(options):
    from .compare import Director, differences, unsettled
    if options.file.count("-") > 1:
        raise ToolError("standard input can be read once only")
    directors = [Director.of_file(path) for path in options.file]
    if len(directors) == 1:
        directors.insert(0, Director.of_this_host())
    for line in unsettled(directors):
        _warn(line)
    status = EXIT_OK
    for other in directors[1:]:
        for line in differences(directors[0], other):
            print(line)
            status = EXIT_PROBLEM
    if status == EXIT_OK:
        names = sum(len(s) for s in directors[0].services.values())
        print(f"{len(directors)} directors forward alike: {names} service(s)")
    return status


def main(argv):
    options = parser().parse_args(argv)
    try:
        status = {"show": _show, "watch": _watch, "wait": _wait,
                  "plan": _plan, "compare": _compare}[options.action](options)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return EXIT_SIGNAL + signal.SIGINT
    except BrokenPipeError:
        # The reader has seen enough; Python must not complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_SIGNAL + signal.SIGPIPE
    except (ToolError, OSError) as error:
        _warn(str(error))
        return EXIT_FAILED
