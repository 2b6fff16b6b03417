# SPDX-License-Identifier: GPL-2.0-only
"""The version of the tools, which is the packages' and the module's: the first
line of debian/changelog is its one source.  'make install-tools' writes it in
here; the tools in the source tree read the source itself."""

import os
import re

_INSTALLED = "#VERSION#"
_SOURCE = os.path.join(os.path.dirname(os.path.realpath(__file__)),
                       "../debian/changelog")


def version():
    if not _INSTALLED.startswith("#"):
        return _INSTALLED
    try:
        with open(_SOURCE, encoding="utf-8") as file:
            return re.match(r"\S+ \((\S+)\)", file.readline())[1]
    except (OSError, TypeError):
        return "unknown"
