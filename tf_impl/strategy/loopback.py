"""Keeping TensorFlow's server, which listens on every address, to this machine."""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import struct

_SO_ATTACH_FILTER = 26
_NETWORK = 0xFFF00000  # where the IP header begins, in the filter's addressing
_LOAD_BYTE, _LOAD_WORD, _AND, _IF_EQUAL, _RETURN = 0x30, 0x20, 0x54, 0x15, 0x06
# (operation, jump if equal, jump if not, operand): lets through what comes from 127.0.0.0/8 or ::1.
_PROGRAM = (
    (_LOAD_BYTE, 0, 0, _NETWORK),
    (_AND, 0, 0, 0xF0),
    (_IF_EQUAL, 0, 2, 0x40),  # version 4; else on to version 6
    (_LOAD_BYTE, 0, 0, _NETWORK + 12),
    (_IF_EQUAL, 9, 8, 127),
    (_LOAD_WORD, 0, 0, _NETWORK + 8),
    (_IF_EQUAL, 0, 6, 0),
    (_LOAD_WORD, 0, 0, _NETWORK + 12),
    (_IF_EQUAL, 0, 4, 0),
    (_LOAD_WORD, 0, 0, _NETWORK + 16),
    (_IF_EQUAL, 0, 2, 0),
    (_LOAD_WORD, 0, 0, _NETWORK + 20),
    (_IF_EQUAL, 1, 0, 1),
    (_RETURN, 0, 0, 0),
    (_RETURN, 0, 0, 0xFFFFFFFF),
)


def accept_only_this_machine(port: int) -> bool:
    """Have this process's server at `port` ignore what comes from elsewhere; False where that cannot be had.

    TensorFlow offers no address to bind to, and its server obeys whoever reaches it. A filter on the
    listening socket is inherited by every connection.
    """
    instructions = b"".join(struct.pack("HBBI", *instruction) for instruction in _PROGRAM)
    buffer = ctypes.create_string_buffer(instructions, len(instructions))
    program = struct.pack("HL", len(_PROGRAM), ctypes.addressof(buffer))
    attached = False
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            # A copy: closing the object must not close TensorFlow's.
            with socket.socket(fileno=os.dup(descriptor)) as found:
                listening = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if listening and found.getsockname()[1] == port:
                    found.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
                    attached = True
        except OSError:
            continue  # gone since, or a kind of socket without addresses
    return attached
