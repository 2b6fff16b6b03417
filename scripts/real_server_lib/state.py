# SPDX-License-Identifier: GPL-2.0-only
"""What setup made, kept under /run, in a file for each network namespace."""

import fcntl
import json
import os

from ipvs_mhs_tool import ToolError

from .host import namespace_id
from .options import SetUp

DIRECTORY = "/run/real_server"


class Record:
    """What stands in the file."""

    def __init__(self, set_ups, made):
        self.set_ups = set_ups      # the last one; while it is changed the new, too
        self.made = made            # {key of a part: what was before}

    def as_dict(self):
        return {"set_ups": [set_up._asdict() for set_up in self.set_ups],
                "made": self.made}

    @classmethod
    def of_dict(cls, document):
        # JSON has lists in the place of tuples
        return cls([SetUp(**{
            name: tuple(tuple(item) if isinstance(item, list) else item
                        for item in value) if isinstance(value, list) else value
            for name, value in fields.items()})
            for fields in document["set_ups"]], dict(document["made"]))


class State:
    """The file, and the lock of whoever changes something."""

    def __init__(self):
        self._path = os.path.join(DIRECTORY, f"{namespace_id()}.json")

    def lock(self):
        """Until the end of the process, or until what it returns is closed; another
        call waits."""
        try:
            os.makedirs(DIRECTORY, mode=0o755, exist_ok=True)
            fd = os.open(os.path.join(DIRECTORY, "lock"),
                         os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            return fd
        except OSError as error:
            raise ToolError(f"{error.filename or DIRECTORY}: {error.strerror}; "
                            "be root") from error

    def load(self):
        """The Record, or None."""
        try:
            with open(self._path, encoding="utf-8") as file:
                return Record.of_dict(json.load(file))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ToolError(
                f"cannot read {self._path}: {error}; remove that file and run "
                "'real_server setup' again; what is there by then stays after "
                "'real_server clear', too") from error

    def save(self, record):
        """None: nothing is set up."""
        if record is None:
            try:
                os.unlink(self._path)
            except FileNotFoundError:
                pass
            return
        with open(self._path + ".new", "w", encoding="utf-8") as file:
            json.dump(record.as_dict(), file, indent=1)
        os.replace(self._path + ".new", self._path)
