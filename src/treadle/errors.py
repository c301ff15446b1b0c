"""The catalogue of user errors and the exceptions that carry them.

Every error a user can meet has an `Entry` here: a stable code, the text, and what to do. Codes are grouped by hundreds:
1xx input text, 2xx types and shapes, 3xx forming and tiling, 4xx schedule, 5xx targets and tools, 6xx devices and launch,
7xx arguments, 8xx command line, 9xx files and cache.
"""

from typing import NoReturn

from treadle.records import Record


class SourceLocation(Record):
    """A place in the user's text: `line` and `column` count from 1, 0 where unknown."""

    file: str
    line: int
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.column else f"{self.file}:{self.line}"


class Entry(Record):
    """One catalogue entry; `text` and `fix` are format strings over the fields given to `TreadleError`."""

    code: str
    text: str
    fix: str


class TreadleError(Exception):
    """An error the user can act on.

    Attributes: `entry`, `code`, `message`, `fix`, `location` (None where no line of the user's is at fault).
    """

    def __init__(self, entry: Entry, location: SourceLocation | None = None, **fields: object) -> None:
        self.entry = entry
        self.code = entry.code
        self.message = entry.text.format(**fields)
        self.fix = entry.fix.format(**fields)
        self.location = location
        super().__init__(self.render())

    def render(self) -> str:
        """`file:line:col: error TRxxx: message` and, on a second line, what to do."""
        place = f"{self.location}: " if self.location else ""
        return f"{place}error {self.code}: {self.message}\n  fix: {self.fix}"


class InternalError(Exception):
    """A state the compiler must never reach; carries the operation's text and location in its message."""


class KernelRejected(TreadleError):
    """The machine does not hold a kernel as it was tiled, or the code that the tools made of it breaks a rule of its audit: another
    candidate of the same kernel may do.

    Attributes: `kernel`, `reason`.
    """

    def __init__(
        self,
        kernel: str,
        reason: str,
        location: SourceLocation | None = None,
        *,
        entry: Entry | None = None,
        hint: str = "",
        **fields: object,
    ) -> None:
        self.kernel, self.reason = kernel, reason
        hint = hint or "choose a smaller tile (option `tile`)"
        super().__init__(entry or CODE_REJECTED, location, kernel=kernel, reason=reason, hint=hint, **fields)


def unreachable(what: str) -> NoReturn:
    """Raise `InternalError` for a case that earlier checks rule out."""
    raise InternalError(what)


