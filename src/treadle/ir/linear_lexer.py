"""String literals are read in time linear in the text.

Upstream's expression repeats a repetition; where the closing quote is missing it tries every way to split the characters between the two.
"""

import re

from xdsl.utils.mlir_lexer import MLIRLexer

STRING_LITERAL = re.compile(r'"(?:[^"\\\n\v\f]|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')
"""A character or an escape sequence at a time, and none of them is given back."""

MLIRLexer._unescaped_characters_regex = STRING_LITERAL  # pyright: ignore[reportPrivateUsage]
