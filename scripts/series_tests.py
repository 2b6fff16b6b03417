# SPDX-License-Identifier: GPL-2.0-only
"""The postings, bugs put in on purpose, and what Kbuild says is missing."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
KBUILD = TOP / "net/netfilter/ipvs/Kbuild"
TREE = {
    "Makefile": "VERSION = 7\nPATCHLEVEL = 2\nSUBLEVEL = 9\n",
    "scripts/get_maintainer.pl": "#!/bin/sh\necho 'A <a@b>'\necho l@b\n",
    "net/netfilter/ipvs/Kconfig": "config\tIP_VS_MH\n\tbool\n\n"
                                  "config\tIP_VS_SED\n\tbool\n",
    "net/netfilter/ipvs/Makefile": "a := b\n\n# IPVS core\n"
                                   "obj-$(CONFIG_IP_VS_SED) += ip_vs_sed.o\n",
    "include/crypto/aes.h": "aes_expandkey",
    "include/linux/kernel.h": "hex2bin",
    "include/linux/slab.h": "kzalloc",
    "include/linux/stddef.h": "#define offsetofend",
    "include/linux/rcupdate.h": "call_rcu",
    "include/linux/btf_ids.h": "#define BTF_ID",
    "include/linux/netdevice.h": "ndo_xdp_xmit",
    "include/linux/skbuff.h": "skb_gso_validate_network_len tstamp",
    "include/linux/sysctl.h": "proc_handler(struct ctl_table",
    "include/net/ip_vs.h": "IP_VS_DEST_CF_AVAILABLE totalconns; "
                           "__u64 inpkts; ip_vs_stats tot_stats; "
                           "int num_services6; service_mutex; "
                           "state_transition",
    "include/net/net_namespace.h": "register_net_sysctl",
}
EDIT = """edit

---
--- a/net/netfilter/ipvs/Makefile
+++ b/net/netfilter/ipvs/Makefile
@@ -1,3 +1,4 @@
 a := b
+c := d

 # IPVS core