PARSE = Entry("TR101", "{message}", "correct the text at the marked place; `treadle opt FILE` checks it alone")
UNKNOWN_OP = Entry(
    "TR102", "operation '{name}' is not known", "use an operation of the func, linalg, tensor, arith, math, scf or affine dialect"
)
WHICH_FUNCTION = Entry("TR104", "{problem} (functions: {names})", "name one of them with --function, or `function=`")
RESOURCE = Entry(
    "TR105",
    "the data of dense_resource<{name}> cannot be read: {reason}",
    "print the module with its resources (without --mlir-elide-resource-strings-if-larger), or write dense<..>",
)
NESTING = Entry(
    "TR106",
    "the text is nested too deep here: more than {limit} brackets or prefixes inside each other",
    "write it with less nesting; a chain of operations needs none",
)
KERNEL_FORM = Entry("TR107", "kernel '{kernel}': {problem}", "{hint}")
HOST_PROGRAM = Entry("TR108", "{place}: {problem}", "make the host program and its kernels agree (docs/kernels.md)")
KERNEL_LANGUAGE = Entry("TR109", "{problem}{shown}", "{hint}")
TORCH_OPTION = Entry("TR120", "torch.compile has no option {name}={value!r} for this backend", "{hint}")
TORCH_STRICT = Entry(
    "TR121", "'{node}' is not taken from PyTorch's graph: {reason}", "leave it to PyTorch: compile without the option treadle.strict"
)
TORCH_REGION = Entry(
    "TR122", "the program of a region is not there: {path}", "clear PyTorch's compile cache, which refers to it (TORCHINDUCTOR_CACHE_DIR)"
)
TORCH_GRAPH = Entry(
    "TR123", "this graph of PyTorch's cannot be one program: {reason}", 'compile the model with torch.compile(backend="treadle") instead'
)
TORCH_VERSION = Entry(
    "TR124",
    "PyTorch {found} is not supported, and the model runs without Treadle's kernels: {reason}",
    "install PyTorch {oldest} or a later one that docs/pytorch.md names",
)
TORCH_DEFINITION = Entry(
    "TR125",
    "operator '{name}' cannot be compiled from its definition: {reason}",
    "write the definition with operators that are loop nests, or leave it out: give gradients with backward=",
)
SIZE_EXPRESSION = Entry("TR103", "'{text}' is not a size expression: {reason}", "use integers, names and + - * // % min max ( ) only")
VERIFY = Entry("TR201", "{message}", "make the types and shapes of this operation agree")
SIZE_MISMATCH = Entry("TR202", "sizes disagree: {message} ({left} against {right})", "make the sizes of the operands agree")
ELEMENT_TYPE = Entry("TR203", "values of type {type} are not supported", "{instead}")
TYPE_TOO_LARGE = Entry("TR204", "{type} takes {bytes} bytes, beyond 2^63 - 1", "use smaller sizes; no memory holds such an array")
UNSUPPORTED = Entry("TR301", "{what} cannot be compiled yet", "{hint}")
NO_INITIAL_VALUE = Entry(
    "TR302",
    "'{name}' {does} tensor.empty, whose contents are not specified",
    "initialise its outs with linalg.fill (0 for sums, -infinity for maxima), or pass a tensor",
)
INDEX_TOO_LARGE = Entry(
    "TR303", "{what} of this operation reaches {value}, beyond 2^63 - 1", "use smaller sizes; no memory holds such an array"
)
KERNEL_NOT_TAKEN = Entry(
    "TR310",
    "kernel '{kernel}' cannot be compiled as it is written: {reason}",
    "change what the reason names (docs/kernels.md says what kernels hold); report it with the kernel if nothing is wrong there",
)
KERNEL_FAULT = Entry(
    "TR324",
    "kernel '{kernel}' breaks a rule of its operations: {reason}",
    "correct the access, its sizes or what it promises",
)
NOT_ONE_KERNEL = Entry("TR304", "{what} cannot be one kernel: '{op}': {reason}", "{fix}")
F32_SPLIT = Entry("TR306", "treadle.f32_split of '{op}': {reason}", "write it on a contraction of f32, as one of {known}, or none")
SPLIT_REDUCTION = Entry(
    "TR308",
    "treadle.split_reduction of '{op}': {reason}",
    'write a number of parts, #dispatch.split<r0 = "8" step 64> on reduction loops that operands have axes of their own for, or "off"',
)
PADDED_ROWS = Entry(
    "TR309",
    "treadle.padded_rows of '{op}': {reason}",
    "write array<i64: a, b> on a contraction: the elements from one row to the next of the copies of A and of B, 0 for no copy",
)
TURNED_OPERANDS = Entry(
    "TR311",
    "treadle.turned_operands of '{op}': {reason}",
    "write array<i64: a, b> on a contraction: the elements from one row to the next of the turned copies of A and of B, which lie along k "
    "themselves, 0 for no copy",
)
ASSOCIATIVE = Entry(
    "TR307",
    "treadle.associative of '{op}': {reason}",
    "write it on a linalg.generic that reduces and whose body merges two values of each result's type, as an array of their identities",
)
GROUP = Entry("TR305", "dispatch.group of '{op}': {reason}", "{fix}")
SHARED_MEMORY = Entry(
    "TR401",
    "kernel '{kernel}' needs {needed} bytes of shared memory; {target} has {available} for a workgroup",
    "choose a smaller tile (option `tile`) or another target",
)
SCHEDULE_FORM = Entry("TR416", "'{op}': {reason}", "{fix}")
WARP_PIPELINE_FORM = Entry("TR417", "warp pipeline: {problem}", "{fix}")
WARP_PIPELINE_ORDER = Entry("TR418", "warp pipeline: {problem}", "{fix}")
CODE_REJECTED = Entry("TR561", "the machine code of kernel '{kernel}' is rejected: {reason}", "{hint}")
OPTION_REJECTED = Entry(
    "TR562",
    "kernel '{kernel}' cannot be compiled with {options}: {reason}",
    "leave these options to the compiler, or choose smaller tiles and fewer stages",
)
OTHER_TARGET = Entry(
    "TR504", "kernel '{kernel}' is written for {written}, not for {target}", 'compile it for {written}, or write it for target "any"'
)
NO_LOOP_REPORT = Entry(
    "TR505", "what loops cost is not read off the machine code of {target}", "audit for an AMD target (`treadle targets`)"
)
TOOL_MISSING = Entry("TR551", "{tool} cannot be run: {reason}", "provide {install}")
TOOL_FAILED = Entry(
    "TR552", "{tool} failed with status {status}:\n{output}", "read the text above; report it with the input if it names nothing of yours"
)
TOOL_TIMEOUT = Entry("TR553", "{tool} took longer than {seconds:g} s", "raise TREADLE_TOOL_SECONDS, or make the kernel smaller")
NO_DATA_TYPE = Entry(
    "TR320", "values of type {type} cannot be computed on the CPU", "use f64, f32, f16, bf16, an 8-bit float, or i1, i8, i16, i32, i64"
)
NOT_EXECUTABLE = Entry("TR321", "operation '{name}' cannot be executed on the CPU: {reason}", "run without --check, or on another device")
UNWRITTEN = Entry(
    "TR322",
    "'{name}' gives what is left in uninitialised memory, and the program goes on by it",
    "initialise the tensor (linalg.fill) before it is read: the contents of tensor.empty are not specified",
)
NO_REFERENCE = Entry(
    "TR323",
    "{file} is written at {level} level and has no float64 evaluation: only programs on tensors say what is to be computed",
    "run without --check, and compare with numbers of your own",
)
NO_DEVICE = Entry("TR601", "device '{device}' cannot be used: {reason}", "{hint}")
NO_DEVICE_FOR_TARGET = Entry(
    "TR602", "no device here runs programs for {target}: {reason}", "compile for a device of this machine (`treadle devices`)"
)
DEVICE_CALL = Entry("TR603", "{call} failed: {reason}", "{hint}")
GRID_TOO_LARGE = Entry(
    "TR604", "kernel '{kernel}' needs a grid of {grid}, {device} takes at most {limit}", "split the largest dimension of the inputs"
)
SHARED_TOO_LARGE = Entry(
    "TR605", "kernel '{kernel}' needs {needed} bytes of shared memory, {device} has {limit} a workgroup", "choose smaller tiles"
)
OUT_OF_MEMORY = Entry("TR606", "{device} has no {bytes} bytes of memory left", "free arrays or use smaller inputs")
HOST_MEMORY = Entry(
    "TR609", "{what} do not fit into this machine's memory: {reason}", "use smaller arrays (`run --input`), or a machine with more memory"
)
BAD_BINARY = Entry("TR607", "{device} does not load '{binary}': {reason}", "compile again for this device; a newer driver may be needed")
BENCH_NEEDS = Entry(
    "TR611", "measuring needs {what}: {reason}", "install PyTorch for this machine's GPU; `treadle bench --list` works without"
)
CAPTURED_CALL = Entry(
    "TR608",
    "'{function}' cannot be captured into a graph like this: {reason}",
    "pass device arrays, and PyTorch tensors or `out=`, or bind the call before the capture",
)
ARGUMENT_COUNT = Entry("TR721", "'{function}' takes {expected} array(s), {given} given", "pass one array for each input, in order")
ARGUMENT_RANK = Entry(
    "TR722", "argument {index} ('{name}') has {given} dimension(s) ({shape}), the program's input has {expected}", "reshape the array"
)
ARGUMENT_SHAPE = Entry(
    "TR723", "argument {index} ('{name}') is {given}, expected {expected} (declared {declared})", "pass an array of the expected shape"
)
SIZES_RULED_OUT = Entry(
    "TR724", "'{function}' cannot run on these sizes: {what} ({left} {relation} {right})", "pass arrays of sizes that fit together"
)
ARGUMENT_DTYPE = Entry(
    "TR725", "argument {index} ('{name}') has element type {given}, expected {expected}", "convert the array to {expected} first"
)
ARGUMENT_DEVICE = Entry(
    "TR726", "argument {index} ('{name}') is on {given}, the program runs on {expected}", "copy the array there, or pass a NumPy array"
)
ARGUMENT_STRIDES = Entry(
    "TR727", "argument {index} ('{name}') has strides {given} (elements), expected {expected}", "make the array contiguous"
)
ARGUMENT_ALIGNMENT = Entry(
    "TR728",
    "argument {index} ('{name}') starts at an address that is not a multiple of {align}",
    "pass an array with an aligned start, such as a copy",
)
ARGUMENT_KIND = Entry(
    "TR729", "argument {index} ('{name}') ({given}) is no array", "pass a NumPy array or an object with DLPack or __cuda_array_interface__"
)
OUTPUT_COUNT = Entry(
    "TR730", "'{function}' has {expected} result(s), `out` has {given} array(s)", "pass one array for each result, in their order"
)
OUTPUT_ARRAY = Entry(
    "TR731",
    "`out` array {index} (for '{name}') {what}",
    "pass an array like the one that a call without `out` returns, in memory of its own",
)
ARGUMENT_NUMBER = Entry(
    "TR735",
    "argument {index} ('{name}') gives a size, and lies on {given}",
    "pass a Python number, or a NumPy array of one integer",
)
FIXED_LAYOUT = Entry(
    "TR736",
    "argument {index} is laid out otherwise ({given}) than the program's kernels are written for",
    "make the array contiguous and aligned, or declare its strides as symbols (`arg_strides`)",
)
IN_PLACE = Entry(
    "TR737",
    "argument {index} ('{name}') is changed in place, and {what}",
    "pass a writable array that shares memory with no other argument",
)
KERNEL_CALL = Entry("TR738", "kernel '{name}': {problem}", "launch it as {name}[grid](arguments), with the arguments that it declares")
INDEX_RANGE = Entry(
    "TR732",
    "'{function}' has 32-bit indices, which are too few for these sizes: {what} ({left} <= {right})",
    "compile it with the option index_bits=64",
)
ARGUMENT_RANGE = Entry(
    "TR733",
    "kernel '{kernel}' takes {kind} where these sizes give {value}",
    "pass smaller arrays, or compile with the option index_bits=64",
)
ARRAY_TOO_LARGE = Entry("TR734", "buffer '{name}' of '{function}' would take {bytes} bytes, beyond 2^63 - 1", "pass smaller arrays")
USAGE = Entry("TR801", "{message}", "`treadle --help` and `treadle VERB --help` show what is accepted")
INPUT_SPEC = Entry(
    "TR802",
    "--input '{text}' is neither a shape, a number nor a .npy file: {reason}",
    "write 64x32xf16, f32 for a random scalar, a number such as 2.5, or the path of a .npy file",
)
INPUT_COUNT = Entry(
    "TR803",
    "'{function}' takes {expected} input(s), --input was given {given} time(s)",
    "give --input once an input, in order, or not at all",
)
DYNAMIC_SIZE = Entry(
    "TR804", "input {index} ('{name}') has a dynamic dimension: {shape}", "give its size with --input, as in --input {example}"
)
OUTPUT_NEEDED = Entry("TR805", "--emit {stage} does not print as text", "name where to write with -o")
TARGET_HAS_NO_STAGE = Entry("TR806", "target '{target}' has no stage '{stage}'", "choose one of: {stages}")
SIZE_NEEDED = Entry(
    "TR807", "input {index} ('{name}') gives a size of the program", "give its number with --input, as in --input 64, and every other input"
)
SOURCE_HAS_NO_STAGE = Entry("TR808", "a program at {level} level has no stage '{stage}'", "choose its own level or a stage after it")
UNKNOWN_PASS = Entry("TR811", "there is no pass '{name}'", "choose among: {known}")
PASS_OPTION = Entry("TR812", "option '{option}' of pass '{name}': {reason}", "`treadle opt --list` shows every pass with its options")
PASS_SYNTAX = Entry("TR813", "cannot read '{rest}' in the passes '{text}'", "write name{{option=value,...}},name,...")
UNKNOWN_WORKLOAD = Entry(
    "TR821", "there is no workload or group '{name}'", "`treadle bench --list` shows them; patterns such as 'square-*' work"
)
COMPILE_OPTION = Entry(
    "TR822", "compile option '{text}': {reason}", "write name=value, numbers of a tuple separated by commas; options: {known}"
)
NOTHING_TO_TUNE = Entry("TR823", "'{name}' has nothing to tune for {target}: {reason}", "tune a program with a matrix product or attention")
NO_TIMELINE = Entry("TR824", "no timeline of kernel '{kernel}': {reason}", "{hint}")
SCRIPT = Entry("TR825", "'{path}' failed: {reason}", "run it with Python alone first")
READ_FILE = Entry("TR901", "cannot read '{path}': {reason}", "check the path and its permissions")
WRITE_FILE = Entry("TR902", "cannot write '{path}': {reason}", "check the path and its permissions")
KNOB = Entry("TR951", "{name}={value} cannot be read: {reason}", "correct or unset the environment variable")
MANIFEST = Entry("TR931", "{place} {reason}", "write the artifact again; docs/artifact.md describes its format")
