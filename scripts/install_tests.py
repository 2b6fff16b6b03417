# SPDX-License-Identifier: GPL-2.0-only
"""make dkms when it fails, tools that are installed twice, links of the packaged
README: with stand-ins, in directories of the tests' own."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
# keeps what is registered as DKMS does, in a file
DKMS = """#!/bin/sh
case $1 in
status) cat "$STATE/registered" 2>/dev/null ;;
install)
    echo "ipvs-mhs, added" >"$STATE/registered"
    mkdir -p "$STATE/var/lib/dkms/ipvs-mhs/$VERSION/build"
    echo "error: no such thing" >"$STATE/var/lib/dkms/ipvs-mhs/$VERSION/build/make.log"
    exit "$INSTALL_STATUS" ;;
remove) rm "$STATE/registered" ;;
esac
"""


class Directory(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.dir = Path(directory.name)

    def write(self, name, text="", mode=0o644):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path


class Dkms(Directory):
    VERSION = re.match(r"\S+ \((\S+)\)",
                       (TOP / "debian/changelog").read_text())[1]

    def setUp(self):
        super().setUp()
        self.dkms = self.write("dkms", DKMS, 0o755)

    def make(self, status=0, dkms=None, headers=True):
        if headers:
            self.write("headers/Makefile")
            self.write("headers/.config", "CONFIG_IP_VS=m\n")
        return subprocess.run(
            ["make", "-s", "-C", TOP, "dkms", f"DKMS={dkms or self.dkms}",
             f"KDIR={self.dir}/headers", "RELEASE=6.1.0-99-test",
             f"DESTDIR={self.dir}"],
            env={"PATH": os.environ["PATH"], "STATE": str(self.dir),
                 "VERSION": self.VERSION, "INSTALL_STATUS": str(status)},
            capture_output=True, text=True)

    def left(self):
        return [path.name for path in (self.dir / "registered",
                                       self.dir / "usr/src/ipvs-mhs-"
                                       f"{self.VERSION}") if path.exists()]

    def test_success_says_what_is_next(self):
        done = self.make()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.left()), 2)
        self.assertRegex(done.stdout.splitlines()[-1],
                         rf"^ip_vs_mhs {self.VERSION} is there for "
                         "6.1.0-99-test .*; next: make install-tools, then")

    def test_a_build_that_fails_leaves_nothing(self):
        done = self.make(status=10)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(self.left(), [])
        self.assertIn("nothing is registered", done.stderr)
        self.assertIn("error: no such thing", done.stderr)
        self.assertNotIn("next:", done.stdout)

    def test_without_headers_nothing_is_touched(self):
        self.make()
        (self.dir / "headers/Makefile").unlink()
        done = self.make(headers=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("linux-headers-6.1.0-99-test", done.stderr)
        self.assertIn("kernel-devel-6.1.0-99-test", done.stderr)
        self.assertEqual(len(self.left()), 2)

    def test_without_headers_the_first_time(self):
        self.assertNotEqual(self.make(headers=False).returncode, 0)
        self.assertEqual(self.left(), [])

    def test_without_dkms(self):
        done = self.make(dkms="no-such-dkms")
        self.assertIn("install the package dkms", done.stderr)
        self.assertEqual(self.left(), [])


class Shadow(Directory):
    def note(self, *path):
        done = subprocess.run(
            [TOP / "scripts/shadow_note", f"{self.dir}/local/sbin", "mhsstat",
             "real_server"], capture_output=True, text=True, check=True,
            env={"PATH": ":".join([f"{self.dir}/{name}" for name in path] +
                                  [os.environ["PATH"]])})
        self.assertEqual(done.stdout, "")
        return done.stderr

    def setUp(self):
        super().setUp()
        for name in ("mhsstat", "real_server"):
            self.write(f"local/sbin/{name}", mode=0o755)
        (self.dir / "usr/sbin").mkdir(parents=True)

    def test_one_copy(self):
        self.assertEqual(self.note("local/sbin", "usr/sbin"), "")

    def test_another_that_is_hidden(self):
        self.write("usr/sbin/mhsstat", mode=0o755)
        said = self.note("local/sbin", "usr/sbin")
        self.assertEqual(said.count("\n"), 1)
        self.assertIn(f"local/sbin/mhsstat hides {self.dir}/usr/sbin/mhsstat",
                      said)
        self.assertIn(f"make uninstall-tools PREFIX={self.dir}/usr", said)

    def test_another_that_comes_first(self):
        self.write("usr/sbin/mhsstat", mode=0o755)
        said = self.note("usr/sbin", "local/sbin")
        self.assertIn("usr/sbin/mhsstat comes before", said)

    def test_the_same_directory_by_two_names(self):
        (self.dir / "sbin").symlink_to("local/sbin")
        self.assertEqual(self.note("sbin", "local/sbin"), "")

    def test_no_program(self):
        self.write("usr/sbin/mhsstat")
        self.assertEqual(self.note("usr/sbin", "local/sbin"), "")

    def test_install_tools_says_it(self):
        self.write("usr/sbin/mhsstat", mode=0o755)
        done = subprocess.run(
            ["make", "-s", "-C", TOP, "install-tools",
             f"PREFIX={self.dir}/local"], capture_output=True, text=True,
            env={"PATH": f"{self.dir}/local/sbin:{self.dir}/usr/sbin:"
                         f"{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("hides", done.stderr)


class Links(Directory):
    """Wherever a link of the packaged README leads."""

    def dead(self, path):
        text = path.read_text()
        links = re.findall(r"\]\(([^)\s]+)|(?:src|href)=\"([^\"]+)\"|"
                           r"^\[[^\]]+\]: (\S+)", text, re.M)
        links = {next(filter(None, link)).split("#")[0] for link in links}
        links = {link for link in links if link and ":" not in link}
        self.assertGreater(len(links), 5)
        return sorted(link for link in links
                      if not (path.parent / link).exists())

    def test_of_the_source_tree(self):
        self.assertEqual(self.dead(TOP / "README.md"), [])

    def test_of_a_package(self):
        subprocess.run(["make", "-s", "-C", TOP, "install-docs",
                        f"DOCDIR={self.dir}/doc"], check=True,
                       capture_output=True)
        self.assertEqual(self.dead(self.dir / "doc/README.md"), [])

    def test_control_a_file_that_is_missing(self):
        self.write("README.md", (TOP / "README.md").read_text())
        self.assertGreater(len(self.dead(self.dir / "README.md")), 5)


if __name__ == "__main__":
    unittest.main()
