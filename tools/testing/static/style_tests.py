# SPDX-License-Identifier: GPL-2.0-only
"""Each static check reports a file that is bad in its way."""

import subprocess
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
C = "// SPDX-License-Identifier: GPL-2.0-only\n"
BAD = {
    "net/space.c": (C + "int a=1 ;\n", "space.c"),
    "net/doc.c": (C + "/**\n * f() - f\n * @b: no\n */\nint f(int a)\n{\n"
                  "\treturn a;\n}\n", "'a' not described"),
    "net/value.c": (C + "/**\n * f() - f\n * @a: a\n */\nint f(int a)\n{\n"
                    "\treturn a;\n}\n", "return value of 'f'"),
    "quote.sh": ("#!/bin/bash\nls $1\n", "SC2086"),
    "tool.bash-completion": ("# shellcheck shell=bash\nls $1\n", "SC2086"),
    "name.py": ("print(x)\n", "F821"),
    "script": ("#!/usr/bin/python3\nprint(y)\n", "F821"),
    "mark.rst": ("a\n=\n\n``b\n", "without end-string"),
    "tools/testing/selftests/wait.sh": ("#!/bin/bash\nsleep 1\n",
                                        "waits for conditions"),
    "early.sh": ("#!/bin/bash\nset -o pipefail\nls | grep -q a\n",
                 "ends early"),
    "tools/testing/selftests/net/ipvs_mhs/port.py": (
        "import socket\ns = socket.socket()\ns.bind(('::', 0))\n",
        "bind_fresh"),
    "word.txt": ("an occu" "red error\n", "occu" "red"),
}


class Style(unittest.TestCase):
    def test_bad_files_are_reported(self):
        with tempfile.TemporaryDirectory() as directory:
            for name, (text, _) in BAD.items():
                path = Path(directory, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            Path(directory, "include").mkdir()
            done = subprocess.run([HERE / "style", directory],
                                  capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        for name, (_, said) in BAD.items():
            lines = [line for line in done.stdout.splitlines()
                     if Path(name).name in line and said in line]
            self.assertNotEqual(lines, [], f"{name}:\n{done.stdout}")
