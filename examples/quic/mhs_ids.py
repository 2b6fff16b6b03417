# SPDX-License-Identifier: GPL-2.0-only
"""Connection IDs of aioquic that name their server, as mhs reads them."""
import ipaddress
import os
import types

from aioquic.quic import connection
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

LENGTH = 17     # one octet, then a block; aioquic asks for so many for IDs alone


def issue(configuration, address, key=None, number=0):
    """All servers of this process have that address in the director's list; key:
    the 32 hex digits of the service in quic_ids, if it has any; number: of the
    configuration there, from 0 to 6."""
    server = ipaddress.ip_address(address).packed[-4:]
    aes = key and Cipher(algorithms.AES(bytes.fromhex(key)), modes.ECB())

    def urandom(size):
        if size != LENGTH:
            return os.urandom(size)
        block = server + os.urandom(12)
        if aes:
            block = aes.encryptor().update(block)
        return bytes([number << 5 | size - 1]) + block

    configuration.connection_id_length = LENGTH
    connection.os = types.SimpleNamespace(urandom=urandom)
