"""Code generation processes: results, errors with the line, crashes, time limits, parallel use, no process left behind."""

import os
import signal
import subprocess
import sys
import time

import pytest
from codegen.kernels import AMD, NVIDIA, vector_add

from treadle.codegen import worker
from treadle.codegen.worker import LlvmJob, WorkerPool
from treadle.errors import InternalError

BAD_TEXT = 'target triple = "nvptx64-nvidia-cuda"\ndefine void @f() {\nentry:\n  %x = add i32 1, 2.0\n  ret void\n}\n'
BAD_MODULE = (
    'target triple = "nvptx64-nvidia-cuda"\ndefine void @f(i1 %c) {\nentry:\n  br i1 %c, label %a, label %b\na:\n  %x = add i32 1, 2\n'
    "  br label %b\nb:\n  %y = add i32 %x, 1\n  ret void\n}\n"
)
FATAL = 'target triple = "amdgcn-amd-amdhsa"\ndefine amdgpu_kernel void @f() {\n  call void asm sideeffect "s_nop 0", ""()\n  ret void\n}\n'


def job(text: str, triple: str = NVIDIA, cpu: str = "sm_90a", **more: object) -> LlvmJob:
    return LlvmJob(text, triple, cpu, **more)  # pyright: ignore[reportArgumentType]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_errors_show_the_line() -> None:
    with pytest.raises(InternalError, match=r"does not parse(.|\n)*4>   %x = add i32 1, 2.0"):
        worker.emit_assembly(BAD_TEXT, triple=NVIDIA, cpu="sm_90a")
    with pytest.raises(InternalError, match=r"does not verify(.|\n)*6>   %x = add i32 1, 2"):
        worker.emit_assembly(BAD_MODULE, triple=NVIDIA, cpu="sm_90a")
    with pytest.raises(InternalError, match="no such target"):
        worker.emit_assembly(BAD_TEXT, triple="pdp11-dec-bsd", cpu="")


def test_a_crash_is_an_error_and_the_next_call_works() -> None:
    pool = WorkerPool(1)
    try:
        pool.run(job(vector_add(NVIDIA)))
        (first,) = pool.pids()
        with pytest.raises(InternalError, match="gfx942") as caught:
            pool.run(job(FATAL, AMD, "gfx942", emit="object"))
        assert "LLVM ERROR" in str(caught.value) or "Inline asm" in str(caught.value)
        assert not alive(first)
        assert "vector_add" in pool.run(job(vector_add(NVIDIA)))  # pyright: ignore[reportOperatorIssue]
    finally:
        pool.close()
    assert pool.pids() == []


def test_a_worker_killed_between_requests_is_replaced() -> None:
    pool = WorkerPool(1)
    try:
        pool.run(job(vector_add(NVIDIA)))
        os.kill(pool.pids()[0], 9)
        assert "vector_add" in pool.run(job(vector_add(NVIDIA)))  # pyright: ignore[reportOperatorIssue]
    finally:
        pool.close()


def test_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_TOOL_SECONDS", "0.001")
    pool = WorkerPool(1)
    try:
        with pytest.raises(InternalError, match="took too long"):
            pool.run(job(vector_add(NVIDIA)))
    finally:
        pool.close()


def test_a_job_that_took_too_long_is_not_tried_again() -> None:
    """Nor by a worker that has served others; its limit may be another than the tools'."""
    pool = WorkerPool(1)
    try:
        pool.run(job(vector_add(NVIDIA)))
        (before,) = pool.pids()
        os.kill(before, signal.SIGSTOP)
        with pytest.raises(InternalError, match="took too long"):
            pool.run(job(vector_add(NVIDIA)), 0.1)
        assert pool.pids() == []
        assert not alive(before)
    finally:
        pool.close()


def test_warming_up_starts_what_is_missing() -> None:
    pool = WorkerPool(2)
    try:
        for wanted, count in ((1, 1), (2, 2), (2, 2), (2, 5)):
            pool.warm_up((), count)
            assert len(pool.pids()) == wanted
        before = pool.pids()
        pool.run(job(vector_add(NVIDIA)))
        assert set(pool.pids()) == set(before)
    finally:
        pool.close()


def test_many_jobs_keep_their_order_and_their_errors() -> None:
    text = vector_add(NVIDIA)
    jobs = [job(text.replace("vector_add", f"kernel{i}")) for i in range(9)]
    assert all(f".entry kernel{i}(" in str(result) for i, result in enumerate(worker.compile_many(jobs)))
    with pytest.raises(InternalError, match="does not parse"):
        worker.compile_many([jobs[0], job(BAD_TEXT), jobs[1]])


def test_other_llvm_options_use_another_process() -> None:
    pool = WorkerPool(2)
    try:
        plain = pool.run(job(vector_add(AMD), AMD, "gfx942"))
        pool.run(job(vector_add(AMD), AMD, "gfx942", llvm_options=("-amdgpu-dump-hsa-metadata=0",)))
        assert len(pool.pids()) == 2
        assert pool.run(job(vector_add(AMD), AMD, "gfx942")) == plain
    finally:
        pool.close()


def test_nothing_stays_behind_when_the_parent_ends() -> None:
    script = (
        "from treadle.codegen import worker\nworker.warm_up()\nprint(*worker._pool.pids(), flush=True)\nimport os, sys\n"
        "if len(sys.argv) > 1: os._exit(0)\n"
    )
    environment = {**os.environ, "PYTHONPATH": "src"}
    for extra in ([], ["hard"]):
        done = subprocess.run([sys.executable, "-c", script, *extra], capture_output=True, text=True, check=True, env=environment)
        (pid,) = map(int, done.stdout.split())
        deadline = time.monotonic() + 10
        while alive(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not alive(pid)


def test_the_child_imports_nothing_of_treadle() -> None:
    source = (
        "import sys, runpy\nsys.stdin = open('/dev/null')\ntry: runpy.run_path(sys.argv[1], run_name='__main__')\nexcept SystemExit: pass\n"
    )
    source += "print([m for m in sys.modules if m.split('.')[0] in ('treadle', 'xdsl', 'numpy')], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", source, worker._MAIN], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
