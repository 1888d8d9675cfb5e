"""A script that becomes the given command, which gets SIGTERM as soon as the starting process ends (Linux)."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() == parent:  # else it ended before we could ask
        os.execvp(command[0], command)