"""
PERSON = dict(os.environ, GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@b",
              GIT_COMMITTER_NAME="a", GIT_COMMITTER_EMAIL="a@b",
              GIT_CONFIG_GLOBAL="/dev/null")


def git(tree, *command):
    return subprocess.run(["git", "-C", str(tree), *command], env=PERSON,
                          check=True, capture_output=True, text=True).stdout


def write(directory, files):
    for name, text in files.items():
        path = Path(directory, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class Series(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.dir = Path(directory.name)
        self.tree = self.dir / "tree"
        write(self.tree, TREE)
        (self.tree / "scripts/get_maintainer.pl").chmod(0o755)
        git(self.tree, "init", "-q")
        git(self.tree, "add", "-A")
        git(self.tree, "commit", "-q", "-m", "tree")
        self.top = self.dir / "top"

    def small(self):
        """Postings for the tree above: those of the real ones fit the kernel's
        files only (check-series)."""
        series = self.top / "scripts/series"
        for name, patches in ("weights", 1), ("mhs", 2):
            shutil.copytree(TOP / f"scripts/series/{name}", series / name)
            for path in sorted((series / name).glob("*.patch")):
                text = path.read_text().partition("\n---\n")[0]
                if int(path.name[0]) <= patches:
                    path.write_text(text + "\n# file: " + path.stem)
                    write(series / name / "tree", {path.stem: "new\n"})
                else:
                    path.unlink()
        write(series / "mhs", {"2-edit.patch": EDIT})
        shutil.copy(TOP / "scripts/make-series", self.top / "scripts")

    def make(self, name, *options, env=None):
        top = self.top if self.top.exists() else TOP
        return subprocess.run(
            [top / "scripts/make-series", name, self.tree, "-o",
             self.dir / "out", *options], env=env or PERSON,
            capture_output=True, text=True)

    def refused(self, text, name="mhs", **options):
        done = self.make(name, **options)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(text, done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_patches_are_made_and_the_tree_stays(self):
        self.small()
        done = self.make("mhs")
        self.assertEqual(done.stderr, "")
        patches = sorted((self.dir / "out").iterdir())
        self.assertEqual([path.name[:4] for path in patches],
                         ["0000", "0001", "0002", "0003"])
        cover = patches[0].read_text()
        self.assertIn("[RFC PATCH nf-next 0/3] ipvs: mhs,", cover)
        self.assertIn("after hashkey and weights.\nbase-commit: " +
                      git(self.tree, "rev-parse", "HEAD"), cover)
        self.assertNotRegex(cover, r"\*\*\*")
        for patch in patches[1:]:
            self.assertIn("\nSigned-off-by: a <a@b>\n", patch.read_text())
            self.assertIn("\nTo: A <a@b>\nCc: l@b\n", patch.read_text())
            self.assertNotIn("# file:", patch.read_text())
        self.assertEqual(git(self.tree, "status", "--porcelain"), "")

    def test_apply_adds_what_comes_before(self):
        self.small()
        done = self.make("mhs", "--apply")
        self.assertEqual(done.stderr, "")
        self.assertTrue((self.tree / "1-weights").exists())
        self.assertTrue((self.tree / "1-route").exists())
        self.assertIn("c := d", (self.tree / "net/netfilter/ipvs/Makefile")
                      .read_text())
        shutil.rmtree(self.dir / "out")
        self.refused("has 1-route already")

    def test_apply_changes_an_unpacked_source_package(self):
        self.small()
        shutil.rmtree(self.tree / ".git")
        done = self.make("mhs", "--apply")
        self.assertEqual(done.stderr, "")
        self.assertTrue((self.tree / "1-route").exists())

    def test_a_tree_that_a_posting_does_not_fit_is_refused(self):
        self.small()
        write(self.tree, {"net/netfilter/ipvs/Makefile": "other\n"})
        git(self.tree, "commit", "-q", "-a", "-m", "other")
        self.refused("is made for Linux 7.2 and does not fit")
        git(self.tree, "rm", "-q", "net/netfilter/ipvs/Makefile")
        git(self.tree, "commit", "-q", "-m", "none")
        self.refused("not made for this kernel")

    def test_a_posting_to_nobody_is_refused(self):
        self.small()
        write(self.tree, {"scripts/get_maintainer.pl": "#!/bin/sh\n"})
        git(self.tree, "commit", "-q", "-a", "-m", "nobody")
        self.refused("names nobody")

    def test_a_cover_is_a_page(self):
        for path in (TOP / "scripts/series").glob("*/cover"):
            text = path.read_text()
            self.assertLess(text.count("\n"), 140, path)
            self.assertLess(max(map(len, text.splitlines())), 80, path)

    def test_the_links_are_message_ids_on_lore(self):
        links = [line for path in (TOP / "scripts/series").glob("*/*.patch")
                 for line in path.read_text().splitlines()
                 if line.startswith("Link:")]
        self.assertGreater(len(links), 1)
        for line in links:
            self.assertRegex(line, r"^Link: https://lore\.kernel\.org/"
                             r"(all|netdev|lvs-devel)/[^/@\s]+@[^/@\s]+/$")

    def claims(self, **edits):
        """Of the module and of the posting, by claims.c; edits are bugs."""
        added = re.findall(r"^\+(.*)$", (TOP / "scripts/series/mhs/"
                           "4-claim.patch").read_text(), re.M)
        sources = sorted((TOP / "net/netfilter/ipvs").glob("ip_vs_mhs*.[ch]"))
        texts = {
            "posting": ("\n".join(added), r"ip_vs_claim_\w+"),
            "module": ("".join(path.read_text() for path in sources),
                       r"(?:claim_(?!shorten)\w+|entry_whose)")}
        for name, (text, wanted) in texts.items():
            found = re.findall(
                r"^(?:#define (?:CLAIM|ENTRY)_[^\n]*|enum whose \{.*?\};|"
                rf"static [\w\s*]*\b{wanted}\([^;{{]*\n{{.*?^}})$", text,
                re.M | re.S)
            text = "\n".join(found)
            for old, new in edits.get(name, ()):
                self.assertIn(old, text)
                text = text.replace(old, new)
            (self.dir / f"{name}.h").write_text(text)
        subprocess.run(
            ["gcc", "-O2", "-Wall", "-Werror", f"-DMODULE=\"{self.dir}/module.h\"",
             f"-DPOSTING=\"{self.dir}/posting.h\"", "-o", self.dir / "claims",
             TOP / "tools/testing/series/claims.c"], check=True)
        return subprocess.run([self.dir / "claims"], capture_output=True,
                              text=True)

    def test_claims_are_those_of_the_module(self):
        done = self.claims()
        self.assertEqual(done.returncode, 0, done.stdout)
        for name, bug in (
                ("module", ("syn + 1 + bytes", "syn + 2 + bytes")),
                ("module", ("th->rst && (claim", "false && (claim")),
                ("posting", ("i = !makes", "i = 0")),
                ("posting", ("WRITE_ONCE(cp->claim, false)", "(void)0"))):
            self.assertIn("they differ", self.claims(**{name: [bug]}).stdout)

    def test_uncommitted_changes_are_refused(self):
        write(self.tree, {"Makefile": TREE["Makefile"] + "# changed\n"})
        self.refused("changes that are not committed")

    def test_an_old_tree_is_refused(self):
        write(self.tree, {"Makefile": TREE["Makefile"].replace("= 2", "= 1")})
        git(self.tree, "commit", "-q", "-a", "-m", "old")
        self.refused("is Linux 7.1, and the postings are made for 7.2")

    def test_another_directory_is_refused(self):
        write(self.tree, {"Makefile": "all:\n"})
        self.refused("is not a kernel tree")

    def test_nobody_is_refused(self):
        nobody = {k: v for k, v in PERSON.items()
                  if not k.startswith(("GIT_", "EMAIL"))}
        nobody.update(GIT_CONFIG_GLOBAL="/dev/null",
                      GIT_CONFIG_NOSYSTEM="1", GIT_CONFIG_COUNT="2",
                      GIT_CONFIG_KEY_0="user.name", GIT_CONFIG_VALUE_0="",
                      GIT_CONFIG_KEY_1="user.email", GIT_CONFIG_VALUE_1="")
        self.refused("tell git who you are", env=nobody)


class Bugs(unittest.TestCase):
    def test_bugs_put_in_on_purpose_still_fit(self):
        patches = sorted(TOP.glob("tools/testing/*/bugs/*.patch"))
        self.assertGreater(len(patches), 10)
        for path in patches:
            done = subprocess.run(
                ["patch", "-d", TOP, "-p1", "--fuzz=0", "--dry-run", "-i",
                 path], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, f"{path}: {done.stdout}")


class Probes(unittest.TestCase):
    """Each difference between kernels that Kbuild looks for."""

    def probe(self, headers, config="CONFIG_IP_VS=y"):
        with tempfile.TemporaryDirectory() as directory:
            write(directory, headers)
            return subprocess.run(
                ["make", "-s", "-f", "-", f"srctree={directory}", "src=.",
                 "CONFIG_MODULES=y", config], text=True,
                input=f"all: ; @echo $(mhs-flags)\ninclude {KBUILD}\n",
                capture_output=True)

    def test_a_kernel_without_either_form_is_told_what_is_missing(self):
        headers = {k: v for k, v in TREE.items() if k.startswith("include")}
        self.assertEqual(self.probe(headers).returncode, 0)
        rows = re.findall(r"mhs-either,(\w+),([^,]+),([^,]+),([^,]+),(.+?)\) ?"
                          r"\\?$", KBUILD.read_text(), re.M)
        self.assertGreater(len(rows), 8)
        for flag, header, pattern, other, other_pattern in rows:
            blind = dict(headers)
            for name, hidden in ((header, pattern), (other, other_pattern)):
                name = f"include/{name}"
                blind[name] = re.sub(hidden.replace("[[:space:]]", r"\s"),
                                     "hidden", blind.get(name, ""))
            done = self.probe(blind)
            self.assertNotEqual(done.returncode, 0, flag)
            self.assertRegex(done.stderr, "does not know this kernel|"
                             "needs Linux 5.10 or later", flag)
            self.assertIn(re.findall(r"\w+", other_pattern)[-1], done.stderr)

    def test_an_old_kernel_is_told_which_one_is_needed(self):
        headers = {k: v.replace("int num_services6;", "")
                   for k, v in TREE.items() if k.startswith("include")}
        done = self.probe(headers)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("ip_vs_mhs needs Linux 5.10 or later: this kernel is "
                      "older", done.stderr)
        self.assertNotIn("does not know", done.stderr)

    def test_a_kernel_without_ipvs_is_told_so_by_kbuild(self):
        headers = {k: v for k, v in TREE.items() if k.startswith("include")}
        self.assertEqual(self.probe(headers, "CONFIG_IP_VS=m").returncode, 0)
        done = self.probe(headers, "CONFIG_IP_VS=")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("needs a kernel with CONFIG_IP_VS", done.stderr)

    def build(self, files):
        """make, by headers that only have these files."""
        with tempfile.TemporaryDirectory() as directory:
            write(directory, files)
            return subprocess.run(
                ["make", "-s", "-C", TOP, "module", f"KDIR={directory}"],
                env={"PATH": os.environ["PATH"]}, capture_output=True,
                text=True)

    def test_a_kernel_without_ipvs_is_told_so_by_make(self):
        tree = {"Makefile": "modules: ; @echo built\n"}
        for name in ("include/config/auto.conf", ".config"):
            for line in ("CONFIG_IP_VS=y\n", "CONFIG_IP_VS=m\n"):
                done = self.build({**tree, name: line})
                self.assertEqual(done.stdout, "built\n", done.stderr)
            for line in ("", "# CONFIG_IP_VS is not set\n",
                         "CONFIG_IP_VS_MH=m\n"):
                done = self.build({**tree, name: line})
                self.assertNotEqual(done.returncode, 0, line)
                self.assertNotIn("built\n", done.stdout)
                self.assertRegex(done.stderr,
                                 "The kernel of .* is built without "
                                 "CONFIG_IP_VS")
        self.assertIn("No kernel headers in", self.build({}).stderr)

    def test_a_module_goes_where_its_kernel_looks_for_it(self):
        # in Debian's headers kernel.release is the upstream version
        with tempfile.TemporaryDirectory() as directory:
            write(directory, {
                "include/config/kernel.release": "6.1.192\n",
                "include/generated/utsrelease.h":
                    '#define UTS_RELEASE "6.1.0-56-amd64"\n'})
            done = subprocess.run(
                ["make", "-s", "-n", "-C", TOP, "uninstall",
                 f"KDIR={directory}", "DESTDIR=/staging"],
                env={"PATH": os.environ["PATH"]}, capture_output=True,
                text=True)
        self.assertIn("/staging/lib/modules/6.1.0-56-amd64/updates/"
                      "ip_vs_mhs.ko", done.stdout)
