"""Texts of reductions of rows with any number of outputs and any body."""


def reduction(body: str, outputs: dict[str, str], inputs: int = 1, element: str = "f32", shape: tuple[int, int] = (3, 9)) -> str:
    """A function that reduces rows of its inputs %x0, %x1, .. onto its arguments; `outputs`: accumulator name -> type, in their order."""
    identity, row = "affine_map<(i, j) -> (i, j)>", "affine_map<(i, j) -> (i)>"
    maps = ", ".join([*[identity] * inputs, *[row] * len(outputs)])
    types = [f"tensor<{shape[0]}x{shape[1]}x{element}>"] * inputs
    given = [f"%a{i}: {type_}" for i, type_ in enumerate(types)]
    results = [f"tensor<{shape[0]}x{type_}>" for type_ in outputs.values()]
    starts = [f"%s{i}: {type_}" for i, type_ in enumerate(results)]
    block = ", ".join([*(f"%x{i}: {element}" for i in range(inputs)), *(f"%{name}: {type_}" for name, type_ in outputs.items())])
    names = [f"%r#{i}" for i in range(len(outputs))]
    yielded = ", ".join(f"%{name}_next" for name in outputs)
    joined = ", ".join(results)
    return f"""func.func @f({", ".join([*given, *starts])}) -> ({joined}) {{
      %r:{len(outputs)} = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "reduction"]}}
        ins({", ".join(f"%a{i}" for i in range(inputs))} : {", ".join(types)})
        outs({", ".join(f"%s{i}" for i in range(len(outputs)))} : {joined}) {{
      ^bb0({block}):
        {body}
        linalg.yield {yielded} : {", ".join(outputs.values())}
      }} -> ({joined})
      return {", ".join(names)} : {joined} }}"""
