"""Runs a program as on a kernel without Landlock: a seccomp filter fails its three system calls with ENOSYS."""

import ctypes
import os
import struct
import sys

LANDLOCK_CALLS = (444, 445, 446)
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL_WITH_ENOSYS = 0x7FFF0000, 0x00050000 | 38
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2

program = [(LOAD, 0, 0, 0)]
for call in LANDLOCK_CALLS:
    program += [(JUMP_IF_EQUAL, 0, 1, call), (RETURN, 0, 0, FAIL_WITH_ENOSYS)]
program.append((RETURN, 0, 0, ALLOW))
text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
header = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(text))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(SECCOMP, FILTER, header, 0, 0):
    sys.exit(os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
