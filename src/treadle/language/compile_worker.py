"""A process that compiles one kernel for `treadle.autotune`: a pickled request on stdin, the pickled answer on stdout.

A process of its own rather than one of multiprocessing's: those run the user's script again.
"""

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.driver import Program
    from treadle.options import CompileOptions


def compile_apart(text: str, target: str, options: "CompileOptions | None") -> "Program | str":
    """A kernel at tile level compiled in a process of its own; why there is none, as text, where that fails."""
    command = [sys.executable, "-m", "treadle.language.compile_worker"]
    done = subprocess.run(command, input=pickle.dumps((text, target, options)), capture_output=True, check=False)
    if done.returncode:
        return done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or f"the compiler ended with {done.returncode}"
    return pickle.loads(done.stdout)


def _answer(request: bytes) -> bytes:
    from treadle.driver import compile as compile_program
    from treadle.errors import TreadleError

    text, target, options = pickle.loads(request)
    try:
        return pickle.dumps(compile_program(text, target, options, level="tile"))
    except TreadleError as error:
        return pickle.dumps(f"{error.code}: {error.message}")


if __name__ == "__main__":
    sys.stdout.buffer.write(_answer(sys.stdin.buffer.read()))
