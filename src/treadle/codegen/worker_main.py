"""The code generation process: reads requests from its input, answers on its output. Imports `llvmlite.binding` and nothing of Treadle.

A message is a 4-byte big-endian length and a pickle. Request: a dict as `worker.LlvmJob` describes. Answer: ("ok", str | bytes),
("parse", text), ("verify", text) or ("target", text). LLVM aborts the process on what it calls fatal errors; the parent sees the end of the
stream and reads the reason from the error output.
"""

import os
import pickle
import struct
import sys
from typing import Any, BinaryIO

import llvmlite.binding as llvm


def generate(job: dict[str, Any]) -> tuple[str, str | bytes]:
    """Answer one request. A parsed module is emitted once only: a second emission aborts LLVM."""
    try:
        target = llvm.Target.from_triple(job["triple"])
        machine = target.create_target_machine(
            cpu=job["cpu"], features=job["features"], opt=job["opt_level"], reloc="pic", codemodel="default"
        )
    except RuntimeError as problem:
        return "target", str(problem)
    text: str = job["text"]
    if "target datalayout" not in text:
        # On the line of the triple, so that line numbers in messages stay the text's own.
        text = text.replace("target triple", f'target datalayout = "{machine.target_data}" target triple', 1)
    try:
        module = llvm.parse_assembly(text)
    except RuntimeError as problem:
        return "parse", str(problem)
    try:
        module.verify()
    except RuntimeError as problem:
        return "verify", str(problem)
    if job["passes"]:
        options = llvm.create_pipeline_tuning_options(speed_level=int(job["passes"][1]))
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    if job["emit"] == "ir":
        return "ok", str(module)
    return "ok", machine.emit_object(module) if job["emit"] == "object" else machine.emit_assembly(module)


def _read(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        sys.exit(0)  # the parent is gone or wants no more
    return data


def main() -> None:
    """Serve requests until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever LLVM prints must not get between the answers
    for option in sys.argv[1:]:
        llvm.set_option("treadle", option)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    requests = sys.stdin.buffer
    while True:
        (size,) = struct.unpack(">I", _read(requests, 4))
        answer = pickle.dumps(generate(pickle.loads(_read(requests, size))))
        answers.write(struct.pack(">I", len(answer)) + answer)
        answers.flush()


if __name__ == "__main__":
    main()
