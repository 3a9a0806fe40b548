"""A program that is `playhead` until it calls a function of a given name: then it kills itself."""

_PROGRAM = """
import os, signal, sys, threading
name, left = sys.argv.pop(1), int(sys.argv.pop(1))
def count(frame, event, arg):
    global left
    if event == "call" and frame.f_code.co_name == name and "/playhead/" in frame.f_code.co_filename:
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
threading.setprofile(count)
sys.setprofile(count)
{first}
sys.argv[0] = "playhead"
from playhead.__main__ import main
main()
"""


def killed_in_call(first: str = "") -> str:
    """For `python -c`, with the name of the function, the number of the call, and the words of the command. `first`: statements
    that run before the command."""
    return _PROGRAM.format(first=first)
