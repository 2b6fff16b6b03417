# SPDX-License-Identifier: GPL-2.0-only
"""What setup did, kept under /run: the kernel can show neither the limit of
a plug nor whether it is shut, and not who made it.

One directory for each network namespace; in it, for each device,
  DEVICE.lane   what setup was told and made
  DEVICE.lock   held (flock) by whoever changes the lane or holds packets
  DEVICE.sock   where the watchdog of a hold listens
"""

import errno
import fcntl
import os
import time

from .errors import ToolError
from .lane import Lane
from .system import namespace_id

DEFAULT_DIRECTORY = "/run/qdisc_tool"


class State:
    """The state of one network namespace."""

    def __init__(self, directory):
        self.top = directory
        self.directory = os.path.join(directory, namespace_id())

    def path(self, device, suffix):
        return os.path.join(self.directory, f"{device}.{suffix}")

    def prepare(self):
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
        except OSError as error:
            raise ToolError(f"cannot make {self.directory}: {error.strerror}"
                            ) from error

    def lanes(self, warn):
        """Every lane that is set up here; warn() of what cannot be read."""
        try:
            names = sorted(os.listdir(self.directory))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ToolError(f"cannot read {self.directory}: {error.strerror}"
                            ) from error
        found = []
        for name in names:
            if name.endswith(".lane"):
                try:
                    found.append(self.load(name[:-len(".lane")]))
                except ToolError as error:
                    warn(str(error))
        return [lane for lane in found if lane]

    def load(self, device):
        """The lane of a device, or None."""
        path = self.path(device, "lane")
        try:
            with open(path, encoding="utf-8") as file:
                return Lane.from_text(file.read())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ToolError(
                f"cannot read {path}: {error}; remove that file and what "
                f"setup made ('tc qdisc del dev {device} root handle 7f1f:', "
                "or the device plugN whose alias names this one), then run "
                "'setup' again") from error

    def save(self, lane):
        """Also of a lane in the making: see Lane.complete."""
        path = self.path(lane.device, "lane")
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(lane.text())
        os.replace(path + ".new", path)

    def forget(self, device):
        for suffix in ("lane", "sock"):
            try:
                os.unlink(self.path(device, suffix))
            except FileNotFoundError:
                pass

    def unwritable(self, device):
        """Why a hold cannot have its files: a sentence, or None."""
        path = self.path(device, "tried")
        try:
            with open(path, "wb") as file:
                file.write(bytes(os.sysconf("SC_PAGE_SIZE")))
            os.unlink(path)
        except OSError as error:
            return f"cannot write {path}: {error.strerror}"
        return None

    def lock(self, device, wait_s=0.0):
        """The lock of a lane as an open file descriptor, or None if another
        process keeps it for longer than @wait_s."""
        path = self.path(device, "lock")
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ToolError(f"cannot open {path}: {error.strerror}") from error
        give_up = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except OSError as error:
                if error.errno != errno.EWOULDBLOCK:
                    raise
            if time.monotonic() >= give_up:
                os.close(fd)
                return None
            time.sleep(0.01)
